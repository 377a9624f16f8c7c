"""How servers plan the queries that read whole tables: no sort, and an index where one serves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.digest.definition import RECORD
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.measure import Grouped, measuring
from tableferry.resources.digest.probe import dialect
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef

ROWS = 300_000
RANGES = [KeyRange("integer", low, low + ROWS // 40) for low in range(1, ROWS, ROWS // 40)]


@pytest.fixture(scope="module")
def postgres(pg_url: str) -> Iterator[PostgresResource]:
    resource = PostgresResource(url=pg_url)
    resource.execute(
        "DROP TABLE IF EXISTS public.planned; "
        "CREATE TABLE public.planned (id int PRIMARY KEY, note text, "
        "amount numeric(12,2), at timestamp);"
        f"INSERT INTO public.planned SELECT g, repeat(md5(g::text), 3), g * 1.5, '2024-01-01' "
        f"FROM generate_series(1, {ROWS}) g; ANALYZE public.planned"
    )
    yield resource
    resource.execute("DROP TABLE public.planned")


@pytest.fixture(scope="module")
def plan(postgres: PostgresResource) -> CopyPlan:
    source = TableRef("postgres", "public", "planned")
    target = TableRef("clickhouse", "warehouse", "planned")
    return plan_copy(source, postgres.columns(source), target, key="id")


def explained(
    endpoint: Endpoint,
    plan: CopyPlan,
    side: Side,
    ranges: list[KeyRange],
    figures: tuple[Field, ...] = (),
) -> str:
    table, key = (
        (plan.source, plan.key.source) if side == "source" else (plan.target, plan.key.target)
    )
    digest = dialect(endpoint).digest(fields(plan), side)
    grouped = Grouped.by_range(ranges, key, table.system)
    sql = measuring(table, side, grouped, digest, figures)
    return "\n".join(str(row[0]) for row in endpoint.query(f"EXPLAIN {sql}"))


def test_postgres_sorts_no_table(postgres: PostgresResource, plan: CopyPlan) -> None:
    amount = tuple(field for field in fields(plan) if field.name == "amount")
    for figures in ((), amount):
        found = explained(postgres, plan, "source", RANGES, figures)
        assert "Sort" not in found and "HashAggregate" in found, found
        assert "Seq Scan on planned" in found, found


def test_postgres_reads_one_range_by_the_index(postgres: PostgresResource, plan: CopyPlan) -> None:
    found = explained(postgres, plan, "source", RANGES[5:6])
    assert "Sort" not in found and "planned_pkey" in found, found


def test_postgres_shares_the_digests_of_a_table_among_its_workers(
    postgres: PostgresResource, plan: CopyPlan
) -> None:
    if postgres.query("SHOW max_parallel_workers_per_gather") == [("0",)]:
        pytest.skip("the server has none")
    cheap = DigestSql(system("postgres"), RECORD, "plain").digest(fields(plan), "source")
    quarters = [KeyRange("integer", low, low + ROWS // 4) for low in range(1, ROWS, ROWS // 4)]
    grouped = Grouped.by_range(quarters, plan.key.source, system("postgres"))
    sql = measuring(plan.source, "source", grouped, cheap, ())
    found = "\n".join(str(row[0]) for row in postgres.query(f"EXPLAIN {sql}"))
    assert "Parallel Seq Scan on planned" in found and "Sort" not in found, found


def test_clickhouse_sorts_no_table(plan: CopyPlan, ch_url: str) -> None:
    clickhouse = ClickHouseResource(url=ch_url)
    clickhouse.execute("DROP TABLE IF EXISTS planned")
    clickhouse.execute(
        "CREATE TABLE planned (id Int32, note String, amount Decimal(12, 2), "
        "at DateTime64(6, 'UTC')) ENGINE = MergeTree ORDER BY id"
    )
    clickhouse.execute(
        "INSERT INTO planned SELECT number + 1, repeat(hex(MD5(toString(number))), 3), "
        f"number * 1.5, '2024-01-01 00:00:00' FROM numbers({ROWS})"
    )
    try:
        found = explained(clickhouse, plan, "target", RANGES)
        assert "Sorting" not in found and "Aggregating" in found, found
    finally:
        clickhouse.execute("DROP TABLE planned")
