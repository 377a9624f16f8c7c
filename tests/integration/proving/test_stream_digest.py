"""The client digests what leaves the table between two hops, instead of reading it twice."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tableferry.assets.running import workers
from tableferry.assets.running.stream_digest import StreamDigest
from tableferry.checks.sides import Comparison
from tableferry.pipelines.command.session import open_session
from tableferry.resources import registry
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.digest import measure as measuring
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry, by_range
from tests.integration.proving.test_audit import LAST, add_rows, hop, moved
from tests.integration.support import looking
from tests.integration.support.crashing import rows_of
from tests.servers import own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
NAME = own("streamed")
EVERYTHING = KeyRange("integer")
TEXTS = ["", "\\", "\\\\N", "\\N", "a\tb\nc\rd", "\\x5C", "\\t", " ", "ä€😀", "\b\f\v", '"', "~,:"]
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "big": ("bigint", [-(2**63) + 1, 0, 2**63 - 1]),
    "yes": ("boolean", [True, False]),
    "price": ("numeric(12,2)", [decimal.Decimal("-0.01"), decimal.Decimal("9999999999.99")]),
    "wide": ("numeric(38,10)", [decimal.Decimal("-9876543210987654321098765432.1098765432")]),
    "huge": ("numeric(60,20)", [decimal.Decimal("1E-20"), decimal.Decimal(10) ** 39]),
    "ratio": ("double precision", [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("nan"), 1e22]),
    "single": ("real", [0.1, -0.0, 16777216.0, 1e-40, float("inf")]),
    "note": ("text", TEXTS),
    "fixed": ("char(5)", ["x", "ä"]),
    "day": ("date", [dt.date(1900, 1, 1), dt.date(2299, 12, 31)]),
    "clock": ("time", [dt.time(23, 59, 59, 999999), dt.time(0)]),
    "clock3": ("time(3)", [dt.time(1, 2, 3, 4000)]),
    "moment": ("timestamp", [dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2000, 1, 1)]),
    "instant": ("timestamptz", [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)]),
    "ident": ("uuid", ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"]),
    "doc": ("jsonb", ['{"a": "\\\\ \\n"}']),
    "span": ("interval", ["-1 day 00:00:01.5"]),
}


def fill(pg_url: str, name: str, columns: dict[str, tuple[str, list[Any]]]) -> None:
    """A table in which every choice of every column stands in some row, and one row of NULLs."""
    declared = ", ".join(f"{column} {type_}" for column, (type_, _) in columns.items())
    marks = ", ".join("%s" for _ in columns)
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, {declared})")  # type: ignore[arg-type]
        for number in range(len(TEXTS)):
            values = [choices[number % len(choices)] for _, choices in columns.values()]
            connection.execute(f"INSERT INTO {name} VALUES ({number}, {marks})", values)  # type: ignore[arg-type]
        connection.execute(f"INSERT INTO {name} (id) VALUES (1000)")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plan(pg_url: str, ch_url: str) -> Iterator[CopyPlan]:
    """A table whose columns travel on both wires but for the floats, and its target."""
    postgres, clickhouse = PostgresResource(url=pg_url), ClickHouseResource(url=ch_url)
    fill(pg_url, NAME, COLUMNS)
    source = TableRef("postgres", "public", NAME)
    target = TableRef("clickhouse", "warehouse", NAME)
    plan = plan_copy(source, postgres.columns(source), target, key="id")
    assert [one.source.name for one in plan.columns if not one.text_sql] == ["ratio", "single"]
    ClickHouseTarget(clickhouse).prepare(plan, TargetOptions())
    yield plan
    clickhouse.execute(f"DROP TABLE {NAME}")
    postgres.execute(f"DROP TABLE public.{NAME}")


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_what_streams_has_the_digest_that_the_source_computes(
    plan: CopyPlan, pg_url: str, ch_url: str, wire: WireFormat
) -> None:
    postgres, clickhouse = PostgresResource(url=pg_url), ClickHouseResource(url=ch_url)
    if wire == "text":
        plan = replace(plan, columns=tuple(one for one in plan.columns if one.text_sql))
    digest = Comparison(plan, postgres, clickhouse, ()).digests.row["source"]
    stream_digest = StreamDigest(plan, digest, wire)
    sql = plan.select(EVERYTHING, wire)

    def arrow() -> Any:
        return postgres.read_arrow(sql, batch_rows=5)

    def text() -> Any:
        return postgres.read_text(sql)

    passed = 0
    if wire == "text":
        with stream_digest.watching(text)() as chunks:
            passed = sum(chunk.count(b"\n") for chunk in chunks)
    else:
        with arrow() as reader:
            batches = (conform(batch, plan, {}) for batch in reader)
            passed = sum(batch.num_rows for batch in stream_digest.watched(batches))
    grouped = Grouped.by_range([EVERYTHING], plan.key.source, registry.system("postgres"))
    asked: dict[int, Figures] = measure(postgres, plan.source, "source", grouped, digest=digest)
    assert stream_digest.known_figures().figures == asked[0]
    assert passed == asked[0]["rows"] == len(TEXTS) + 1


def test_the_second_hop_digests_what_it_exports_instead_of_reading_it_twice(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the client computes the digests of the server in the middle, and the hop before has
    not recorded the same."""
    one = moved(ferry, f"[{hop('sqlserver')}, {hop('clickhouse')}]", "replace")
    add_rows(one)
    url = looking.with_options(os.environ["TABLEFERRY_SQLSERVER_URL"], digest_by="client")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", url)
    one.session = open_session()
    read: list[TableRef] = []
    by_client = measuring._by_client

    def noted(endpoint: Any, table: TableRef, *more: Any) -> dict[int, Figures]:
        read.append(table)
        return by_client(endpoint, table, *more)

    monkeypatch.setattr(measuring, "_by_client", noted)
    assert one.run(hop=1).good
    assert len(read) == 1, "the staging table of the range that grew"
    second = one.run(hop=2)
    assert second.good, second.errors
    assert one.moved(second) == [LAST]
    assert len(read) == 1
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")

    one.source("UPDATE {t} SET name = 'again' WHERE id > 1000")
    assert one.run(hop=1).good
    with pytest.MonkeyPatch.context() as patch:
        wrong = {"rows": 40, "digest": "0"}
        patch.setattr(workers, "proven_figures", lambda recorded: None)
        known = StreamDigest.known_figures
        patch.setattr(StreamDigest, "known_figures", lambda its: replace(known(its), figures=wrong))
        failed = one.run(hop=2)
    assert "checksum FAILED" in str(by_range(failed, 2)[LAST].error), "held against what streamed"
