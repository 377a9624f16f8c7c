"""Targets that publish by a transaction: what is visible when, and what a crash leaves."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tableferry.resources.contract.markers import MARKERS, Publication
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    RangeBusy,
    ReceiptMismatch,
    SchemaDrift,
    StatementFailed,
)
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.transactional.load import StagingLost
from tableferry.resources.transactional.markers import MarkerTable
from tableferry.resources.transactional.preparing import create_table
from tableferry_local.stack import Stack
from tests.integration.support.proxy import LosesAnswer
from tests.integration.support.target_bench import (
    AFTER,
    ELSEWHERE,
    HIGH,
    LOW,
    NEW,
    OLD,
    REPLACE,
    TRANSACTIONAL,
    Bench,
    PostgresBench,
    Row,
    batch,
)
from tests.servers import Servers

pytestmark = pytest.mark.integration

MODES = [mode for mode in WriteMode if mode.moves]


@pytest.fixture(params=TRANSACTIONAL)
def bench(request: pytest.FixtureRequest, stack: Servers) -> Iterator[Bench]:
    url = getattr(stack, f"{request.param}_url")
    with TRANSACTIONAL[request.param](url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


@pytest.fixture(params=TRANSACTIONAL)
def own_bench(request: pytest.FixtureRequest, own_stack: Stack) -> Iterator[Bench]:
    """On servers that may be killed."""
    url = getattr(own_stack, f"{request.param}_url")
    with TRANSACTIONAL[request.param](url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


def test_of_several_runs_that_create_the_table_one_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all of them have found that there is none yet."""
    target, ready = bench.target, threading.Barrier(3, timeout=60)

    def created(*arguments: Any) -> None:
        ready.wait()
        create_table(*arguments)

    monkeypatch.setattr("tableferry.resources.transactional.target.create_table", created)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(target.prepare, bench.plan, REPLACE) for _ in range(3)]:
            done.result()
    bench.load(OLD)
    assert bench.rows() == OLD


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_lost_acknowledgement(bench: Bench, mode: WriteMode, committed: bool) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.target.prepare(bench.plan, options)
    with LosesAnswer(bench.plain_url, bench.commit, deliver=committed) as proxy:
        target = bench.at(proxy.url)
        bench.load(NEW, options=options, target=target)
        assert proxy.lost == 1
    bench.target.promote(bench.plan, options)
    assert bench.rows() == AFTER[mode]
    assert not bench.left_over()


def test_server_killed_before_finalise(own_stack: Stack, own_bench: Bench) -> None:
    own_bench.target.prepare(own_bench.plan, REPLACE)
    own_bench.load(OLD)
    try:
        with (
            pytest.raises((ConnectionFailed, StatementFailed)) as caught,
            own_bench.target.attempt(
                Publication(own_bench.plan, LOW, "v", "run-1"), REPLACE
            ) as load,
        ):
            load.load_arrow([batch(NEW)])
            own_stack.kill(own_bench.system)
            load.finalise()
        assert getattr(caught.value, "transient", False)
    finally:
        own_stack.restart(own_bench.system)
    assert own_bench.rows() == OLD
    own_bench.load(NEW)
    assert own_bench.rows() == NEW
    assert not own_bench.left_over()


def test_a_crash_of_the_server_takes_unlogged_rows_with_it(own_stack: Stack) -> None:
    with PostgresBench(own_stack.postgres_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        attempt = bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), REPLACE)
        with pytest.raises(StagingLost, match="nothing was committed") as lost, attempt as load:
            load.load_arrow([batch(NEW)])
            load.audited_table()
            write = load._write

            def late(rows: int) -> None:
                own_stack.kill("postgres")
                own_stack.restart("postgres")
                load._write = write
                write(rows)

            load._write = late
            load.finalise()
        assert lost.value.transient, "the range is loaded anew"
        assert bench.rows() == OLD
        bench.load(NEW)
        assert bench.rows() == NEW
        assert not bench.left_over()


