"""Statistics of real tables, and that ranges planned from them hold every row exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tableferry.assets.planning.ranges.boundaries import KeyStatistics, key_statistics
from tableferry.assets.planning.ranges.cutting import extend_ranges, plan_ranges, top_bound
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.table_sql import predicate
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres import source as postgres_source
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.integration.support import looking
from tests.servers import own

SCHEMA = own("key_statistics")
T = f"{SCHEMA}.t"
TABLE = TableRef("postgres", SCHEMA, "t")


@pytest.fixture(scope="module")
def source(pg_url: str) -> Iterator[PostgresResource]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
        yield PostgresResource(url=pg_url)
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def make(source: PostgresResource, declaration: str, rows: str = "") -> Column:
    """A new table of which no statistics were ever gathered; returns its first column."""
    insert = f"INSERT INTO {T} {rows}" if rows else ""
    looking.execute(
        source, f"DROP TABLE IF EXISTS {T} CASCADE; CREATE TABLE {T} ({declaration}); {insert}"
    )
    return source.columns(TABLE)[0]


def depths(source: PostgresResource, key: Column, ranges: list[KeyRange]) -> list[int]:
    """Rows per range, by the predicate that exports use."""
    counts = ", ".join(
        f"count(*) FILTER (WHERE {predicate(key, key_range, system('postgres'))})"
        for key_range in ranges
    )
    return list(source.query(f"SELECT {counts} FROM {T}")[0])


def planned(
    source: PostgresResource, key: Column, spec: dict[str, Any]
) -> tuple[KeyStatistics, list[KeyRange], list[int]]:
    stats = key_statistics(source, TABLE, key)
    ranges = plan_ranges(stats, spec, *key_kind(key, system("postgres")))
    found = depths(source, key, ranges)
    assert sum(found) == source.query(f"SELECT count(*) FROM {T}")[0][0]
    return stats, ranges, found


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
def test_two_clusters_far_apart_make_even_ranges(source: PostgresResource, index: bool) -> None:
    key = make(
        source,
        "id bigint " + ("PRIMARY KEY" if index else "NOT NULL"),
        "SELECT g FROM generate_series(1, 1000) g UNION ALL"
        " SELECT 1000000000000000 + g FROM generate_series(0, 999) g",
    )
    stats, _, found = planned(source, key, {"rows": 250})
    assert (stats.rows, stats.minimum, stats.maximum) == (2000, 1, 10**15 + 999)
    assert found == [250] * 8 + [0]


def test_an_empty_table(source: PostgresResource) -> None:
    key = make(source, "id int NOT NULL")
    stats, ranges, _ = planned(source, key, {"count": 4})
    assert stats == KeyStatistics(0)
    assert [key_range.name for key_range in ranges] == [".."]


def test_null_keys_are_a_range_of_their_own(source: PostgresResource) -> None:
    key = make(
        source, "id int", "SELECT CASE WHEN g % 4 > 0 THEN g END FROM generate_series(1, 400) g"
    )
    stats, _, found = planned(source, key, {"count": 3})
    assert (stats.rows, stats.nullable) == (300, True)
    assert found == [100, 100, 100, 0, 100]


def test_only_null_keys(source: PostgresResource) -> None:
    key = make(source, "id int", "SELECT NULL FROM generate_series(1, 5)")
    assert planned(source, key, {"count": 3})[2] == [0, 5]


def test_the_first_column_of_a_composite_key(source: PostgresResource) -> None:
    key = make(
        source,
        "tenant int, n int, PRIMARY KEY (tenant, n)",
        "SELECT CASE WHEN g <= 900 THEN 1 ELSE g % 3 + 2 END, g FROM generate_series(1, 1200) g",
    )
    _, ranges, found = planned(source, key, {"rows": 100})
    assert found == [900, 100, 100, 100, 0]
    assert [key_range.upper for key_range in ranges] == [2, 3, 4, 5, None]


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_infinite_times_and_years_bc_are_in_the_open_ranges(
    source: PostgresResource, type_: str
) -> None:
    key = make(
        source,
        f"at {type_} NOT NULL",
        f"SELECT '2020-01-01'::{type_} + g * interval '1 day' FROM generate_series(1, 300) g"
        f" UNION ALL SELECT v::{type_} FROM (VALUES ('infinity'), ('-infinity'),"
        " ('0044-03-15 BC'), ('12024-01-01')) extreme(v)",
    )
    stats, _, found = planned(source, key, {"count": 3})
    assert stats.rows == 300
    assert found == [102, 100, 100, 2]


def test_uuids_below_postgresql_18_have_no_min(source: PostgresResource) -> None:
    key = make(source, "id uuid NOT NULL", "SELECT gen_random_uuid() FROM generate_series(1, 4000)")
    _, _, found = planned(source, key, {"count": 4})
    assert len(found) == 5
    assert all(950 <= depth <= 1050 for depth in found[:4])


def test_views_and_partitioned_tables(source: PostgresResource) -> None:
    make(source, "id int NOT NULL", "SELECT generate_series(1, 100)")
    looking.execute(
        source,
        f"""CREATE VIEW {SCHEMA}.v AS SELECT id FROM {T};
        CREATE TABLE {SCHEMA}.p (id int NOT NULL) PARTITION BY RANGE (id);
        CREATE TABLE {SCHEMA}.p1 PARTITION OF {SCHEMA}.p FOR VALUES FROM (0) TO (50);
        CREATE TABLE {SCHEMA}.p2 PARTITION OF {SCHEMA}.p DEFAULT;
        INSERT INTO {SCHEMA}.p SELECT id FROM {T}""",
    )
    for name in ("v", "p"):
        table = TableRef("postgres", SCHEMA, name)
        stats = key_statistics(source, table, source.columns(table)[0])
        assert (stats.rows, stats.minimum, stats.maximum) == (100, 1, 100)


def test_names_are_quoted(source: PostgresResource) -> None:
    looking.execute(source, f"""CREATE TABLE {SCHEMA}."T ""x""'s" ("the ""Key"" %s" int)""")
    table = TableRef("postgres", SCHEMA, 'T "x"\'s')
    assert key_statistics(source, table, source.columns(table)[0]).rows == 0


def test_a_large_table_is_sampled_and_its_ends_are_exact(
    source: PostgresResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make(
        source,
        "id bigint NOT NULL, t text",
        "SELECT g * g::bigint, repeat('x', 50) FROM generate_series(1, 200000) g",
    )
    monkeypatch.setattr(postgres_source, "EXACT_BYTES", 1 << 20)
    monkeypatch.setattr(postgres_source, "EXACT_ROWS", 10_000)
    monkeypatch.setattr(postgres_source, "SAMPLE_BYTES", 4 << 20)
    stats, _, found = planned(source, key, {"count": 5})
    assert stats.rows != 200_000, "counted, not sampled"
    assert 150_000 < stats.rows < 250_000
    assert (stats.minimum, stats.maximum) == (1, 200_000**2)
    assert found[-1] == 0
    assert all(30_000 < depth < 50_000 for depth in found[:-1])
    tail = key_statistics(source, TABLE, key, above=199_001**2)
    assert tail.rows == 1000, "few rows are counted, however large the table"


def test_growth_is_planned_from_the_keys_above_and_keeps_every_row(
    source: PostgresResource,
) -> None:
    key = make(source, "id int PRIMARY KEY", "SELECT generate_series(1, 1000)")
    ranges = planned(source, key, {"rows": 250})[1]
    for sql, added in (
        (f"INSERT INTO {T} SELECT generate_series(1001, 1010)", 2),
        (f"INSERT INTO {T} SELECT generate_series(1011, 1250)", 0),
        (f"INSERT INTO {T} SELECT generate_series(-50, 0)", 0),
        (f"DELETE FROM {T} WHERE id < 500", 0),
        (f"INSERT INTO {T} SELECT generate_series(5001, 6000)", 5),
    ):
        looking.execute(source, sql)
        stats = key_statistics(source, TABLE, key, above=top_bound(ranges))
        grown = extend_ranges(ranges, stats, {"rows": 250}, "integer", 10)
        assert len(grown.add) == added, sql
        ranges = [*grown.keep, *grown.add]
        found = depths(source, key, ranges)
        assert sum(found) == source.query(f"SELECT count(*) FROM {T}")[0][0]
        assert max(found) <= 301
