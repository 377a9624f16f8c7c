"""Transfers whose key is a text: every route and write mode, killed, repeated, changed, damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.checks.levels import LEVELS
from tableferry.pipelines.command.one import runner
from tableferry.resources import registry
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import predicate, qualified
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import (
    Command,
    ask_clickhouse,
    crash,
    reopen,
    staging_tables,
)

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TO_SQLSERVER = "['sqlserver://dbo.{t}']"
TO_CLICKHOUSE = "['clickhouse://warehouse.{t}']"
ODD = [
    *("", " ", "a", "A", "a ", "a  ", "a!", "a\t", "a \t", "a\n", "\x01", "ä", "a\u0308", "Ä", "ß"),
    *("it's", 'say "hi"', "50%", "a_b", "[x]", "back\\slash", "..", "...", "a..b", "null", "-1"),
    *("\ud7ff", "\ue000", "\uffff", "\U00010000", "😀", "😀 ", "x" * 150, "日本語"),
]
"""Keys that case, accents, blanks, quotes or planes might confuse."""

TABLE = (
    "CREATE TABLE {t} (id varchar(200) PRIMARY KEY, n integer NOT NULL, note text)",
    "INSERT INTO {t} SELECT 'key-' || lpad(g::text, 4, '0'), g, 'note ' || g "
    "FROM generate_series(1, 300) g",
)


def odd_rows(offset: int = 1000) -> list[str]:
    """Statements that add the odd keys."""
    rows = (
        "(E'" + key.replace("\\", "\\\\").replace("'", "''") + f"', {offset + n}, 'odd')"
        for n, key in enumerate(ODD)
    )
    return ["INSERT INTO {t} VALUES " + ", ".join(rows).replace("{", "{{").replace("}", "}}")]


def rows_in(one: Ferry, system: str) -> dict[str, tuple[int, str]]:
    """The rows of a table of the transfer, by key."""
    schema = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}[system]
    table = qualified(TableRef(system, schema, one.table))
    found = one.session.servers.endpoints[system].query(f"SELECT id, n, note FROM {table}")
    rows = {key: (int(n), note) for key, n, note in found}
    assert len(rows) == len(found)
    return rows


def assert_copied(one: Ferry, *systems: str) -> None:
    wanted = rows_in(one, "postgres")
    for system in systems:
        assert rows_in(one, system) == wanted, system


def test_a_chain_moves_every_text_and_follows_changes(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, *odd_rows(), ranges="{rows: 100}")
    first = one.run()
    assert first.good, first.errors
    assert_copied(one, "sqlserver", "clickhouse")
    assert len({view.range for view in first.ranges}) == 4
    for level in LEVELS:
        found = runner.check(one.session, one.table, level=level)
        assert not [check for check in found.checks if check.failed], level
        assert "no_stray_rows" in {check.verdict.check for check in found.checks}

    (note,) = one.plan().notes
    assert f"postgres://public.{one.table}: no index" in note, "the tables we made have one"

    again = one.run()
    assert again.good and one.moved(again) == [], "nothing has changed"
    one.source(
        "UPDATE {t} SET note = NULL WHERE id = 'key-0100'",
        "DELETE FROM {t} WHERE id = 'key-0101'",
        "INSERT INTO {t} VALUES ('key-0100 ', 1, 'a blank more')",
    )
    changed = one.run()
    assert changed.good, changed.errors
    (moved,) = one.moved(changed)
    assert KeyRange.parse(moved, "text").contains("key-0100 ")
    assert_copied(one, "sqlserver", "clickhouse")


def test_damage_is_found_by_key_and_mended(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, *odd_rows(), ranges="{count: 3}", figures="[n]")
    assert one.run().good
    servers = one.session.servers.endpoints
    servers["sqlserver"].execute(f"UPDATE dbo.{one.table} SET note = N'x' WHERE n = 7")
    servers["clickhouse"].execute(f"DELETE FROM warehouse.{one.table} WHERE id = '😀'")
    found = runner.check(one.session, one.table)
    failed = {(check.hop.number, check.range) for check in found.checks if check.failed}
    assert {number for number, _ in failed} == {1, 2}
    keys = {
        example.key
        for name in {name for _, name in failed if name}
        for differences in runner.differences(one.session, one.table, name).values()
        for example in differences.examples
    }
    assert {"key-0007", "😀"} <= keys
    mended = one.run()
    assert mended.good, mended.errors
    assert_copied(one, "sqlserver", "clickhouse")


@pytest.mark.parametrize("write", ["append", "upsert", "swap"])
def test_the_other_write_modes(ferry: Make, write: str) -> None:
    one = ferry(CHAIN, *TABLE, *odd_rows(), ranges="{rows: 200}", write=write)
    first = one.run()
    assert first.good, first.errors
    assert_copied(one, "sqlserver", "clickhouse")
    one.source("INSERT INTO {t} VALUES ('KEY-0001', 5, 'another key'), ('a   ', 6, 'too')")
    if write != "append":
        one.source("UPDATE {t} SET note = 'changed' WHERE id IN ('A', 'a ', '😀')")
    second = one.run()
    assert second.good, second.errors
    assert_copied(one, "sqlserver", "clickhouse")


def test_growth_stays_in_the_open_range_until_it_is_full(ferry: Make) -> None:
    one = ferry(TO_CLICKHOUSE, *TABLE, ranges="{rows: 100}", write="upsert")
    assert one.run().good
    grow = (
        "INSERT INTO {{t}} SELECT 'key-' || lpad(g::text, 4, '0'), g, 'new' "
        "FROM generate_series({}, {}) g"
    )
    one.source(grow.format(301, 320))
    assert one.moved(one.run()) == ["key-0201 .."]
    one.source(grow.format(321, 450))
    last = one.run()
    assert last.good, last.errors
    assert one.moved(last) == ["key-0201 .. key-0301", "key-0301 .. key-0401", "key-0401 .."]
    assert_copied(one, "clickhouse")


GROWTH = (
    "INSERT INTO {t} SELECT 'key-0250-' || lpad(g::text, 4, '0'), g, 'new' "
    "FROM generate_series(301, 450) g"
)
"""So that the rows of the open range go to both of the first ranges that replace it."""


@pytest.mark.parametrize("write", ["replace", "upsert", "swap"])
@pytest.mark.parametrize(
    "point", ["before_export", "inside_finalise:2", "before_strays:1", "after_commit:2"]
)
def test_readers_miss_no_row_of_an_open_range_that_is_cut(
    ferry: Make, tmp_path: Path, write: str, point: str
) -> None:
    if write == "swap" and point.startswith("before_strays"):
        pytest.skip("none is visible yet")
    one = ferry(TO_CLICKHOUSE, *TABLE, ranges="{rows: 100}", write=write)
    assert one.run().good
    before = set(rows_in(one, "clickhouse"))
    one.source(GROWTH)
    crash(Command(tmp_path), one.table, point, "--profile", "safe")
    reopen(one)
    table = f"warehouse.{one.table}"
    found = ask_clickhouse(one, f"SELECT id, count() FROM {table} GROUP BY id")
    assert before <= {key for key, _ in found}
    twice = {key for key, copies in found if copies > 1}
    assert twice < before and bool(twice) == point.startswith("before_strays")
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, "clickhouse")
    checked = runner.check(one.session, one.table)
    assert not [check for check in checked.checks if check.failed]


def test_growth_that_is_only_planned_changes_no_row(ferry: Make) -> None:
    """As the sensor does it, before it requests the run."""
    one = ferry(TO_CLICKHOUSE, *TABLE, ranges="{rows: 100}")
    assert one.run().good
    one.source(GROWTH)
    before = rows_in(one, "clickhouse")
    servers = one.session.servers_of(one.session.transfer(one.table))
    plan = plan_transfer(
        one.session.transfer(one.table), servers, one.session.instance, purpose="cut"
    )
    apply_growth(plan, servers, one.session.instance)
    assert plan.growth.retire and rows_in(one, "clickhouse") == before
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, "clickhouse")


def test_rows_that_an_open_range_got_alone_stay_until_it_is_cut(ferry: Make) -> None:
    """Also of keys whose open range is empty at first."""
    create = "CREATE TABLE {t} (id integer PRIMARY KEY, n integer NOT NULL, note text)"
    insert = "INSERT INTO {{t}} SELECT g, g, 'row' FROM generate_series({}, {}) g"
    one = ferry(TO_CLICKHOUSE, create, insert.format(1, 200), ranges="{rows: 100}")
    assert one.run().good
    one.source(insert.format(201, 350))
    last = list(one.session.instance.get_dynamic_partitions(f"{one.table}_ranges"))[-1]
    asset = asset_key(one.session.transfer(one.table).hops[0].to)
    assert one.launch(partition_key=last, asset_selection=[asset]).success
    before = rows_in(one, "clickhouse")
    assert len(before) == 350
    servers = one.session.servers_of(one.session.transfer(one.table))
    plan = plan_transfer(
        one.session.transfer(one.table), servers, one.session.instance, purpose="cut"
    )
    apply_growth(plan, servers, one.session.instance)
    assert plan.growth.retire and rows_in(one, "clickhouse") == before
    moved = one.run()
    assert moved.good, moved.errors
    assert_copied(one, "clickhouse")


def test_killed_in_the_middle(ferry: Make, tmp_path: Path) -> None:
    one = ferry(CHAIN, *TABLE, *odd_rows(), ranges="{rows: 120}")
    crash(Command(tmp_path), one.table, "inside_finalise:3", "--profile", "safe")
    reopen(one)
    view = one.run()
    assert view.good, view.errors
    assert_copied(one, "sqlserver", "clickhouse")
    assert not staging_tables(one, "sqlserver") and not staging_tables(one, "clickhouse")


def test_one_range_by_its_key(ferry: Make) -> None:
    one = ferry(TO_CLICKHOUSE, *TABLE, ranges="{rows: 100}")
    assert one.moved(one.run(ranges=["key-0150"])) == ["key-0101 .. key-0201"]
    assert one.moved(one.run(ranges=["..key-0101"])) == [".. key-0101"]
    assert len(rows_in(one, "clickhouse")) == 200


def test_null_keys_and_declared_bounds(ferry: Make) -> None:
    one = ferry(
        TO_SQLSERVER,
        "CREATE TABLE {t} (id text, n integer, note text)",
        *odd_rows(),
        "INSERT INTO {t} VALUES (NULL, 1, 'none'), (NULL, 2, 'none')",
        ranges='{bounds: ["!", A, "a", b, "~"]}',
    )
    view = one.run()
    assert view.good, view.errors
    by_range = {row.range: row.rows for row in view.ranges}
    keys = [key.encode() for key in ODD]
    assert by_range["a .. b"] == sum(b"a" <= key < b"b" for key in keys)
    assert by_range["./! .. A"] == sum(b"!" <= key < b"A" for key in keys)
    assert by_range["null"] == 2 and sum(by_range.values()) == len(ODD) + 2
    one.declare(TO_SQLSERVER, ranges='{bounds: ["a", "b "]}')
    assert "'b ' ends with a blank" in str(one.session.declared.invalid)


@pytest.mark.parametrize(
    ("type_", "to"),
    [
        ("nvarchar(200) NOT NULL PRIMARY KEY", "clickhouse"),
        ("nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY", "postgres"),
        ("varchar(200)", "clickhouse"),
    ],
)
def test_sqlserver_is_a_source_by_any_collation(ferry: Make, type_: str, to: str) -> None:
    one = ferry(TO_CLICKHOUSE, "CREATE TABLE {t} (id text, n integer, note text)")
    schema = {"clickhouse": "warehouse", "postgres": "public"}[to]
    one.declare(
        f"['{to}://{schema}.{{t}}_copy']",
        source=f"sqlserver://dbo.{one.table}",
        ranges="{rows: 8}",
    )
    servers = one.session.servers.endpoints
    keys = [key for key in ODD if key.rstrip() == key and key.lower() == key and key != "ß"]
    if type_ == "varchar(200)":
        keys = [key for key in keys if key.isascii() or key == "ä"]
    elif "BIN2" not in type_:
        keys = told_apart(servers["sqlserver"], keys)
    servers["sqlserver"].execute(
        f"CREATE TABLE dbo.{one.table} (id {type_}, n int, note nvarchar(20));"
    )
    values = ", ".join(
        f"({registry.system('sqlserver').dialect.literal(key)}, {n}, N'x')"
        for n, key in enumerate(keys)
    )
    servers["sqlserver"].execute(f"INSERT INTO dbo.{one.table} VALUES {values}")
    try:
        view = one.run()
        assert view.good, view.errors
        assert len({row.range for row in view.ranges}) >= 3
        found = servers[to].query(f"SELECT id, n FROM {schema}.{one.table}_copy ORDER BY n")
        assert [key for key, _ in found] == keys
        notes = one.plan().notes
        served = "BIN2" in type_
        assert any(f"sqlserver://dbo.{one.table}: no index" in note for note in notes) != served
    finally:
        servers["sqlserver"].execute(f"DROP TABLE dbo.{one.table}")
        servers[to].execute(f"DROP TABLE {schema}.{one.table}_copy")


def told_apart(server: Endpoint, keys: list[str]) -> list[str]:
    """The keys, without those that its own collation takes for others."""
    values = ", ".join(
        f"({registry.system('sqlserver').dialect.literal(key)}, {n})" for n, key in enumerate(keys)
    )
    rows = server.query(f"SELECT MIN(n) FROM (VALUES {values}) AS keys(id, n) GROUP BY id")
    return [keys[int(n)] for (n,) in sorted(rows)]


@pytest.mark.parametrize("write", ["replace", "append", "upsert", "swap"])
@pytest.mark.parametrize("type_", ["text", 'varchar(200) COLLATE "C"'])
def test_postgres_is_a_target_in_every_write_mode(ferry: Make, write: str, type_: str) -> None:
    one = ferry(
        "['postgres://public.{t}_copy']",
        TABLE[0].replace("varchar(200)", type_),
        TABLE[1],
        *odd_rows(),
        ranges="{rows: 150}",
        write=write,
    )
    try:
        first = one.run()
        assert first.good, first.errors
        one.source("INSERT INTO {t} VALUES ('A ', 1, 'new'), ('key-0007 ', 2, 'new')")
        if write != "append":
            one.source("UPDATE {t} SET note = 'changed' WHERE id IN ('a', '😀', 'key-0200')")
        second = one.run()
        assert second.good, second.errors
        both = [one.rows(f"SELECT * FROM {table} ORDER BY n, id") for table in ("{t}", "{t}_copy")]
        assert both[0] == both[1]
        assert not any("_copy: no index" in note for note in one.plan().notes)
    finally:
        one.source("DROP TABLE {t}_copy")


def test_clickhouse_is_a_source_and_postgres_a_target(ferry: Make) -> None:
    one = ferry(TO_CLICKHOUSE, *TABLE, *odd_rows(), ranges="{rows: 100}")
    assert one.run().good
    one.declare(
        "['postgres://public.{t}_back']",
        source=f"clickhouse://warehouse.{one.table}",
        ranges="{rows: 100}",
    )
    view = one.run()
    assert view.good, view.errors
    try:
        back = one.rows("SELECT id, n, note FROM {t}_back")
        assert {key: (n, note) for key, n, note in back} == rows_in(one, "postgres")
    finally:
        one.source("DROP TABLE {t}_back")


def test_the_plan_warns_where_no_index_serves_the_order(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 100}")
    (note,) = one.plan().notes
    assert f"postgres://public.{one.table}: no index serves the order of the key 'id'" in note
    statement = note.partition("it would take ")[2]
    assert "CREATE INDEX ON" in statement and 'COLLATE "C"' in statement
    one.source(statement.replace("{", "{{").replace("}", "}}"))
    assert one.plan().notes == []
    first = one.plan().ranges[1].range
    condition = predicate(
        one.session.servers.endpoints["postgres"].columns(
            TableRef("postgres", "public", one.table)
        )[0],
        KeyRange.parse(first, "text"),
        registry.system("postgres"),
    )
    with psycopg.connect(one.stack.postgres_url, options="-c enable_seqscan=off") as connection:
        query = f"EXPLAIN SELECT * FROM {one.table} WHERE {condition}"
        explained = connection.execute(query.encode()).fetchall()
    assert "Index Cond" in str(explained)

    one.source("ALTER TABLE {t} ALTER id TYPE text")
    (note,) = one.plan().notes
    assert "sqlserver://dbo" in note and "such as nvarchar(200)" in note
