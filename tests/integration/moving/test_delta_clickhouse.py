"""Into ClickHouse, too, a changed range moves only the rows that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.moving.test_delta import SHAPES, figures, of_rows, records
from tests.integration.support import looking
from tests.integration.support.crashing import Command, crash, reopen, staging_tables

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
ROWS = "SELECT n, name FROM {t} ORDER BY n"


def there(one: Ferry, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the target; `{t}` is the table."""
    sql = sql.replace("{t}", f"warehouse.{one.table}")
    return looking.ask_clickhouse(one.stack.clickhouse_url, sql)


def change(one: Ferry, statement: str) -> None:
    """Change the target."""
    statement = statement.replace("{t}", f"warehouse.{one.table}")
    looking.run(one.stack, "clickhouse", f"{statement} SETTINGS mutations_sync = 2")


def moved(one: Ferry, hop: int = 1) -> tuple[int | None, ...]:
    """Rows of the range, and those inserted, updated and deleted; the target equals its source."""
    view = one.run()
    assert view.good, view.errors
    assert there(one, ROWS) == one.rows(ROWS)
    record = max(records(one, hop).values(), key=lambda record: record.rows or 0)
    assert record.whole_because is None
    return figures(record)


def made(ferry: Make, shape: str = "integer", **settings: Any) -> Ferry:
    form = SHAPES[shape]
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        f"CREATE TABLE {{t}} ({form.columns}, n integer, name text, PRIMARY KEY ({form.identity}))",
        *(f"INSERT INTO {{t}} VALUES ({form.of(n)}, {n}, 'name {n}')" for n in range(1, 61)),
        **{"key": form.key, "ranges": "{rows: 1000}", "delta": "always", **settings},
    )
    return one


CHANGES = (
    "UPDATE {t} SET name = name || '.' WHERE n IN (3, 4, 5)",
    "DELETE FROM {t} WHERE n IN (6, 7)",
)


@pytest.mark.parametrize("shape", SHAPES)
def test_only_rows_that_differ_are_moved(ferry: Make, shape: str) -> None:
    """What only the target has in its rows shows which of them went through the transfer."""
    one = made(ferry, shape)
    assert one.run().good
    change(one, "ALTER TABLE {t} ADD COLUMN mark UInt8 DEFAULT 0")
    change(one, "ALTER TABLE {t} UPDATE mark = 1 WHERE 1")
    one.source(*CHANGES, f"INSERT INTO {{t}} VALUES ({SHAPES[shape].of(100)}, 100, NULL)")
    change(one, "ALTER TABLE {t} DELETE WHERE n = 8")
    change(one, "ALTER TABLE {t} UPDATE name = 'planted' WHERE n = 9")
    assert moved(one) == (59, 2, 4, 2)
    anew = [n for (n,) in there(one, "SELECT n FROM {t} WHERE mark = 0 ORDER BY n")]
    assert anew == [3, 4, 5, 8, 9, 100]
    # nothing but deletions
    one.source("DELETE FROM {t} WHERE n > 20")
    assert moved(one) == (18, 0, 0, 41)
    assert runner.check(one.session, one.table, level="full_hash").good


@pytest.mark.parametrize(
    "engine",
    [
        "MergeTree PARTITION BY id % 3 ORDER BY id",
        "MergeTree ORDER BY tuple()",
        "ReplacingMergeTree(version, is_deleted) ORDER BY id",
    ],
)
@pytest.mark.parametrize("write", ["replace", "upsert"])
def test_tables_that_somebody_else_has_partitioned(ferry: Make, engine: str, write: str) -> None:
    one = made(ferry, write=write)
    change(
        one,
        "CREATE TABLE {t} (id Int32, n Nullable(Int32), name Nullable(String), "
        f"version UInt32 DEFAULT 0, is_deleted UInt8 DEFAULT 0) ENGINE = {engine}",
    )
    assert one.run().good
    change(one, "ALTER TABLE {t} UPDATE is_deleted = 0, name = 'planted' WHERE n = 9")
    one.source(*CHANGES, "INSERT INTO {t} VALUES (100, 100, NULL)")
    view = one.run()
    assert view.good, view.errors
    source = one.rows(ROWS)
    kept = [(n, f"name {n}") for n in (6, 7)] if write == "upsert" else []
    assert there(one, ROWS) == sorted([*source, *kept])
    deleted = 0 if write == "upsert" else 2
    assert figures(of_rows(one)) == (59, 1, 4, deleted)


