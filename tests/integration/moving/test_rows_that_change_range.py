"""Rows that move from one key range to another while their primary key stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (pk int PRIMARY KEY, id int NOT NULL, note text)",
    "INSERT INTO {t} SELECT i, i, 'n' || i FROM generate_series(1, 30) i",
)
EXCHANGE = ("UPDATE {t} SET id = CASE pk WHEN 5 THEN 25 WHEN 25 THEN 5 END WHERE pk IN (5, 25)",)
ROTATE = ("UPDATE {t} SET id = (id + 9) % 30 + 1",)
HANDED_ON = ("UPDATE {t} SET id = 25, note = 'moved' WHERE pk = 5",)
SETTINGS = {"ranges": "{bounds: [11, 21]}"}
HOPS = {
    "postgres": "['postgres://{copies}.{{t}}']",
    "sqlserver": "['sqlserver://dbo.{{t}}']",
    "clickhouse": "['clickhouse://warehouse.{{t}}']",
}


def hops(system: str, copies: str) -> str:
    return HOPS[system].format(copies=copies)


def shown(one: Ferry, system: str, copies: str) -> list[tuple[int, int, str]]:
    """The rows that readers see."""
    schema = {"clickhouse": "warehouse", "sqlserver": "dbo"}.get(system, copies)
    sql = f"SELECT pk, id, note FROM {schema}.{one.table} ORDER BY pk, id"
    rows = looking.ask(one.stack, system, sql)
    return [(int(pk), int(id_), str(note)) for pk, id_, note in rows]


def assert_copied(one: Ferry, system: str, copies: str) -> None:
    assert shown(one, system, copies) == one.rows("SELECT pk, id, note FROM {t} ORDER BY pk")


@pytest.mark.parametrize("system", [*HOPS])
@pytest.mark.parametrize("change", [EXCHANGE, ROTATE, HANDED_ON], ids=["two", "all", "handed on"])
@pytest.mark.parametrize("write", ["replace", "swap"])
def test_rows_that_exchange_their_ranges_get_there_in_one_run(
    ferry: Callable[..., Ferry], copies: str, system: str, change: tuple[str], write: str
) -> None:
    one = ferry(hops(system, copies), *SOURCE, write=write, **SETTINGS)
    assert one.run().good
    one.source(*change)
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, system, copies)
    result = command("check", one.table, "--level", "full_hash")
    assert result.exit_code == 0, result.output
    assert command("status", one.table).exit_code == 0
    assert not one.moved(one.run())


def test_so_they_do_through_a_chain(ferry: Callable[..., Ferry], copies: str) -> None:
    chain = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
    one = ferry(chain, *SOURCE, **SETTINGS)
    assert one.run().good
    one.source(*ROTATE)
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, "sqlserver", copies)
    assert_copied(one, "clickhouse", copies)
    assert not one.moved(one.run())


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
@pytest.mark.parametrize(
    "options", [{"delta": "always"}, {"publish_audit": "visible"}, {"profile": "safe"}], ids=str
)
def test_so_they_do_however_ranges_are_written(
    ferry: Callable[..., Ferry], copies: str, system: str, options: dict[str, str]
) -> None:
    one = ferry(hops(system, copies), *SOURCE, **SETTINGS, **options)
    assert one.run().good
    one.source(*EXCHANGE)
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, system, copies)


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
@pytest.mark.parametrize("point", ["inside_finalise:1", "after_commit:1", "after_event:1"])
def test_killed_after_the_first_of_two_ranges(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, system: str, point: str
) -> None:
    one = ferry(hops(system, copies), *SOURCE, **SETTINGS)
    assert one.run().good
    before = shown(one, system, copies)
    one.source(*EXCHANGE)
    crash(Command(tmp_path), one.table, point, "--profile", "safe")
    reopen(one)
    rows = shown(one, system, copies)
    assert len({pk for pk, *_ in rows}) == len(rows), "no row is seen twice"
    if point == "inside_finalise:1":
        assert rows == before
    else:
        told = command("status", one.table).output
        assert "failed" in told and "rows of it have moved to range" in told
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, system, copies)
    assert command("check", one.table).exit_code == 0


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_a_range_that_is_moved_alone_says_what_the_other_has_lost(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    one = ferry(hops(system, copies), *SOURCE, **SETTINGS)
    assert one.run().good
    one.source(*EXCHANGE)
    result = command("run", one.table, "--range", "25")
    assert result.exit_code == 1 and "29 in target" in result.output
    assert "rows of it have moved to range" in command("status", one.table).output
    pks = [pk for pk, *_ in shown(one, system, copies)]
    assert pks == sorted({*range(1, 31)} - {25}), "its own row waits for the other range"
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, system, copies)
    assert command("status", one.table).exit_code == 0


def test_rows_that_others_refer_to_are_not_deleted(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(hops("postgres", copies), *SOURCE, **SETTINGS)
    assert one.run().good
    one.source(
        f"CREATE TABLE {copies}.child (pk int REFERENCES {copies}.{{t}} (pk) ON DELETE CASCADE)",
        f"INSERT INTO {copies}.child VALUES (5)",
        *HANDED_ON,
    )
    moved = one.run()
    assert not moved.good
    assert one.rows(f"SELECT pk FROM {copies}.child") == [(5,)]
    assert len(shown(one, "postgres", copies)) == 30
    assert runner.check(one.session, one.table)


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_values_of_a_unique_index_that_are_exchanged_are_told(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    one = ferry(hops(system, copies), *SOURCE, **SETTINGS)
    assert one.run().good
    table = one.session.transfer(one.table).hops[0].to
    server = one.session.servers.endpoint(table)
    name = f"{table.schema}.{table.name}"
    if system == "sqlserver":
        server.execute(f"ALTER TABLE {name} ALTER COLUMN note nvarchar(20)")
        one.declare(hops(system, copies), columns="{note: {type: nvarchar(20)}}", **SETTINGS)
    server.execute(f"CREATE UNIQUE INDEX only_once ON {name} (note)")
    one.source("UPDATE {t} SET note = CASE id WHEN 5 THEN 'n25' ELSE 'n5' END WHERE id IN (5, 25)")
    for _ in range(2):
        told = "".join(one.run().errors)
        assert "only_once" in told and "drop the index, run, and create it again" in told, told
    on = f" ON {name}" if system == "sqlserver" else ""
    index = "only_once" if system == "sqlserver" else f"{table.schema}.only_once"
    server.execute(f"DROP INDEX {index}{on}")
    view = one.run()
    assert view.good, view.errors
    assert_copied(one, system, copies)
