"""The client computes the digests that SQL Server would, where it is told to or is cheaper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tableferry.checks.reconcile import reconcile
from tableferry.checks.sides import Comparison
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import own_field
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.digest.probe import DigestRefused, dialect
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import registered, system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tests.integration.support import looking
from tests.servers import own

pytestmark = pytest.mark.integration

NAME = own("placed")
TABLE = TableRef("sqlserver", "dbo", NAME)
RANGES = [KeyRange("integer", 0, 10), KeyRange("integer", 10, 20), KeyRange("integer", null=True)]
COLUMNS = {
    "id": ("int", "n"),
    "big": ("bigint", "-9223372036854775807 + n"),
    "tiny": ("tinyint", "255 - n"),
    "yes": ("bit", "n % 2"),
    "price": ("decimal(38,10)", "n - 9876543210987654321098765432.1098765432"),
    "cash": ("money", "n * 1.2345"),
    "ratio": ("float", "n / 7E0"),
    "single": ("real", "n / 7E0"),
    "note": ("nvarchar(max)", "CASE WHEN n % 3 > 0 THEN N'ä€ 😀,~:' + CAST(n AS nvarchar(9)) END"),
    "code": ("varchar(9)", "'x '"),
    "fixed": ("nchar(5)", "N'y'"),
    "raw": ("varbinary(20)", "0x00ff10"),
    "day": ("date", "CAST(CASE n % 2 WHEN 0 THEN '0001-01-01' ELSE '9999-12-31' END AS date)"),
    "clock": ("time(6)", "'23:59:59.999999'"),
    "clock7": ("time(7)", "'23:59:59.9999990'"),
    "moment": ("datetime2(6)", "'1900-02-28T23:59:59.999999'"),
    "moment7": ("datetime2(7)", "'2000-01-01T23:59:59.9999990'"),
    "second": ("datetime2(0)", "'2000-01-01T00:00:01'"),
    "old": ("datetime", "'2020-02-02T20:20:20.123'"),
    "instant": ("datetimeoffset(6)", "'1969-12-31T23:59:59.999999-05:00'"),
    "ident": ("uniqueidentifier", "'0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0'"),
}


@pytest.fixture(scope="module")
def filled(mssql_url: str) -> Iterator[str]:
    """A table of every type, by ranges of 10, 10 and 1 rows."""
    server = SqlServerResource(url=mssql_url)
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    values = ", ".join(value for _, value in COLUMNS.values())
    digits = ", ".join(f"({digit})" for digit in range(10))
    server.execute(f"CREATE TABLE dbo.{NAME} ({declared})")
    for first in (0, 10):
        server.execute(
            f"INSERT INTO dbo.{NAME} SELECT {values} FROM "
            f"(SELECT d + {first} AS n FROM (VALUES {digits}) AS digits(d)) AS numbers"
        )
    server.execute(f"INSERT INTO dbo.{NAME} (id, note) VALUES (NULL, N'')")
    yield mssql_url
    server.execute(f"DROP TABLE dbo.{NAME}")


def measured(server: SqlServerResource) -> dict[int, Figures]:
    columns = server.columns(TABLE)
    fields = tuple(own_field(system("sqlserver"), column) for column in columns)
    digest = RowDigest(dialect(server), fields, "target")
    grouped = Grouped.by_range(RANGES, columns[0], system("sqlserver"))
    big = tuple(field for field in fields if field.name == "big")
    return measure(server, TABLE, "target", grouped, digest=digest, figures=big)


def test_the_client_gets_the_very_numbers_of_the_server(filled: str) -> None:
    by_server = measured(SqlServerResource(url=filled, digest_by="server"))
    by_client = measured(SqlServerResource(url=looking.with_options(filled, digest_by="client")))
    assert by_client == by_server
    assert [by_server[number]["rows"] for number in range(3)] == [10, 10, 1]
    assert len({by_server[number]["digest"] for number in range(3)}) == 3
    assert by_server[0]["big"]["max"] == "-9223372036854775798"


class Counted(SqlServerResource):
    """Notes which of its queries compute digests."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[object, ...]]:
        asked.append("server" if "HASHBYTES" in sql else "other")
        return super().query(sql, snapshot=snapshot)