@pytest.mark.invariant("I7")
def test_range_taken_over_while_the_connection_was_lost(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    with LosesAnswer(bench.plain_url, bench.commit, deliver=False) as proxy:
        slow = bench.at(proxy.url)
        with (
            pytest.raises(RangeBusy, match="taken over"),
            slow.attempt(Publication(bench.plan, LOW, "v", "slow"), REPLACE) as load,
        ):
            load.load_arrow([batch(OLD)])
            reconnect = load._reconnect

            def late() -> object:
                bench.load(NEW)
                return reconnect()

            load._reconnect = late  # type: ignore[method-assign,assignment]
            load.finalise()
    assert bench.rows() == NEW


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("publish_audit", ["auto", "visible"])
@pytest.mark.invariant("I2")
def test_rows_that_get_lost_after_the_audit_are_noticed(
    bench: Bench, mode: WriteMode, publish_audit: Any
) -> None:
    options = TargetOptions(mode=mode, publish_audit=publish_audit)
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.target.prepare(bench.plan, options)
    with (
        pytest.raises(ReceiptMismatch, match=r"staged|arrived"),
        bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), options) as load,
    ):
        load.load_arrow([batch(NEW)])
        load.audited_table()
        bench.ask(f"DELETE FROM {bench.staged(load)} WHERE id = 4")
        load.finalise()
    assert bench.rows() == OLD


