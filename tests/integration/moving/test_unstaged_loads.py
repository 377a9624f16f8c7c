"""Rows that go straight into the table: nobody sees them before they are proven and committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tableferry.assets.running import moving
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.checks.verdict import Verdict
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.one.dry_run import dry_run
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import RangeLoad
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import StatementFailed
from tests.integration.conftest import Ferry, by_range
from tests.integration.support.proxy import Corrupts, LosesAnswer
from tests.integration.support.target_bench import HIGH, LOW, NEW, OLD, REPLACE, PostgresBench
from tests.servers import Servers

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
UNSTAGED = TargetOptions(unstaged=True, format="copy_text")
TEXT = b"2\tnew\n4\tnew\\t\\n\\\\ '' \xf0\x9f\x98\x80\n5\t\n6\t\\N\n"
"""The rows NEW, as COPY writes them."""
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.50 FROM generate_series(1, 300) g",
)
RANGES = "{bounds: [101, 201]}"
SECOND = "0000000101..0000000201"
SELECT = "SELECT id, name, amount::text FROM {t} ORDER BY id"


@pytest.fixture
def bench(stack: Servers) -> Iterator[PostgresBench]:
    with PostgresBench(stack.postgres_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        yield bench


def load(bench: PostgresBench, *, target: object = None, options: TargetOptions = UNSTAGED) -> int:
    """NEW goes into the table, and is made visible."""
    with (target or bench.target).attempt(
        Publication(bench.plan, LOW, "v1", "run-1"), options
    ) as load:
        assert load.load_bytes(iter([TEXT])).rows == load.staged_rows() == len(NEW)
        return int(load.finalise())


def test_rows_are_seen_by_their_reader_only(bench: PostgresBench) -> None:
    count = f"SELECT count(*) FROM {bench.named()}"
    attempt = bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), UNSTAGED)
    with attempt as load:
        load.load_bytes(iter([TEXT]))
        assert load.audited_table() == bench.table
        assert load.reader().query(count) == [(len(NEW),)]
        assert bench.rows() == OLD
    assert bench.rows() == OLD, "an attempt that does not finalise leaves nothing"
    assert not bench.left_over()
    load_again = bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), UNSTAGED)
    with load_again as load:
        load.load_bytes(iter([TEXT]))
        assert load.finalise() == len(NEW)
        assert bench.rows() == NEW
    assert not bench.left_over()


def test_a_row_that_is_refused_leaves_nothing(bench: PostgresBench) -> None:
    attempt = bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), UNSTAGED)
    with pytest.raises(StatementFailed), attempt as load:
        load.load_bytes(iter([TEXT, b"seven\tno number\n"]))
    assert bench.rows() == OLD
    assert not bench.left_over()
    load_all(bench)


@pytest.mark.invariant("I1", "I4")
def test_killed_inside_finalise(bench: PostgresBench) -> None:
    bench.in_process_that_dies("inside_finalise", lambda: load(bench) and None)
    assert bench.rows() == OLD
    load_all(bench)


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("committed", [True, False])
def test_lost_acknowledgement(bench: PostgresBench, committed: bool) -> None:
    with LosesAnswer(bench.plain_url, bench.commit, deliver=committed) as proxy:
        target = bench.at(proxy.url)
        if committed:
            assert load(bench, target=target) == len(NEW)
        else:
            with pytest.raises(StatementFailed):
                load(bench, target=target)
        assert proxy.lost == 1
    assert bench.rows() == (NEW if committed else OLD)
    load_all(bench)


def load_all(bench: PostgresBench) -> None:
    """Whatever was before, the next attempt brings the rows."""
    assert load(bench) == len(NEW)
    assert bench.rows() == NEW
    assert not bench.left_over()


@pytest.mark.parametrize(
    ("mode", "there", "unstaged"),
    [
        ("replace", True, True),
        ("append", True, False),
        ("upsert", True, False),
        ("append", False, True),
        ("upsert", False, True),
    ],
)
def test_rows_that_stay_ask_for_staging(
    bench: PostgresBench, mode: str, there: bool, unstaged: bool
) -> None:
    options = replace(UNSTAGED, mode=WriteMode(mode))
    if not there:
        bench.ask(f"TRUNCATE {bench.named()}")
    attempt = bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), options)
    with attempt as load:
        assert (load.reader() is not None) == unstaged
    if unstaged:
        with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), options) as load:
            load.load_bytes(iter([TEXT]))
            assert load.finalise() == len(NEW)
        assert bench.rows() == NEW


def test_an_open_range_of_a_new_table_is_looked_for_by_the_index(bench: PostgresBench) -> None:
    bench.ask(f"INSERT INTO {bench.named()} SELECT g, 'old' FROM generate_series(-50000, 0) g")
    condition = bench.plan.target_range(HIGH)
    with bench.target.attempt(Publication(bench.plan, HIGH, "v", "run-1"), UNSTAGED) as load:
        load.load_bytes(iter([b"11\tnew\n"]))
        explain = f"EXPLAIN SELECT count(*) FROM {bench.named()} WHERE {condition}"
        plan = "\n".join(line for (line,) in load.reader().query(explain))
        assert "Seq Scan" not in plan and "_pkey" in plan, plan
        assert load.finalise() == 1


def test_what_would_be_converted_is_staged(bench: PostgresBench) -> None:
    bench.ask(f"ALTER TABLE {bench.named()} ALTER COLUMN note TYPE text")
    target = bench.at(bench.url)
    target.prepare(bench.plan, REPLACE)
    for options in (UNSTAGED, replace(UNSTAGED, format="arrow"), REPLACE):
        attempt = target.attempt(Publication(bench.plan, LOW, "v", "run-1"), options)
        with attempt as load:
            assert load.reader() is None


@pytest.mark.invariant("I2")
def test_no_reader_sees_rows_before_their_audit(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=RANGES, parallel="{export: 1}")
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    own_audit, seen = moving.audit, dict[str, tuple[int, int]]()

    def watched(attempt: RangeAttempt, load: RangeLoad) -> tuple[Verdict, ...]:
        verdicts, reader = own_audit(attempt, load), load.reader()
        assert reader is not None
        condition = attempt.hop.plan.target_range(attempt.key_range)
        count = f"SELECT count(*) FROM {copies}.{one.table} WHERE {condition}"
        ((inside,),), ((before,),) = reader.query(count), one.rows(count)
        seen[attempt.key_range.name] = (before, inside)
        return verdicts

    monkeypatch.setattr(moving, "audit", watched)
    shown = "\n".join(dry_run(one.session, one.table).lines())
    assert f'COPY "{copies}"."{one.table}" ("id", "name", "amount") FROM STDIN' in shown
    assert f'INTO "{copies}"."{one.table}"' not in shown
    first = one.run()
    assert first.good, first.errors
    assert list(seen.values()) == [(0, 100)] * 3
    assert one.rows(there) == one.rows(SELECT)

    one.source("UPDATE {t} SET name = 'new' WHERE id = 150", "DELETE FROM {t} WHERE id = 151")
    seen.clear()
    again = one.run()
    assert again.good, again.errors
    assert seen == {SECOND: (100, 99)}, "readers have the old rows of the range meanwhile"
    assert one.rows(there) == one.rows(SELECT)


@pytest.mark.invariant("I2")
def test_damaged_rows_are_not_seen_and_kept_for_inspection(
    ferry: Make, stack: Servers, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=RANGES)
    assert one.run().good
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    before = one.rows(there)
    one.source("UPDATE {t} SET name = 'marker 150' WHERE id = 150")
    with Corrupts(stack.postgres_url, b"marker 150", b"marker 15o") as proxy:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_PROXY", proxy.url)
        one.declare(f"['proxy://{copies}.{{t}}']", ranges=RANGES)
        # the target is known by the name of another connection
        assert CliRunner().invoke(main, ["clean", one.table, "--markers"]).exit_code == 0
        failed = one.run()
        assert proxy.changed
        assert not failed.good
        assert "checksum" in str(by_range(failed)[SECOND].error)
        assert one.rows(there) == before
        ((shown, differences),) = runner.differences(one.session, one.table, SECOND).items()
    assert "rejected" in shown
    (example,) = differences.examples
    assert (example.source, example.target) == ("marker 150", "marker 15o")


def test_rows_that_break_an_expectation_are_not_seen(ferry: Make, copies: str) -> None:
    suite = "[{type: sql, kwargs: {query: 'SELECT id FROM {table} WHERE {range} AND amount < 0'}}]"
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        *TABLE,
        ranges=RANGES,
        expectations=suite,
    )
    first = one.run()
    assert first.good, first.errors
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    before = one.rows(there)
    one.source("UPDATE {t} SET amount = -1 WHERE id = 150")
    failed = one.run()
    assert not failed.good
    assert "amount < 0" in str(by_range(failed)[SECOND].error)
    assert one.rows(there) == before
