"""The row digest is the same number on every server and on the client, whatever the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from checks.drilldown import drill_down
from checks.reconcile import reconcile
from checks.verdict import LEVELS
from resources import probe
from resources.clickhouse.resource import ClickHouseResource
from resources.clickhouse.target import ClickHouseTarget
from resources.dialects import qualified
from resources.digest.client import digests
from resources.digest.definition import ALGORITHMS
from resources.digest.expressions import RowDigest
from resources.digest.fields import fields, observed
from resources.digest.measure import Grouped, measure
from resources.digest.probe import DigestRefused, dialect, shared
from resources.endpoint import Endpoint
from resources.errors import StatementFailed
from resources.keys.range import KeyRange
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.sqlserver.target import SqlServerTarget
from resources.tables import TableRef
from resources.target import Target, TargetOptions
from resources.types.conform import conform, schema
from resources.types.planner import plan_copy
from tests.integration.test_reconcile_no_false_alarm import (
    FOR_SQLSERVER,
    NO_KEY,
    RANGES,
    Hop,
    Journey,
    tables,
)


@pytest.fixture(scope="module")
def journey(pg_url: str, mssql_url: str, ch_url: str) -> Iterator[Journey]:
    journey, clickhouse = Journey(pg_url), ClickHouseResource(url=ch_url)
    sqlserver = SqlServerResource(url=mssql_url)
    journey.add(sqlserver, "dbo", SqlServerTarget(sqlserver))
    journey.add(clickhouse, "warehouse", ClickHouseTarget(clickhouse))
    yield journey
    journey.close()


def per_column(hop: Hop, endpoint: Endpoint, side: Any, algorithm: Any) -> dict[str, list[int]]:
    """Each column's digests, as if it were the only one, sorted; all in one query."""
    plan = observed(hop.plan, hop.target)
    table = plan.source if side == "source" else plan.target
    own = dialect(endpoint, algorithm)
    columns = fields(plan)
    selected = ", ".join(own.digest([field], side) for field in columns)
    rows = endpoint.query(f"SELECT {selected} FROM {qualified(table)}")
    return {
        field.name: sorted(int(row[number]) for row in rows) for number, field in enumerate(columns)
    }


def by_client(hop: Hop, algorithm: Any) -> dict[str, list[int]]:
    """The same of the rows as they leave the source."""
    found: dict[str, list[int]] = {field.name: [] for field in fields(hop.plan)}
    for key_range in (KeyRange("integer"), KeyRange("integer", null=True)):
        with hop.source.read_arrow(hop.plan.select(key_range, "arrow")) as reader:
            for batch in reader:
                plain = conform(batch, hop.plan, {})
                for field, array in zip(fields(hop.plan), plain.columns, strict=True):
                    found[field.name] += digests([field], [array], algorithm).to_list()
    return {name: sorted(values) for name, values in found.items()}


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(rows=tables(FOR_SQLSERVER))
def test_every_kind_on_every_server_and_on_the_client(
    journey: Journey, rows: list[tuple[Any, ...]]
) -> None:
    journey.transfer(rows)
    for hop in journey.hops:
        algorithm = ALGORITHMS[len(rows) % len(ALGORITHMS)]
        source = per_column(hop, hop.source, "source", algorithm)
        target = per_column(hop, hop.target, "target", algorithm)
        client = by_client(hop, algorithm)
        for name in source:
            assert source[name] == target[name], (hop.plan.target.system, name)
            assert source[name] == client[name], (hop.plan.target.system, name, "client")
    first, second = journey.hops
    plan = observed(first.plan, first.target)
    fields_of = {"target": fields(plan), "source": fields(observed(second.plan, second.target))}
    for side, columns in fields_of.items():
        key = columns[0].column(side)  # type: ignore[arg-type]
        grouped = Grouped.by_range([*RANGES, NO_KEY], key, "sqlserver")
        digest = RowDigest(dialect(first.target), columns, side)  # type: ignore[arg-type]
        of_server, of_client = (
            measure(server, plan.target, side, grouped, digest=digest)  # type: ignore[arg-type]
            for server in (first.target, client_of(first.target))
        )
        assert of_server == of_client, side


