"""ClickHouse as a source: every type into PostgreSQL, and a transfer as a whole."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import strategies as st

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.pipelines.command.one import runner
from tableferry.resources.contract.catalog import Described
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import StatementFailed
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.typed_servers import (
    REFUSED,
    Case,
    ClickHouseEnd,
    PostgresEnd,
    check_all,
)
from tests.integration.support.typed_values import float_bits, ints
from tests.servers import Servers

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]


@pytest.fixture(scope="module")
def source(stack):
    end = ClickHouseEnd(stack.clickhouse_url)
    yield end
    end.close()


@pytest.fixture(scope="module")
def target(stack):
    end = PostgresEnd(stack.postgres_url)
    yield end
    end.close()


def quoted(value):
    return f"'{value}'"


def case(type_, strategy, literal=str, expected=str, read_back="x::text", **more):
    return Case(
        f"Nullable({type_})", strategy, literal, expected, read_back, wires=("arrow",), **more
    )


def hexed(text):
    return f"unhex('{text.encode().hex()}')"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NASTY = ("", " ", "\t", "\r\n", "\\", "\\N", "NULL", "'", "\x01\x7f", "😀", "\ufeff", "trailing ")
LONG = Decimal("9" * 38 + "." + "9" * 38)


def moment(digits):
    return lambda value: f"toDateTime64('{value}', {digits}, 'UTC')"


def zoned(value):
    return f"{str(value).rstrip('0').rstrip('.') if '.' in str(value) else value}+00"


CASES = [
    case("Int8", ints(8), examples=(-128, 127)),
    case("UInt16", st.integers(0, 2**16 - 1), examples=(2**16 - 1,)),
    case("Int64", ints(64), examples=(-(2**63), 2**63 - 1)),
    case("UInt64", st.integers(0, 2**64 - 1), examples=(2**64 - 1,)),
    case("Bool", st.booleans(), expected=lambda v: str(v).lower()),
    case("Float64", st.floats(), quoted, float_bits("d"), "x", normal=float_bits("d"),
         examples=(-0.0, 0.1, 5e-324, float("inf"))),
    case("Float32", st.floats(width=32, allow_subnormal=False), quoted, float_bits("f"), "x",
         normal=float_bits("f"), examples=(0.10000000149011612,)),
    case("Decimal(9, 2)", st.decimals(-9999999, 9999999, places=2), quoted, lambda v: v, "x"),
    case("Decimal(76, 38)", st.just(LONG), quoted, lambda v: v, "x", 
         examples=(LONG.copy_negate(),)),
    case("String", TEXT, hexed, str, "x", examples=NASTY),
    case("String", st.nothing(), lambda v: f"unhex('{v}')", lambda v: REFUSED,
         examples=("61ff", "6100")),
    case("FixedString(3)", st.binary(min_size=3, max_size=3), lambda v: f"unhex('{v.hex()}')",
         lambda v: v.hex(), "encode(x, 'hex')"),
    case("Enum8('a b' = 1, 'ä' = -2)", st.sampled_from(["a b", "ä"]), quoted, str, "x"),
    case("UUID", st.uuids(), quoted, examples=(uuid.UUID(int=1), uuid.UUID(int=2**128 - 1))),
    case("Date", st.dates(dt.date(1970, 1, 1), dt.date(2149, 6, 6)), quoted),
    case("Date32", st.dates(dt.date(1900, 1, 1), dt.date(2299, 12, 31)), quoted),
    case("DateTime('Asia/Tokyo')", st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2105, 1, 1))
         .map(lambda v: v.replace(microsecond=0)), lambda v: f"toDateTime('{v}', 'UTC')", zoned),
    case("DateTime64(6, 'UTC')", st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2299, 12, 31)),
         moment(6), zoned, examples=(dt.datetime(1969, 12, 31, 23, 59, 59, 999999),)),
    case("DateTime64(3)", st.just(dt.datetime(2020, 1, 1, 0, 0, 0, 123000)), moment(3), zoned),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(source, target, case):
    check_all(source, target, case, max_examples=2)


@pytest.mark.parametrize(
    ("type_", "literal"),
    [
        ("Int64", "number"),
        ("UUID", "generateUUIDv4()"),
        ("DateTime64(6, 'Asia/Tokyo')", "toDateTime64(number, 6, 'UTC')"),
        ("Date", "toDate(number % 60000)"),
    ],
)
def test_keys_are_cut_evenly(source, type_, literal):
    name = f"{source.database}.{source.name}_source"
    source.query(f"DROP TABLE IF EXISTS {name}")
    source.query(
        f"CREATE TABLE {name} ENGINE = MergeTree ORDER BY tuple() AS "
        f"SELECT CAST({literal} AS {type_}) AS x FROM numbers(5000)"
    )
    (column,) = source.resource.columns(source.table)
    found = key_statistics(source.resource, source.table, column)
    assert found.rows == 5000
    assert len(found.quantiles) == 1002
    low, high = found.quantiles[400], found.quantiles[600]
    assert found.minimum < low < high < found.maximum


def test_what_the_catalog_says(source):
    source.fill("String", ["'a'", "'b'"])
    sending = source_of(system("clickhouse"))
    listed = sending.tables(source.resource, "lake")
    assert not {one.table.schema.lower() for one in listed} & {"system", "information_schema"}
    assert TableRef("clickhouse", source.database, source.table.name, "lake") in [
        one.table for one in listed if not one.view
    ]
    found = sending.described(source.resource, [source.table])[source.table]
    assert isinstance(found, Described)
    assert found.size.rows == 2
    assert found.size.bytes
    assert sending.leading(source.resource, source.table) == ["id"]


def test_a_table_arrives_is_skipped_follows_and_is_proven(
    ferry: Make, source: ClickHouseEnd, copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}_back']"
    one = ferry(hops)
    table = f"warehouse.{one.table}"
    source.query(
        f"CREATE TABLE {table} (id UInt32, name LowCardinality(String), at DateTime64(3, 'UTC'), "
        "tags Array(String)) ENGINE = MergeTree ORDER BY id"
    )
    source.query(
        f"INSERT INTO {table} SELECT number, 'n ' || number, "
        "toDateTime64('2024-01-01', 3, 'UTC') + number, ['a'] FROM numbers(100)"
    )
    settings = {"source": f"clickhouse://{table}", "ranges": "{rows: 25}"}
    one.declare(hops, **settings, columns="{tags: {type: text}}")
    first = one.run()
    assert first.good, first.errors
    shown = one.rows(f"SELECT count(*), max(name), max(at)::text, max(tags) FROM {copies}.{{t}}")
    assert shown == [(100, "n 99", "2024-01-01 00:01:39+00", '["a"]')]
    assert one.moved(one.run()) == []

    source.query(
        f"ALTER TABLE {table} UPDATE name = 'new' WHERE id = 60 SETTINGS mutations_sync = 2"
    )
    changed = one.run()
    assert changed.good and len(one.moved(changed)) == 1
    one.source(f"UPDATE {copies}.{{t}} SET name = 'damaged' WHERE id = 7")
    checked = runner.check(one.session, one.table)
    ranges = [each for each in checked.checks if each.range and not each.verdict.passed]
    assert [each.hop.number for each in ranges if each.failed] == [1, 2]
    assert "was changed since hop 1 proved it" in ranges[1].summary()
    for name in (table, f"{table}_back"):
        source.query(f"DROP TABLE {name}")


def test_other_targets_take_its_rows_too(
    ferry: Make, source: ClickHouseEnd, stack: Servers
) -> None:
    hops = "['clickhouse://warehouse.{t}_copy', 'sqlserver://dbo.{t}_copy']"
    one = ferry(hops)
    table = f"warehouse.{one.table}"
    source.query(
        f"CREATE TABLE {table} (id UInt32, name Nullable(String), at DateTime64(3, 'UTC'), "
        "price Decimal(18, 4), ref UUID, day Date) ENGINE = MergeTree ORDER BY id"
    )
    source.query(
        f"INSERT INTO {table} SELECT number, if(number = 3, NULL, 'ä ' || number), "
        "toDateTime64(number, 3, 'UTC'), number / 8, generateUUIDv4(), toDate(number) "
        "FROM numbers(50)"
    )
    one.declare(hops, source=f"clickhouse://{table}", ranges="{rows: 25}")
    view = one.run()
    assert view.good, view.errors
    select = "SELECT count(*), sum(price), max(name) FROM {}"
    (shown,) = looking.ask_sqlserver(stack.sqlserver_url, select.format(f"dbo.{one.table}_copy"))
    (copied,) = looking.ask_clickhouse(stack.clickhouse_url, select.format(f"{table}_copy"))
    assert shown == copied == (50, Decimal("153.125"), "ä 9")
    for name in (table, f"{table}_copy"):
        source.query(f"DROP TABLE {name}")
    SqlServerResource(url=stack.sqlserver_url).execute(f"DROP TABLE dbo.{one.table}_copy")


def test_null_that_a_type_has_of_its_own_stays_null(
    ferry: Make, source: ClickHouseEnd, stack: Servers, copies: str, tmp_path: Path
) -> None:
    """`toString` makes an empty text of it, which says nothing of the type's nullability."""
    one = ferry("['clickhouse://warehouse.{t}_copy']")
    table = f"warehouse.{one.table}"
    source.query(
        f"CREATE TABLE {table} (id UInt32, v Variant(Int64, String), d Dynamic, "
        "s SimpleAggregateFunction(anyLast, Nullable(Int64)), j JSON) "
        "ENGINE = MergeTree ORDER BY id SETTINGS allow_suspicious_types_in_order_by = 1"
    )
    source.query(
        f"INSERT INTO {table} VALUES (1, NULL, NULL, NULL, '{{\"a\": null}}'), "
        "(2, '', '', 0, '{\"a\": \"\"}'), (3, 5, 1.5, 5, '{}'), (4, 'x', [1], 7, '{}')"
    )
    expected = {(1, None, None, None), (2, "", "", "0"), (3, "5", "1.5", "5"), (4, "x", "[1]", "7")}
    select = "SELECT id, v, d, s FROM {}"
    folder = tmp_path / "out"
    targets: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
        f"postgres://{copies}.{{t}}": lambda: one.rows(select.format(f"{copies}.{one.table}")),
        "clickhouse://warehouse.{t}_copy": lambda: looking.ask_clickhouse(
            stack.clickhouse_url, select.format(f"{table}_copy")
        ),
        "sqlserver://dbo.{t}_copy": lambda: looking.ask_sqlserver(
            stack.sqlserver_url, select.format(f"dbo.{one.table}_copy")
        ),
        f"files://{folder}/*.parquet": lambda: duckdb.sql(
            select.format(f"'{folder}/*.parquet'")
        ).fetchall(),
    }
    columns = "{v: {type: %s}, d: {type: %s}, s: {type: %s}, j: {type: %s}}"
    for hop, rows in targets.items():
        text = "nvarchar(max)" if "sqlserver" in hop else system(hop.partition(":")[0]).types.text
        one.declare(
            f"['{hop}']",
            source=f"clickhouse://{table}",
            columns=columns % ((text,) * 4),
            reconcile="full_hash",
        )
        view = one.run()
        assert view.good, view.errors
        assert {(int(row[0]), *row[1:]) for row in rows()} == expected, hop
        compared = one.session.servers.endpoint(one.session.transfer(one.table).hops[0].to).columns(
            one.session.transfer(one.table).hops[0].to
        )
        assert all(column.nullable for column in compared if column.name in "vds")
    # what NULL has become would be seen
    one.source(f"UPDATE {copies}.{{t}} SET v = '' WHERE id = 1")
    one.declare(
        f"['postgres://{copies}.{{t}}']",
        source=f"clickhouse://{table}",
        columns=columns % (("text",) * 4),
        reconcile="full_hash",
    )
    assert not runner.check(one.session, one.table).good
    for name in (table, f"{table}_copy"):
        source.query(f"DROP TABLE {name}")
    SqlServerResource(url=stack.sqlserver_url).execute(f"DROP TABLE dbo.{one.table}_copy")


