"""The row digest is the same number on every server and on the client, whatever the values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.conform import conform
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.digest.client import digests
from tableferry.resources.digest.definition import ALGORITHMS
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.digest.fields import declared, fields, observed
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.digest.probe import DigestRefused, dialect, shared
from tableferry.resources.errors import StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.digest import VARIANTS
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.types.type_map import Column
from tests.integration.proving.test_reconcile_no_false_alarm import (
    FOR_SQLSERVER,
    NO_KEY,
    RANGES,
    Journey,
    journey,
    tables,
)
from tests.integration.support.pairs import Hop
from tests.servers import Servers


@pytest.fixture(scope="module")
def by_sqlserver(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    pairs = [("postgres", "sqlserver"), ("sqlserver", "clickhouse")]
    yield from journey(stack, tmp_path_factory.mktemp("files"), FOR_SQLSERVER, pairs)


def per_column(hop: Hop, endpoint: Endpoint, side: Any, algorithm: Any) -> dict[str, list[int]]:
    """Each column's digests, as if it were the only one, sorted; all in one query."""
    plan = observed(hop.plan, hop.target.endpoint)
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
        with hop.source.endpoint.read_arrow(hop.plan.select(key_range, "arrow")) as reader:
            for batch in reader:
                plain = conform(batch, hop.plan, {})
                for field, array in zip(fields(hop.plan), plain.columns, strict=True):
                    found[field.name] += digests([field], [array], algorithm).to_list()
    return {name: sorted(values) for name, values in found.items()}


@pytest.mark.invariant("I10")
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(rows=tables(FOR_SQLSERVER))
def test_every_kind_on_every_server_and_on_the_client(
    by_sqlserver: Journey, rows: list[tuple[Any, ...]]
) -> None:
    by_sqlserver.transfer(rows)
    for hop in by_sqlserver.hops:
        algorithm = ALGORITHMS[len(rows) % len(ALGORITHMS)]
        source = per_column(hop, hop.source.endpoint, "source", algorithm)
        target = per_column(hop, hop.target.endpoint, "target", algorithm)
        client = by_client(hop, algorithm)
        for name in source:
            assert source[name] == target[name], (hop.plan.target.system, name)
            assert source[name] == client[name], (hop.plan.target.system, name, "client")
    first, second = by_sqlserver.hops
    plan = observed(first.plan, first.target.endpoint)
    fields_of = {
        "target": fields(plan),
        "source": fields(observed(second.plan, second.target.endpoint)),
    }
    for side, columns in fields_of.items():
        key = columns[0].column(side)  # type: ignore[arg-type]
        grouped = Grouped.by_range([*RANGES, NO_KEY], key, system("sqlserver"))
        digest = RowDigest(dialect(first.target.endpoint), columns, side)  # type: ignore[arg-type]
        of_server, of_client = (
            measure(server, plan.target, side, grouped, digest=digest)  # type: ignore[arg-type]
            for server in (first.target.endpoint, client_of(first.target.endpoint))
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
    by_sqlserver: Journey, pg_url: str, nothing_known: Callable[[], None]
) -> None:
    hop = by_sqlserver.hops[0]
    source, target = hop.source.endpoint, hop.target.endpoint
    fips = WithoutMd5(url=pg_url)
    assert [one.algorithm for one in shared(fips, target)] == ["sha256", "sha256"]
    assert dialect(fips).algorithm == "sha256"
    nothing_known()
    assert [one.algorithm for one in shared(source, target)] == ["md5", "md5"]