@pytest.mark.parametrize("mode", [WriteMode.REPLACE, WriteMode.UPSERT])
def test_staged_rows_are_counted_once_and_those_of_the_range_too(
    bench: Bench, mode: WriteMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count reads all rows, and there is one for each thing that it proves."""
    options, asked = TargetOptions(mode=mode), list[str]()
    bench.target.prepare(bench.plan, options)
    bench.load(OLD)
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), options) as load:
        load.load_arrow([batch(NEW)])
        query = type(load.session).query
        monkeypatch.setattr(
            type(load.session), "query", lambda own, sql: asked.append(sql) or query(own, sql)
        )
        load.staged_rows()
        load.audited_table()
        assert load.finalise() == len(AFTER[mode])
        counts = [sql for sql in asked if sql.lower().startswith("select count")]
        staged = [sql for sql in counts if load.staging.name in sql and load.table.name not in sql]
        shown = [sql for sql in counts if load.staging.name not in sql]
    assert (len(staged), len(shown)) == (1, 1), counts


def test_too_long_text_is_refused(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    with pytest.raises(StatementFailed) as caught:
        bench.load([(1, "x" * 41)])
    assert not caught.value.transient
    assert bench.rows() == OLD
    assert not bench.left_over()


@pytest.mark.invariant("I7")
def test_live_run_keeps_its_range(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tableferry.resources.transactional.target.LOCK_SECONDS", 0)
    bench.target.prepare(bench.plan, REPLACE)
    with bench.target.attempt(Publication(bench.plan, LOW, "v", "run-1"), REPLACE) as load:
        load.load_arrow([batch(OLD)])
        with (
            pytest.raises(RangeBusy, match="another run"),
            bench.target.attempt(Publication(bench.plan, LOW, "v", "run-2"), REPLACE),
        ):
            pytest.fail("two runs hold one range")
        bench.load(ELSEWHERE, HIGH)
        load.finalise()
    assert bench.rows() == [*OLD, *ELSEWHERE]


def test_a_session_serves_the_next_attempt_unless_a_statement_failed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    seen: list[Any] = []

    @contextmanager
    def attempt(key_range: KeyRange) -> Iterator[Any]:
        with bench.target.attempt(
            Publication(bench.plan, key_range, "v", "run-1"), REPLACE
        ) as load:
            seen.append(load.session.raw)
            yield load

    with attempt(LOW) as load:
        load.load_arrow([batch(OLD)])
        load.finalise()
    with attempt(HIGH) as load:
        bench.load(NEW)  # it has given back the lock of its first range
        with pytest.raises(StatementFailed):
            load.session.query(f"SELECT 1 FROM {bench.named('missing')}")
    with attempt(LOW):
        pass
    first, second, third = seen
    assert second is first
    assert first.closed
    assert third is not first
    assert bench.rows() == NEW


def test_ranges_are_loaded_side_by_side(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    ranges = [KeyRange("integer", low, low + 100) for low in range(0, 400, 100)]
    failures: list[BaseException] = []

    def load(key_range: KeyRange) -> None:
        try:
            low = int(str(key_range.lower))
            for _ in range(2):
                bench.load([(number, "x") for number in range(low, low + 100)], key_range)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, args=(key_range,)) for key_range in ranges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert bench.rows() == [(number, "x") for number in range(400)]


def test_rows_of_another_range_are_noticed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(ELSEWHERE, HIGH)
    with pytest.raises(ReceiptMismatch, match="rolled back"):
        bench.load([(1, "mine"), (11, "not mine")])
    assert bench.rows() == ELSEWHERE


def test_text_keys_differ_by_case_and_trailing_blanks(bench: Bench) -> None:
    bench.plan = bench.make_plan(primary_key=("id", "note"))
    upsert = TargetOptions(mode=WriteMode.UPSERT)
    bench.target.prepare(bench.plan, upsert)
    rows: list[Row] = [(1, "A"), (1, "a"), (1, "a ")]
    bench.load(rows[:2], options=upsert)
    bench.load(rows[1:], options=upsert)
    assert sorted(bench.rows()) == rows


def test_identity_column_of_an_existing_table(bench: Bench) -> None:
    bench.ask(f"CREATE TABLE {bench.named()} (id {bench.identity}, note {bench.text} NULL)")
    assert bench.target.prepare(bench.plan, REPLACE) == []
    bench.load(OLD)
    assert bench.rows() == OLD


def test_a_table_is_swapped_again_and_again(bench: Bench) -> None:
    """One with an index, which keeps its name, and with the longest name of all servers."""
    name = bench.table.name.ljust(63, "x")
    table, swap = replace(bench.table, name=name), TargetOptions(mode=WriteMode.SWAP)
    plan = replace(bench.plan, primary_key=(), target=table)
    for _ in range(3):
        bench.target.prepare(plan, swap)
        bench.target.promote(plan, swap)
    assert [one for one in bench.tables() if one.startswith(name[:20])] == [name]


def test_rights_are_told_of_a_table_that_exists(bench: Bench) -> None:
    """HAS_PERMS_BY_NAME is 0 on Babelfish where there is none."""
    asked = bench.target.sql.permissions(bench.table)
    assert bench.ask(asked) == []
    bench.target.prepare(bench.plan, REPLACE)
    ((_, *rights),) = bench.ask(asked)
    assert rights and all(rights)


def test_who_has_prepared_another_shadow_publishes_nothing_in_the_new_one(bench: Bench) -> None:
    swap, other = TargetOptions(mode=WriteMode.SWAP), bench.at(bench.url)
    bench.target.prepare(bench.plan, swap)
    bench.load(OLD, options=swap)
    other.prepare(bench.make_plan(primary_key=()), swap)
    with pytest.raises(TargetMoved, match="into a new table"):
        bench.load(NEW, options=swap)
    assert bench.rows(shadow_of(bench.table)) == []


def test_column_that_nobody_fills(bench: Bench) -> None:
    bench.ask(
        f"CREATE TABLE {bench.named()} "
        f"(id bigint NOT NULL, note {bench.text} NULL, more int NOT NULL, less int NULL)"
    )
    with pytest.raises(SchemaDrift, match="must not be NULL: 'more'"):
        bench.target.prepare(bench.plan, REPLACE)
    bench.ask(f"ALTER TABLE {bench.named()} DROP COLUMN more")
    (note,) = bench.target.prepare(bench.plan, REPLACE)
    assert "'less'" in note
    with pytest.raises(InputError, match="swap would lose"):
        bench.target.prepare(bench.plan, TargetOptions(mode=WriteMode.SWAP))


def test_column_that_the_server_fills(bench: Bench) -> None:
    filled = "version rowversion NOT NULL"
    if bench.system == "postgres":
        domain = bench.named(f"{bench.table.name}_d")
        bench.ask(f"CREATE DOMAIN {domain} AS int NOT NULL DEFAULT 7")
        filled = f"version {domain}"
    bench.ask(
        f"CREATE TABLE {bench.named()} "
        f"(id bigint NOT NULL, more int NOT NULL DEFAULT 1, {filled}, note {bench.text} NULL)"
    )
    assert "'version'" in str(bench.target.prepare(bench.plan, REPLACE))
    bench.load(OLD)
    assert [(row[0], row[-1]) for row in bench.rows()] == OLD
    if bench.system == "postgres":
        bench.ask(f"DROP DOMAIN {domain} CASCADE")


@pytest.mark.parametrize("name", ["select", "with space", "quote]'\"[", "Žluť.ý 😀"])
@pytest.mark.parametrize("system", TRANSACTIONAL)
def test_any_name(stack: Servers, system: str, name: str) -> None:
    name = f"{name} {uuid.uuid4().hex[:8]}"
    with TRANSACTIONAL[system](getattr(stack, f"{system}_url"), name) as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        bench.load(NEW)
        assert bench.rows() == NEW


def test_schema_is_created(bench: Bench) -> None:
    schema = f"s_{uuid.uuid4().hex[:8]}"
    bench.plan = replace(bench.plan, target=replace(bench.table, schema=schema))
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    assert bench.ask(f"SELECT COUNT(*) FROM {schema}.{bench.table.name}") == [(3,)]
    for table in (bench.table.name, MARKERS):
        bench.ask(f"DROP TABLE {schema}.{table}")
    bench.ask(f"DROP SCHEMA {schema}")


@pytest.mark.invariant("I8")
def test_who_goes_by_an_older_marker_publishes_nothing(bench: Bench) -> None:
    """Nor does who cuts otherwise: ranges that share rows count as one."""
    bench.target.prepare(bench.plan, REPLACE)
    known = replace(
        bench.target.published(bench.plan, REPLACE), transfer_ranges=frozenset([LOW.name])
    )
    bench.load(NEW, KeyRange("integer", 2, 7))
    older = Publication(bench.plan, LOW, "v0", "run-0", "h0", known)
    with (
        bench.target.attempt(older, REPLACE) as load,
        pytest.raises(TargetMoved, match=r"range 0000000002\.\.0000000007 by run run-1"),
    ):
        load.load_arrow([batch(OLD)])
        load.finalise()
    with pytest.raises(TargetMoved), bench.target.marking(older, REPLACE):
        pass
    assert bench.rows() == NEW
    (marker,) = bench.target.published(bench.plan, REPLACE).of_target.values()
    assert (marker.version, marker.owner, marker.key) == ("v1", "run-1", "id")

    known = replace(
        bench.target.published(bench.plan, REPLACE), transfer_ranges=frozenset([LOW.name])
    )
    with bench.target.attempt(
        Publication(bench.plan, LOW, "v0", "run-0", known=known), REPLACE
    ) as load:
        load.load_arrow([batch(OLD)])
        load.finalise()
    found = bench.target.published(bench.plan, REPLACE).of_target
    assert list(found) == [LOW.name], "what it has overwritten is not said to stand"
    bench.target.retire(bench.plan, [LOW], [HIGH], REPLACE)
    assert bench.target.published(bench.plan, REPLACE).of_target == {}


def test_a_publication_waits_for_a_stopped_one_no_longer_than_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tableferry.resources.transactional.markers.TURN_SECONDS", 1)
    bench.target.prepare(bench.plan, REPLACE)
    identity = bench.target.identity(bench.table)
    markers = MarkerTable(bench.target.sql, bench.table)
    with bench.target._session() as stopped, bench.target.sql.transaction(stopped):
        markers.put(stopped, identity, Publication(bench.plan, LOW, "v1", "run-1"))
        with (
            pytest.raises(StatementFailed) as failed,
            bench.target.marking(Publication(bench.plan, HIGH, "v2", "run-2"), REPLACE),
        ):
            pass
        assert failed.value.transient
    assert list(bench.target.published(bench.plan, REPLACE).of_target) == [LOW.name]