asked: list[str] = []


@pytest.fixture(params=["fast", "slow"])
def speed(request: pytest.FixtureRequest) -> Iterator[str]:
    """Whether SQL Server is said to digest its rows for less than it sends them."""
    known = system("sqlserver")
    slow = known.digest.VARIANTS if request.param == "slow" else ()
    with registered(replace(known, slow_digests=slow)):
        yield request.param


def test_by_default_the_client_computes_what_the_server_does_slowly(
    filled: str, speed: str, nothing_known: None
) -> None:
    expected = measured(SqlServerResource(url=filled, digest_by="server"))
    asked.clear()
    assert measured(Counted(url=filled)) == expected
    # the constants, by which the server is believed at all, were asked for before
    assert ("server" in asked) is (speed == "fast")


def test_the_word_in_the_url_wins(filled: str, speed: str) -> None:
    for who in ("server", "client"):
        server = Counted(url=looking.with_options(filled, digest_by=who))
        dialect(server)
        asked.clear()
        measured(server)
        assert ("server" in asked) is (who == "server")


def test_only_the_way_of_servers_without_utf8_texts_is_slow(filled: str) -> None:
    slow = dialect(SqlServerResource(url=filled)).variant == "nvarchar"
    asked.clear()
    measured(Counted(url=filled))
    assert ("server" in asked) is not slow
    assert not any(system(name).slow_digests for name in ("postgres", "clickhouse", "files"))


def test_a_client_that_gets_other_numbers_is_refused_or_not_asked(
    filled: str, nothing_known: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(SqlServerResource):
        def read_arrow(self, sql, **more):  # type: ignore[no-untyped-def]
            return super().read_arrow(sql.replace("0.1E0", "0.2E0"), **more)

    with pytest.raises(DigestRefused, match="digest_by=server"):
        measured(Other(url=filled, digest_by="client"))
    known = system("sqlserver")
    with registered(replace(known, slow_digests=known.digest.VARIANTS)):
        for _ in range(2):
            assert len(measured(Other(url=filled))) == 3, "then the server does"
    warned = [one for one in caplog.messages if "though slowly" in one]
    assert len(warned) == 1, "it is tried once"


def test_a_wrong_word_is_named(filled: str) -> None:
    with pytest.raises(InputError, match="digest_by should be auto, server or client; found 'me'"):
        measured(SqlServerResource(url=filled, digest_by="me"))


def test_a_checksum_by_the_client_sees_damage(pg_url: str, mssql_url: str) -> None:
    postgres = PostgresResource(url=pg_url)
    server = SqlServerResource(url=mssql_url, digest_by="client")
    name = f"{NAME}_moved"
    postgres.execute(
        f"CREATE TABLE public.{name} (id int PRIMARY KEY, note text, at timestamptz, "
        "sum numeric(12,2));"
        f"INSERT INTO public.{name} SELECT g, 'note ' || g, '2024-01-01', g "
        "FROM generate_series(1, 50) g"
    )
    source, target = TableRef("postgres", "public", name), TableRef("sqlserver", "dbo", name)
    plan = plan_copy(source, postgres.columns(source), target, key="id")
    loader, everything = SqlServerTarget(server), KeyRange("integer")
    loader.prepare(plan, TargetOptions())
    try:
        with (
            loader.attempt(Publication(plan, everything, "1", "test"), TargetOptions()) as attempt,
            postgres.read_arrow(plan.select(everything, "arrow")) as reader,
        ):
            attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
            attempt.finalise()
        assert reconcile(Comparison(plan, postgres, server, [everything]), "checksum").passed
        server.execute(f"UPDATE dbo.{name} SET note = N'note 6 ' WHERE id = 6")
        verdict = reconcile(Comparison(plan, postgres, server, [everything]), "checksum")
        assert verdict.disagreeing == ("digest",)
    finally:
        server.execute(f"DROP TABLE dbo.{name}")
        postgres.execute(f"DROP TABLE public.{name}")