@pytest.mark.parametrize("type_", ["Geometry", "SimpleAggregateFunction(anyLast, Dynamic)"])
def test_null_of_a_type_that_only_leads_to_a_variant_stays_null(
    ferry: Make, source: ClickHouseEnd, copies: str, type_: str
) -> None:
    one = ferry("['clickhouse://warehouse.{t}_copy']")
    table = f"warehouse.{one.table}"
    try:
        source.query(f"CREATE TABLE {table} (id UInt32, v {type_}) ENGINE = MergeTree ORDER BY id")
    except StatementFailed:
        pytest.skip("this release does not have the type")
    source.query(f"INSERT INTO {table} SELECT 1, NULL")
    source.query(f"INSERT INTO {table} SELECT 2, (1, 2)::Point")
    for hop in (f"postgres://{copies}.{{t}}", "clickhouse://warehouse.{t}_copy"):
        text = system(hop.partition(":")[0]).types.text
        columns = f"{{v: {{type: {text}}}}}"
        settings = {"columns": columns, "reconcile": "full_hash"}
        one.declare(f"['{hop}']", source=f"clickhouse://{table}", **settings)
        view = one.run()
        assert view.good, view.errors
    copied = one.rows(f"SELECT id, v FROM {copies}.{{t}} ORDER BY id")
    assert copied == [(1, None), (2, "(1,2)")]
    assert source.query(f"SELECT id, v FROM {table}_copy ORDER BY id") == "1\t\\N\n2\t(1,2)\n"
    for name in (table, f"{table}_copy"):
        source.query(f"DROP TABLE {name}")