def client_of(server: Endpoint) -> SqlServerResource:
    """The same server, whose digests the client computes."""
    assert isinstance(server, SqlServerResource)
    return SqlServerResource(url=server.url, digest_by="client")


class WithoutMd5(PostgresResource):
    """A server in FIPS mode: its MD5 fails."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        if "md5(" in sql:
            raise StatementFailed("postgres", "could not compute MD5 hash: unsupported")
        return super().query(sql, snapshot=snapshot)


def test_a_server_without_md5_gets_sha256_on_both_sides(
    journey: Journey, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_known", {})
    hop = journey.hops[0]
    fips = WithoutMd5(url=pg_url)
    assert [one.algorithm for one in shared(fips, hop.target)] == ["sha256", "sha256"]
    assert dialect(fips).algorithm == "sha256"
    monkeypatch.setattr(probe, "_known", {})
    assert [one.algorithm for one in shared(hop.source, hop.target)] == ["md5", "md5"]


class Wrong(ClickHouseResource):
    """A server that reads a float otherwise."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        return super().query(sql.replace("toFloat64('0.1')", "toFloat64('0.2')"), snapshot=snapshot)


def test_a_server_that_computes_something_else_is_not_believed(
    ch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_known", {})
    with pytest.raises(DigestRefused, match="Float64 4591870180066957722: should be"):
        dialect(Wrong(url=ch_url))
    monkeypatch.setattr(probe, "_known", {})


TABLE = "digest_wide"


@pytest.mark.parametrize("count", [400, 1000])
def test_wide_tables_agree_at_every_level(
    pg_url: str, mssql_url: str, ch_url: str, count: int
) -> None:
    postgres = PostgresResource(url=pg_url)
    kinds = ("integer", "text", "timestamp", "numeric(12,4)", "double precision")
    names = [f"c{number}" for number in range(count - 1)]
    declared = ", ".join(
        f"{name} {kinds[number % len(kinds)]}" for number, name in enumerate(names)
    )
    postgres.execute(
        f"DROP TABLE IF EXISTS {TABLE}; CREATE TABLE {TABLE} (id int PRIMARY KEY, {declared});"
        f"INSERT INTO {TABLE} (id, c0, c1, c{count - 2}) SELECT g, g, 'x' || g, NULL"
        " FROM generate_series(1, 20) g"
    )
    source = TableRef("postgres", "public", TABLE)
    everything = KeyRange("integer")
    clickhouse, sqlserver = ClickHouseResource(url=ch_url), SqlServerResource(url=mssql_url)
    # the fixed columns of a thousand are within the 8060 bytes of a SQL Server row
    targets: list[tuple[Endpoint, Target, str]] = [
        (clickhouse, ClickHouseTarget(clickhouse), "warehouse"),
        (sqlserver, SqlServerTarget(sqlserver), "dbo"),
    ]
    for target, loader, database in targets:
        table = TableRef(target.system, database, TABLE)
        plan = plan_copy(source, postgres.columns(source), table, key="id")
        loader.prepare(plan, TargetOptions())
        try:
            with (
                loader.attempt(
                    plan, everything, TargetOptions(), owner="test", data_version="1"
                ) as attempt,
                postgres.read_arrow(plan.select(everything, "arrow")) as reader,
            ):
                attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
                attempt.finalise()
            for level in LEVELS:
                verdict = reconcile(plan, postgres, target, everything, level)
                assert verdict.passed, (target.system, level, verdict.disagreeing)
            postgres.execute(f"UPDATE {TABLE} SET c{count - 2} = NULL, c1 = 'y' WHERE id = 7")
            assert not reconcile(plan, postgres, target, everything, "checksum").passed
            found = drill_down(plan, postgres, target, everything)
            assert (found.different, list(found.by_column)) == (1, ["c1"])
        finally:
            postgres.execute(f"UPDATE {TABLE} SET c1 = 'x7' WHERE id = 7")
            target.execute(f"DROP TABLE {qualified(table)}")
    postgres.execute(f"DROP TABLE {TABLE}")
