"""Checks of a source that goes on changing: a copy may be behind, or damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from tableferry.checks import recheck
from tableferry.checks.levels import LEVELS
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.show.views import CheckView
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 400) g",
)
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
BOUNDS = "{bounds: [101, 201, 301]}"
FIRST, SECOND, THIRD, LAST = (
    "..0000000101",
    "0000000101..0000000201",
    "0000000201..0000000301",
    "0000000301..",
)
Make = Callable[..., Ferry]


def outcomes(view: CheckView, hop: int) -> dict[str | None, str]:
    """How each range, and each table as a whole (None), did in the worst of its checks."""
    found: dict[str | None, str] = {}
    for one in view.checks:
        if one.hop.number != hop:
            continue
        verdict = one.verdict
        outcome = "equal" if verdict.passed else "newer" if verdict.source_newer else "damaged"
        before = found.get(one.range, "equal")
        found[one.range] = max(before, outcome, key=["equal", "newer", "damaged"].index)
    return found


def damage(one: Ferry, key: int) -> None:
    one.session.servers.endpoints["sqlserver"].execute(
        f"UPDATE dbo.{one.table} SET name = 'damaged' WHERE id = {key}"
    )


@pytest.mark.invariant("I10")
def test_a_source_that_goes_on_is_told_from_a_target_that_was_damaged(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges=BOUNDS)
    assert one.run().good
    assert one.run().good, "skips keep what is known of the commit"
    one.source(
        "UPDATE {t} SET name = 'changed' WHERE id = 50",
        "INSERT INTO {t} SELECT g, 'new' FROM generate_series(401, 403) g",
    )
    live = runner.check(one.session, one.table)
    assert live.good, live.errors
    first = {FIRST: "newer", SECOND: "equal", THIRD: "equal", LAST: "newer"}
    assert {name: how for name, how in outcomes(live, 1).items() if name} == first
    assert set(outcomes(live, 2).values()) == {"equal"}
    assert "the source is newer than the last move in 2 ranges (3 rows more)" in live.closing
    assert runner.status(one.session, one.table).good, "a warning is no failure"

    damage(one, 250)
    damage(one, 51)
    damaged = runner.check(one.session, one.table)
    assert not damaged.good
    both = {FIRST: "damaged", SECOND: "equal", THIRD: "damaged", LAST: "newer"}
    assert {name: how for name, how in outcomes(damaged, 1).items() if name} == both
    # the middle table is the source of the second hop, whose target nobody has touched
    second = {FIRST: "damaged", SECOND: "equal", THIRD: "damaged", LAST: "equal"}
    assert {name: how for name, how in outcomes(damaged, 2).items() if name} == second
    told = [one.summary() for one in damaged.checks if one.failed and one.hop.number == 2]
    assert len(told) == 2 and all("was changed since hop 1 proved it" in each for each in told)
    verdicts = damaged.json()["checks"]
    failed = {
        (each["hop"], each["table"], each["range"]) for each in verdicts if not each["passed"]
    }
    middle, last = f"sqlserver://dbo.{one.table}", f"clickhouse://warehouse.{one.table}"
    assert {(1, middle, FIRST), (2, last, FIRST), (2, last, THIRD)} <= failed, "each by its table"

    again = one.run()
    assert again.good, again.errors
    assert one.moved(again) == [FIRST, THIRD, LAST]
    assert set(outcomes(runner.check(one.session, one.table), 1).values()) == {"equal"}


@pytest.mark.parametrize("level", ["count", "sample_hash", "full_hash"])
def test_every_level_tells_them_apart(ferry: Make, level: str) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *TABLE, ranges=BOUNDS)
    assert one.run().good
    one.source("INSERT INTO {t} VALUES (500, 'new')", "DELETE FROM {t} WHERE id = 150")
    view = runner.check(one.session, one.table, level=level)
    found = outcomes(view, 1)
    assert view.good, view.errors
    assert (found[SECOND], found[LAST]) == ("newer", "newer")
    one.session.servers.endpoints["sqlserver"].execute(
        f"DELETE FROM dbo.{one.table} WHERE id = 350"
    )
    assert outcomes(runner.check(one.session, one.table, level=level), 1)[LAST] == "damaged"


def test_a_target_is_compared_with_what_was_committed(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges=BOUNDS)
    assert one.run().good
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 50")
    cli = CliRunner()
    for options, code in (("--as-of last-run", 0), ("--up-to-date", 1), ("", 0)):
        result = cli.invoke(main, ["check", one.table, *options.split()])
        assert result.exit_code == code, (options, result.output)
    damage(one, 250)
    view = runner.check(one.session, one.table, as_of_last_run=True)
    expected = {FIRST: "equal", SECOND: "equal", THIRD: "damaged", LAST: "equal"}
    assert outcomes(view, 1) == expected
    assert set(outcomes(view, 2).values()) == {"equal"}
    wrong = cli.invoke(main, ["check", one.table, "--as-of", "last-run", "--level", "count"])
    assert wrong.exit_code == 2 and "takes no other level" in wrong.output


@pytest.mark.parametrize("level", ["count", "checksum", "full_hash"])
def test_rows_that_are_being_written_are_no_differences(
    ferry: Make, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tool replicates into the target: it repairs some rows between the looks."""
    one = ferry("['sqlserver://dbo.{t}']", *TABLE, ranges=BOUNDS)
    assert one.run().good
    target = one.session.servers.endpoints["sqlserver"]

    def write(*statements: str) -> None:
        for statement in statements:
            target.execute(statement.format(t=f"dbo.{one.table}"))

    changed = "UPDATE {t} SET name = 'late' WHERE id IN (110, 250)"
    repaired = "UPDATE {t} SET name = CONCAT('name ', id) WHERE id IN (110, 250)"
    gone = "DELETE FROM {t} WHERE id IN (120, 350)"
    back = "INSERT INTO {t} VALUES (120, 'name 120'), (350, 'name 350')"
    # each pause: what is written while the check waits
    pauses: list[tuple[str, ...]] = []
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        write(*(pauses.pop(0) if pauses else ()))

    monkeypatch.setattr(recheck, "pause", sleep)

    write(changed, gone)
    pauses = [(), (repaired, back)]
    settled = runner.check(one.session, one.table, level=level, recheck="3x10s")
    assert settled.good, settled.errors
    notes = [each.verdict.note for each in settled.checks if each.range and each.verdict.note]
    assert any("differed while being written, and agreed when looked at" in note for note in notes)
    assert set(waited) == {10.0}

    write(gone)
    pauses = [("DELETE FROM {t} WHERE id = 51", "INSERT INTO {t} VALUES (120, 'name 120')")]
    damaged = runner.check(one.session, one.table, level=level, recheck="1x0s")
    in_each = outcomes(damaged, 1)
    assert (in_each[SECOND], in_each[LAST]) == ("equal", "damaged"), damaged.errors
    [verdict] = [each.verdict for each in damaged.checks if each.range == LAST]
    assert verdict.differences is not None
    assert [each.key for each in verdict.differences.examples] == ["350"]


