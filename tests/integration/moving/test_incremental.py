"""`incremental`: of a changed range only the newer rows move, and the range is as its source is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log import ledger
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.rows import deltas
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.one.dry_run import dry_run
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, Row, crash, reopen, staging_tables
from tests.servers import own

pytestmark = pytest.mark.integration

COPIES = own("incremental_copies")
TARGETS = {
    "sqlserver": "sqlserver://dbo.{t}",
    "clickhouse": "clickhouse://warehouse.{t}",
    "postgres": f"postgres://{COPIES}.{{t}}",
}
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL, at timestamptz)",
    "INSERT INTO {t} SELECT g, 'name ' || g, timestamptz '2024-01-01 00:00Z' + g * interval '1 s'"
    " FROM generate_series(2, 400, 2) g",
    "INSERT INTO {t} VALUES (7, 'name 7', NULL)",
)
FIRST = "..0000000200"
SELECT = "SELECT id, name FROM {t} ORDER BY id"
DAY = 86_400.0
Make = Callable[..., Ferry]


@pytest.fixture
def incremental(ferry: Make) -> Iterator[Make]:
    """Makes a committed transfer of two ranges of a hundred rows, and an empty one."""
    made: list[Ferry] = []

    def make(*systems: str, **settings: str) -> Ferry:
        hops = ", ".join(f"'{TARGETS[system]}'" for system in systems)
        declared = {
            "ranges": "{bounds: [200, 401]}",
            "write": "upsert",
            "fingerprint": "{watermark: at}",
            "incremental": "true",
            **settings,
        }
        one = ferry(f"[{hops}]", f"CREATE SCHEMA IF NOT EXISTS {COPIES}", *TABLE, **declared)
        made.append(one)
        first = one.run()
        assert first.good, first.errors
        return one

    yield make
    for one in made:
        one.source(f"DROP SCHEMA IF EXISTS {COPIES} CASCADE")


def shown(one: Ferry, system: str) -> list[Row]:
    """Keys and names in a target."""
    schema = {"clickhouse": "warehouse", "sqlserver": "dbo"}.get(system, COPIES)
    return looking.ask(one.stack, system, SELECT.format(t=f"{schema}.{one.table}"))


def plant(one: Ferry, system: str, key: int) -> None:
    """Damage a row of the target: whatever writes it again mends it."""
    if system == "clickhouse":
        one.session.servers.endpoints["clickhouse"].execute(
            f"ALTER TABLE warehouse.{one.table} UPDATE name = 'planted' WHERE id = {key}",
            {"mutations_sync": 2},
        )
    elif system == "sqlserver":
        one.session.servers.endpoints["sqlserver"].execute(
            f"UPDATE dbo.{one.table} SET name = 'planted' WHERE id = {key}"
        )
    else:
        one.source(f"UPDATE {COPIES}.{{t}} SET name = 'planted' WHERE id = {key}")


def record(one: Ferry, system: str) -> RangeRecord:
    """What the event log says of the first range."""
    asset = asset_key(TableRef.parse(TARGETS[system].format(t=one.table)))
    return ledger.records(one.session.instance, asset, [FIRST])[FIRST]


def failing(one: Ferry) -> set[str]:
    """The targets in which `ferry check` finds a difference."""
    checks = runner.check(one.session, one.table).checks
    return {str(check.hop.plan.target) for check in checks if check.failed}


def moves(one: Ferry) -> list[str]:
    """Run, and tell which ranges were moved."""
    view = one.run()
    assert view.good, view.errors
    return one.moved(view)


@pytest.mark.parametrize("deleted", [False, True])
def test_values_that_are_changed_are_told_of_all_rows(ferry: Make, deleted: bool) -> None:
    """Those of rows that stay as they are in the target, too."""
    narrow = "{n: {type: smallint, on_overflow: clamp}, price: {type: 'numeric(9, 1)', cast: true}}"
    one = ferry(
        f"['{TARGETS['postgres']}']",
        f"CREATE SCHEMA IF NOT EXISTS {COPIES}",
        *TABLE,
        "ALTER TABLE {t} ADD n integer, ADD price numeric(9, 2) DEFAULT 1",
        "UPDATE {t} SET n = 99999, price = 1.25 WHERE id IN (10, 20, 300)",
        ranges="{bounds: [200, 401]}",
        write="upsert",
        fingerprint="{watermark: at}",
        incremental="true",
        deletes="apply",
        columns=narrow,
    )
    assert one.run().good
    one.source("UPDATE {t} SET n = -99999, price = 1.75, at = '2024-01-02' WHERE id IN (10, 12)")
    if deleted:
        one.source("DELETE FROM {t} WHERE id = 30")
    assert moves(one) == [FIRST]
    assert record(one, "postgres").since
    told = runner.status(one.session, one.table).notes
    target = TARGETS["postgres"].format(t=one.table)
    assert f"{target}: values changed by on_overflow: 4 of n" in told
    assert f"{target}: values that lost something by cast: 4 of price" in told
    one.source(f"DROP SCHEMA {COPIES} CASCADE")


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_deleted_rows_go_without_a_whole_move(incremental: Make, system: str) -> None:
    """What shows it: a row that somebody damaged is not mended, as it is not moved again."""
    one = incremental(system, deletes="apply")
    one.source(
        "DELETE FROM {t} WHERE id IN (30, 32)",
        "UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10",
    )
    plant(one, system, 20)
    assert moves(one) == [FIRST]
    done = record(one, system)
    assert (done.rows, done.rows_moved, done.deleted, done.whole_because) == (98, 3, 2, None)
    there = dict(shown(one, system))
    assert 30 not in there and 32 not in there
    assert (there[10], there[20]) == ("newer", "planted")
    assert done.written == {"deleted": 2}
    assert runner.status(one.session, one.table).notes[0].endswith("in 1 range: 2 deleted")
    assert moves(one) == []
    one.source("DELETE FROM {t} WHERE id = 34")
    assert moves(one) == [FIRST]
    assert record(one, system).deleted == 1

    # a row that came with an older watermark is none that is gone: then the range is compared
    one.source(
        "DELETE FROM {t} WHERE id = 36",
        "INSERT INTO {t} VALUES (37, 'late', '2024-01-01 00:00:30Z')",
    )
    assert moves(one) == [FIRST]
    done = record(one, system)
    assert "1 row came or changed with an older watermark" in (done.whole_because or "")
    assert shown(one, system) == one.rows(SELECT)


@pytest.mark.parametrize("system", TARGETS)
def test_only_newer_rows_move_and_nothing_is_lost(incremental: Make, system: str) -> None:
    one = incremental(system)
    assert len(shown(one, system)) == 201

    # a row with the very watermark that was the greatest, committed late, and some newer ones
    one.source(
        "INSERT INTO {t} SELECT 15, 'late', max(at) FROM {t} WHERE id < 200",
        "UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id IN (10, 12)",
        "INSERT INTO {t} VALUES (9, 'new', '2024-01-02')",
    )
    plant(one, system, 20)
    (planned,) = [row for row in one.plan().ranges if row.state == "run"]
    assert (planned.range, planned.reason) == (FIRST, "source_changed")
    assert planned.detail == "at >= 2024-01-01T00:03:18"
    (statements,) = dry_run(one.session, one.table).hops[0].ranges
    assert "2024-01-01 00:03:18" in statements.export and "IS NULL" in statements.export
    assert moves(one) == [FIRST]
    seen = record(one, system)
    assert seen.since == "at >= 2024-01-01T00:03:18"
    assert (seen.rows, seen.rows_moved) == (102, 6), "the row that had it, and the one with none"
    source = one.rows(SELECT)
    assert [row for row in shown(one, system) if row[0] != 20] == [
        row for row in source if row[0] != 20
    ]
    assert (20, "planted") in shown(one, system), "an older row was moved"
    assert not one.run().run_ids

    # what a check finds is moved as a whole
    found = runner.check(one.session, one.table).checks
    assert {check.range for check in found if check.failed and check.range} == {FIRST}
    assert moves(one) == [FIRST]
    assert shown(one, system) == source
    assert record(one, system).rows_moved is None


@pytest.mark.invariant("I12")
@pytest.mark.parametrize("system", ["sqlserver", "clickhouse"])
def test_what_newer_rows_do_not_say_is_found(
    incremental: Make, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = incremental(system)

    # a deleted row is noticed, and kept as `upsert` keeps it; so is what was written too late
    for statement in (
        "DELETE FROM {t} WHERE id = 30",
        "UPDATE {t} SET name = 'older', at = '2023-01-01' WHERE id = 32",
    ):
        one.source(statement, "UPDATE {t} SET at = '2024-01-03' WHERE id = 40")
        assert moves(one) == [FIRST]
        whole = record(one, system)
        assert whole.rows_moved is None and "older watermark" in (whole.whole_because or "")
        assert [row for row in shown(one, system) if row[0] != 30] == one.rows(SELECT)
    one.source("UPDATE {t} SET name = 'newest', at = '2024-01-04' WHERE id = 42")
    assert moves(one) == [FIRST]
    assert record(one, system).rows_moved == 3, "the kept row is known by now"
    assert not any(check.failed for check in runner.check(one.session, one.table).checks)

    # a change that leaves the watermark alone waits for the range to be compared as a whole
    one.source("UPDATE {t} SET name = 'unseen' WHERE id = 44")
    assert not one.run().run_ids
    then = deltas.now() + 8 * DAY
    monkeypatch.setattr("tableferry.assets.running.rows.now", lambda: then)
    monkeypatch.setattr("tableferry.assets.planning.rows.decisions.now", lambda: then)
    assert {row.reason for row in one.plan().ranges} == {"full_check"}
    assert moves(one) == [FIRST]
    assert [row for row in shown(one, system) if row[0] != 30] == one.rows(SELECT)
    assert {row.state for row in one.plan().ranges} == {"skip"}, "the other range is proven anew"


def test_each_hop_of_a_chain_moves_its_newer_rows(incremental: Make) -> None:
    one = incremental("sqlserver", "clickhouse")
    for system in ("sqlserver", "clickhouse"):
        plant(one, system, 20)
    one.source("UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id IN (10, 12)")
    assert moves(one) == [FIRST]
    for system in ("sqlserver", "clickhouse"):
        assert record(one, system).rows_moved == 4
        assert {(12, "newer"), (20, "planted")} <= set(shown(one, system))

    # both targets are damaged alike: the second hop has to follow the first, which is mended
    assert failing(one) == {f"sqlserver://dbo.{one.table}"}
    assert moves(one) == [FIRST]
    for system in ("sqlserver", "clickhouse"):
        assert shown(one, system) == one.rows(SELECT)
    assert {row.state for row in one.plan().ranges} == {"skip"}


def test_each_hop_of_a_chain_loses_its_deleted_rows(incremental: Make) -> None:
    one = incremental("sqlserver", "postgres", deletes="apply")
    one.source(
        "DELETE FROM {t} WHERE id = 30",
        "UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10",
    )
    assert moves(one) == [FIRST]
    for system in ("sqlserver", "postgres"):
        assert (record(one, system).deleted, record(one, system).whole_because) == (1, None)
        assert shown(one, system) == one.rows(SELECT)
    assert failing(one) == set()


def test_newer_rows_are_not_enough_where_the_hop_before_is_mended(incremental: Make) -> None:
    one = incremental("sqlserver", "clickhouse")
    for system in ("sqlserver", "clickhouse"):
        plant(one, system, 20)
    assert failing(one) == {f"sqlserver://dbo.{one.table}"}, "the second hop is as the first"
    one.source("UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10")
    assert moves(one) == [FIRST]
    for system in ("sqlserver", "clickhouse"):
        assert shown(one, system) == one.rows(SELECT)
    assert {row.state for row in one.plan().ranges} == {"skip"}


def test_the_second_hop_alone_reads_what_the_first_is_due_to_compare(
    incremental: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = incremental("sqlserver", "clickhouse")
    plant(one, "clickhouse", 20)
    then = deltas.now() + 8 * DAY
    monkeypatch.setattr("tableferry.assets.running.rows.now", lambda: then)
    monkeypatch.setattr("tableferry.assets.planning.rows.decisions.now", lambda: then)
    assert {row.reason for row in one.plan().ranges} == {"full_check"}
    second = one.run(hop=2)
    assert second.good, second.errors
    assert shown(one, "clickhouse") == one.rows(SELECT)
    one.source("UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10")
    assert "run hop 1 first" in one.run(hop=2).errors[0], "what hop 1 has not moved is not there"


@pytest.mark.parametrize(
    ("system", "point"),
    [("sqlserver", "inside_finalise"), ("clickhouse", "after_commit")],
)
def test_killed_between_newer_rows_and_their_record(
    incremental: Make, tmp_path: Path, system: str, point: str
) -> None:
    one = incremental(system)
    one.source(
        "UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id IN (10, 12)",
        "INSERT INTO {t} VALUES (9, 'new', '2024-01-02')",
    )
    crash(Command(tmp_path), one.table, point)
    reopen(one)
    assert moves(one) == [FIRST]
    assert shown(one, system) == one.rows(SELECT)
    assert staging_tables(one, system) == []
    assert not one.run().run_ids


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
@pytest.mark.parametrize("point", ["after_commit", "during_load", "inside_finalise"])
def test_killed_before_rows_that_are_gone_are_deleted(
    incremental: Make, tmp_path: Path, system: str, point: str
) -> None:
    """Between the newer rows and the deletion, and within each."""
    one = incremental(system, deletes="apply")
    one.source(
        "UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id IN (10, 12)",
        "DELETE FROM {t} WHERE id = 30",
    )
    crash(Command(tmp_path), one.table, point)
    reopen(one)
    assert moves(one) == [FIRST]
    assert shown(one, system) == one.rows(SELECT)
    assert system == "postgres" or staging_tables(one, system) == []
    assert not one.run().run_ids


def test_switched_on_later_it_goes_on_from_what_is_there(incremental: Make) -> None:
    """What was committed before has no watermark on record: it is compared once, not moved."""
    one = incremental("clickhouse", incremental="false")
    one.declare(
        f"['{TARGETS['clickhouse']}']",
        ranges="{bounds: [200, 401]}",
        write="upsert",
        fingerprint="{watermark: at}",
        incremental="{full_check: 24h}",
    )
    assert {row.reason for row in one.plan().ranges} == {"full_check"}
    assert moves(one) == []
    plant(one, "clickhouse", 20)
    one.source("UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10")
    assert moves(one) == [FIRST]
    assert record(one, "clickhouse").rows_moved == 3
    assert (20, "planted") in shown(one, "clickhouse")


def test_what_only_the_newer_rows_fail_is_judged_by_the_whole_range(incremental: Make) -> None:
    query = "SELECT count() AS n FROM {table} WHERE {range} HAVING n BETWEEN 1 AND 50"
    expectation = f'[{{type: sql, kwargs: {{query: "{query}"}}}}]'
    one = incremental("clickhouse", expectations=expectation)
    plant(one, "clickhouse", 20)
    one.source("UPDATE {t} SET name = 'newer', at = '2024-01-02' WHERE id = 10")
    assert moves(one) == [FIRST]
    whole = record(one, "clickhouse")
    assert whole.rows_moved is None and "expectations FAILED" in (whole.whole_because or "")
    assert shown(one, "clickhouse") == one.rows(SELECT)
    assert staging_tables(one, "clickhouse") == []


def test_sql_server_as_the_source(ferry: Make) -> None:
    """It has no snapshot to share, and its times may have a seventh digit."""
    hops = f"['{TARGETS['clickhouse']}']"
    one = ferry(hops)
    source = f"dbo.{one.table}"
    server = one.session.servers.endpoints["sqlserver"]
    server.execute(
        f"CREATE TABLE {source} (id int PRIMARY KEY, name nvarchar(9), at datetimeoffset(7))"
    )
    try:
        rows = ", ".join(f"({key}, N'row {key}', '2024-01-01')" for key in range(1, 31))
        server.execute(f"INSERT INTO {source} VALUES {rows}")
        one.declare(
            hops,
            source=f"sqlserver://{source}",
            ranges="{bounds: [200, 401]}",
            write="upsert",
            fingerprint="{watermark: at}",
            incremental="true",
        )
        assert moves(one) == [FIRST, "0000000200..0000000401", "0000000401.."]
        for key, rows_moved in ((3, 30), (4, 2)):
            at = "'2024-01-02 10:00:00.25'"
            server.execute(f"UPDATE {source} SET name = N'newer', at = {at} WHERE id = {key}")
            assert moves(one) == [FIRST]
            assert record(one, "clickhouse").rows_moved == rows_moved
            plant(one, "clickhouse", 20)
        assert {(3, "newer"), (4, "newer"), (20, "planted")} <= set(shown(one, "clickhouse"))
    finally:
        server.execute(f"DROP TABLE {source}")


def test_a_watermark_without_order_is_refused_by_name(ferry: Make) -> None:
    one = ferry(
        f"['{TARGETS['clickhouse']}']",
        *TABLE,
        write="upsert",
        fingerprint="{watermark: name}",
        incremental="true",
    )
    with pytest.raises(InputError, match="watermark column 'name' is of type text"):
        one.run()
