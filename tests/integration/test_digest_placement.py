"""The client computes the digests that SQL Server would, and does where that is cheaper."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tableferry.checks.reconcile import reconcile
from tableferry.resources import probe
from tableferry.resources.digest import placement
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import own_field
from tableferry.resources.digest.measure import Figures, Grouped, measure
from tableferry.resources.digest.probe import DigestRefused, dialect
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tableferry.resources.target import TargetOptions
from tableferry.resources.types.conform import conform, schema
from tableferry.resources.types.planner import plan_copy
from tests.integration import looking
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
    fields = tuple(own_field("sqlserver", column) for column in columns)
    digest = RowDigest(dialect(server), fields, "target")
    grouped = Grouped.by_range(RANGES, columns[0], "sqlserver")
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


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has asked no server yet."""
    monkeypatch.setattr(probe, "_known", {})
    monkeypatch.setattr(placement, "_digested", {})
    asked.clear()
    yield monkeypatch


def test_a_few_rows_are_left_to_the_server(filled: str, forgetful: pytest.MonkeyPatch) -> None:
    measured(Counted(url=filled))
    assert "server" in asked
    assert not any("digests by" in str(key) for key in probe._known)


@pytest.mark.parametrize(("slower", "cheaper"), [("server", "client"), ("client", "server")])
def test_who_is_cheaper_is_found_once_and_computes(
    filled: str, forgetful: pytest.MonkeyPatch, slower: str, cheaper: str
) -> None:
    expected = measured(SqlServerResource(url=filled, digest_by="server"))
    forgetful.setattr(placement, "ENOUGH_ROWS", 20)
    forgetful.setattr(placement, "CHEAP", -1.0)
    trials: list[str] = []
    clock = [0.0]

    def tried(endpoint: object, found: object, who: str, tens: int = 0) -> tuple[int, int]:
        trials.append(who)
        clock[0] += 10.0 if who == slower and tens else 0.1
        return 2 * 10**tens, 0

    forgetful.setattr(placement, "summed_constants", tried)
    forgetful.setattr(placement, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    server = Counted(url=filled)
    for _ in range(2):
        asked.clear()
        assert measured(server) == expected
        assert ("server" in asked) is (cheaper == "server")
    assert trials == ["server", "server", "client", "client"], "once per process"


def test_a_client_that_gets_other_numbers_is_refused(
    filled: str, forgetful: pytest.MonkeyPatch
) -> None:
    class Other(SqlServerResource):
        def read_arrow(self, sql, **more):  # type: ignore[no-untyped-def]
            return super().read_arrow(sql.replace("0.1E0", "0.2E0"), **more)

    with pytest.raises(DigestRefused, match="digest_by=server"):
        measured(Other(url=filled, digest_by="client"))
    forgetful.setattr(placement, "ENOUGH_ROWS", 1)
    forgetful.setattr(placement, "CHEAP", -1.0)
    assert len(measured(Other(url=filled))) == 3, "then the server does"


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
            loader.attempt(
                plan, everything, TargetOptions(), owner="test", data_version="1"
            ) as attempt,
            postgres.read_arrow(plan.select(everything, "arrow")) as reader,
        ):
            attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
            attempt.finalise()
        assert reconcile(plan, postgres, server, everything, "checksum").passed
        server.execute(f"UPDATE dbo.{name} SET note = N'note 6 ' WHERE id = 6")
        verdict = reconcile(plan, postgres, server, everything, "checksum")
        assert verdict.disagreeing == ("digest",)
    finally:
        server.execute(f"DROP TABLE dbo.{name}")
        postgres.execute(f"DROP TABLE public.{name}")