def test_a_row_that_never_rests_cannot_be_judged(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *TABLE, ranges=BOUNDS)
    assert one.run().good
    target, looks = one.session.servers.endpoints["sqlserver"], iter(range(100))

    def write(_: float = 0) -> None:
        target.execute(f"UPDATE dbo.{one.table} SET name = 'look {next(looks)}' WHERE id = 250")

    monkeypatch.setattr(recheck, "pause", write)
    write()
    view = runner.check(one.session, one.table, level="checksum", recheck="2x0s")
    assert view.good, view.errors
    [verdict] = [each.verdict for each in view.checks if each.range == THIRD]
    assert "1 row changed from look to look, and cannot be judged" in verdict.summary()


def test_what_the_log_has_no_digest_of_is_said(ferry: Make) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, reconcile="count")
    assert one.run().good
    view = runner.check(one.session, one.table, as_of_last_run=True)
    assert not view.good
    assert "has no digest of these rows" in view.errors[0]
    assert one.plan().ranges[0].state == "skip", "nothing is known against the target"
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 50")
    checked = runner.check(one.session, one.table, level="checksum")
    assert not checked.good
    assert "cannot be told" in checked.errors[0]


AT = "timestamp '2024-01-01' + {} * interval '1 minute'"
INCREMENTAL = {"write": "upsert", "incremental": "true", "fingerprint": "{watermark: at}"}
WAYS: dict[str, dict[str, str]] = {
    "replace": {},
    "upsert": {"write": "upsert"},
    "append": {"write": "append"},
    "swap": {"write": "swap"},
    "incremental": INCREMENTAL,
    "incremental, with deletes": {**INCREMENTAL, "deletes": "apply"},
    "incremental, with marks": {**INCREMENTAL, "deletes": "{mark: gone}"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_has_gone_on_is_no_damage(ferry: Make, copies: str, way: str) -> None:
    """After a first load, and after one of what is newer; but a row that was damaged is."""
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, n integer, at timestamp NOT NULL)",
        f"INSERT INTO {{t}} SELECT g, g, {AT.format('g')} FROM generate_series(1, 60) g",
        ranges="{bounds: [21, 41]}",
        **WAYS[way],
    )
    assert one.run().good
    for load in (1, 2):
        changed = (
            ()
            if way == "append"
            else (
                f"UPDATE {{t}} SET n = n + 1, at = {AT.format(1000 * load)} "
                f"WHERE id IN ({load}, 50)",
            )
        )
        one.source(
            f"INSERT INTO {{t}} VALUES ({100 + load}, 1, {AT.format(1000 * load)})", *changed
        )
        for level in LEVELS:
            view = runner.check(one.session, one.table, level=level, recheck="1x0s")
            assert view.good, (level, view.errors)
            assert "the source is newer than the last move" in view.closing, level
        moved = one.run()
        assert moved.good, moved.errors
    one.source(f"UPDATE {copies}.{{t}} SET n = -1 WHERE id IN (10, 55)")
    one.source(f"INSERT INTO {{t}} VALUES (200, 1, {AT.format(9000)})")
    damaged = runner.check(one.session, one.table, level="checksum")
    assert {each.range for each in damaged.checks if each.failed and each.range} == {
        "..0000000021",
        "0000000041..",
    }