def test_upsert_keeps_rows_of_the_target(ferry: Make) -> None:
    one = made(ferry, write="upsert")
    assert one.run().good
    one.source(*CHANGES)
    assert one.run().good
    assert figures(of_rows(one)) == (58, 0, 3, 0)
    assert there(one, "SELECT count(), countIf(name LIKE '%.') FROM {t}") == [(60, 3)]


def test_a_later_hop_moves_the_same_rows(ferry: Make) -> None:
    one = made(ferry)
    one.declare(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        ranges="{rows: 1000}",
        delta="always",
    )
    assert one.run().good
    one.source(*CHANGES)
    assert moved(one, 2) == (58, 0, 3, 2)


def test_a_key_that_repeats_moves_the_whole_range(ferry: Make) -> None:
    one = made(ferry)
    assert one.run().good
    change(one, "INSERT INTO {t} (id, n, name) SELECT id, n, 'twice' FROM {t} WHERE n = 9")
    one.source(*CHANGES)
    assert one.run().good
    assert there(one, ROWS) == one.rows(ROWS)
    assert "2 rows share a primary key (id): id = 9" in (of_rows(one).whole_because or "")


def test_many_rows_are_deleted_in_several_statements(ferry: Make) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, n integer, name text)",
        "INSERT INTO {t} SELECT g, g, 'name ' || g FROM generate_series(1, 12000) g",
        ranges="{rows: 100000}",
        delta="always",
    )
    assert one.run().good
    one.source("DELETE FROM {t} WHERE id % 10 <> 0", "UPDATE {t} SET name = '' WHERE id = 10")
    assert moved(one) == (1200, 0, 1, 10800)


def test_a_table_is_repaired(ferry: Make) -> None:
    one = made(ferry)
    assert one.run().good
    change(one, "ALTER TABLE {t} DELETE WHERE n = 8")
    change(one, "ALTER TABLE {t} UPDATE name = 'planted' WHERE n = 9")
    change(one, "INSERT INTO {t} (id, n, name) SELECT 0, 0, 'stray'")
    assert not runner.check(one.session, one.table).good
    done = CliRunner().invoke(main, ["repair", one.table])
    assert done.exit_code == 0, done.output
    assert there(one, ROWS) == one.rows(ROWS)
    assert sum(record.updated or 0 for record in records(one).values()) == 1
    assert runner.check(one.session, one.table).good


@pytest.mark.parametrize("partitioned", ["", "PARTITION BY id % 3"])
@pytest.mark.parametrize(
    "point", ["during_load", "after_load", "after_marker", "inside_finalise", "after_commit"]
)
def test_a_killed_delta_is_completed(
    ferry: Make, tmp_path: Path, point: str, partitioned: str
) -> None:
    one = made(ferry)
    if partitioned:
        columns = "id Int32, n Nullable(Int32), name Nullable(String)"
        change(one, f"CREATE TABLE {{t}} ({columns}) ENGINE = MergeTree {partitioned} ORDER BY id")
    assert one.run().good
    one.source(*CHANGES)
    crash(Command(tmp_path), one.table, point)
    reopen(one)
    view = one.run()
    assert view.good, view.errors
    assert there(one, ROWS) == one.rows(ROWS)
    assert staging_tables(one, "clickhouse") == []
    assert not one.run().run_ids