class Wrong(ClickHouseResource):
    """A server that reads a float otherwise."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        return super().query(sql.replace("toFloat64('0.1')", "toFloat64('0.2')"), snapshot=snapshot)


@pytest.mark.usefixtures("nothing_known")
def test_a_server_that_computes_something_else_is_not_believed(ch_url: str) -> None:
    with pytest.raises(DigestRefused, match="Float64 4591870180066957722: should be"):
        dialect(Wrong(url=ch_url))


MOMENTS = (
    "0001-01-01 00:00:00", "1898-12-31 23:59:59.999999", "1899-01-01 00:00:00",
    "1899-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
    "1970-01-01 00:00:00.000001", "2001-02-03 04:05:06.700000", "2040-12-31 23:59:59.999997",
    "2040-12-31 23:59:59.999999", "2041-01-01 00:00:00", "9999-12-31 23:59:59.999999",
)  # fmt: skip


EXTREMES = {
    "timestamp without time zone": (
        "-infinity", "4713-01-01 BC", "1999-12-31 23:59:59.999999", "2000-01-01",
        "294246-12-31 23:59:59.999999", "294247-01-01", "294276-12-31 23:59:59.999999", "infinity",
    ),
    "double precision": (
        "-Infinity", "-1.7976931348623157e308", "-5e-324", "-0", "0", "1e-310", "0.1", "NaN",
    ),
    "real": ("-Infinity", "-1e-45", "-0", "0.1", "3.4028235e38", "NaN"),
    "bytea": ("", "\\x00", "\\xff00ff"),
    "text": ("", "~", "ä€😀", "\\x41", "a\\"),
}  # fmt: skip


def require_variant(pg_url: str, variant: str) -> None:
    """Skip a test of what the server has not."""
    ((number,),) = PostgresResource(url=pg_url).query("SHOW server_version_num")
    if variant == "cast" and int(number) < 180_000:
        pytest.skip("PostgreSQL casts bytea to bigint since 18")


def test_a_server_that_casts_bytes_is_asked_to(pg_url: str) -> None:
    require_variant(pg_url, "cast")
    assert dialect(PostgresResource(url=pg_url)).variant == "cast"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_postgres_has_one_digest_however_it_is_written(pg_url: str, algorithm: Any) -> None:
    require_variant(pg_url, "cast")
    server = PostgresResource(url=pg_url)
    for type_, values in EXTREMES.items():
        column, kind = Column("x", type_), declared(system("postgres").types, type_).kind
        field = Field("x", kind, column, column, scale=6)  # type: ignore[arg-type]
        rows = ", ".join(
            f"({system('postgres').dialect.literal(value)}::{type_})" for value in values
        )
        written = [
            expression
            for variant in VARIANTS
            for one in [DigestSql(system("postgres"), algorithm, variant)]
            for expression in (one.framed(field, "source", "x"), one.digest([field], "source"))
        ]
        found = server.query(f"SELECT {', '.join(written)} FROM (VALUES {rows}) v(x)")
        assert len({row[1] for row in found}) == len(values), type_
        for form, number, *others in found:
            assert others == [form, number] * (len(VARIANTS) - 1), type_


@pytest.mark.parametrize("type_", ["timestamp without time zone", "timestamp with time zone"])
@pytest.mark.parametrize("scale", [6, 7])
@pytest.mark.parametrize("variant", VARIANTS)
def test_postgres_tells_every_microsecond(
    pg_url: str, type_: str, scale: int, variant: str
) -> None:
    require_variant(pg_url, variant)
    column = Column("x", type_)
    form = DigestSql(system("postgres"), "md5", variant).framed(
        Field("x", "timestamp", column, column, scale=scale), "source", "x"
    )
    known = ", ".join(f"('{moment}+00'::{type_})" for moment in MOMENTS)
    near = " UNION ALL ".join(
        f"SELECT '{moment}+00'::{type_} + n * interval '1 us' FROM generate_series(0, 2000) n"
        for moment in ("1899-01-01", "1969-12-31 23:59:59.999", "2040-12-31 23:59:59.998")
    )
    rows = PostgresResource(url=pg_url).query(
        f"SELECT to_char(x, 'YYYY-MM-DD HH24:MI:SS.US'), {form} "
        f"FROM (SELECT * FROM (VALUES {known}) v(x) UNION ALL {near}) q"
    )
    assert len(rows) == len(MOMENTS) + 3 * 2001
    unit = 10 if scale > 6 else 1
    for moment, written in rows:
        since = dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1)
        assert written == str(since // dt.timedelta(microseconds=1) * unit), moment
