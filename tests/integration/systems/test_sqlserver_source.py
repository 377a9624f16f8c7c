"""SQL Server as a source: its keys' statistics and its ranges' fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.assets.planning.ranges.cutting import plan_ranges
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.table_sql import predicate
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.connection import SqlServerConnection, close_pooled_connections
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.server import ALLOWS_SNAPSHOT
from tableferry.resources.tables import TableRef
from tests.integration.support import looking
from tests.integration.support.planning import plan_of
from tests.servers import Servers, own

TABLE = TableRef("sqlserver", "dbo", own("source_test"))
T = f"dbo.{TABLE.name}"
ALL = KeyRange("integer", None, 1_000_000)

CASES = {
    "int": ("int", "1", "2"),
    "bit": ("bit", "0", "1"),
    "last digit of a decimal": ("decimal(38,10)", "1.0000000001", "1.0000000002"),
    "money": ("money", "1.0001", "1.0002"),
    "last bit of a float": ("float", "0.1E0", "0.10000000000000002E0"),
    "float beyond 1e48": ("float", "1E300", "1.0000000000000002E300"),
    "real": ("real", "0.1E0", "0.10000001E0"),
    "NULL and ''": ("nvarchar(20)", "NULL", "N''"),
    "'' and ' '": ("nvarchar(20)", "N''", "N' '"),
    "trailing blank": ("varchar(20)", "'a'", "'a '"),
    "case": ("nvarchar(20)", "N'a'", "N'A'"),
    "accent": ("nvarchar(20)", "N'e'", "N'é'"),
    "one code point": ("nvarchar(20)", "N'\U0001f600'", "N'\U0001f601'"),
    "nvarchar(max)": ("nvarchar(max)", "REPLICATE(N'x', 4000)", "REPLICATE(N'x', 3999)"),
    "bytes": ("varbinary(20)", "0x00", "0x0000"),
    "empty bytes and NULL": ("varbinary(20)", "NULL", "0x"),
    "date": ("date", "'0001-01-01'", "'0001-01-02'"),
    "100 ns of a time": ("time(7)", "'12:00:00.0000001'", "'12:00:00.0000002'"),
    "100 ns": ("datetime2(7)", "'2024-01-01T00:00:00.0000001'", "'2024-01-01T00:00:00.0000002'"),
    "tick of a datetime": ("datetime", "'2024-01-01T00:00:00.003'", "'2024-01-01T00:00:00.007'"),
    "second of a datetime": ("datetime", "'2024-01-01T00:00:01'", "'2024-01-01T00:00:02'"),
    "instant": (
        "datetimeoffset(0)",
        "'2024-01-01T12:00:00+00:00'",
        "'2024-01-01T12:00:00+01:00'",
    ),
    "uuid": (
        "uniqueidentifier",
        "'00000000-0000-0000-0000-000000000000'",
        "'00000000-0000-0000-0000-000000000001'",
    ),
}


@pytest.fixture
def source(stack: Servers) -> Iterator[SqlServerResource]:
    resource = SqlServerResource(url=stack.sqlserver_url)
    looking.execute(resource, f"DROP TABLE IF EXISTS {T}")
    yield resource
    looking.execute(resource, f"DROP TABLE IF EXISTS {T}")


def content(source: SqlServerResource) -> str:
    return fingerprints(SourceReading(source, plan_of(source, TABLE)), [ALL])[ALL.name].value


@pytest.mark.parametrize(("type_", "one", "other"), CASES.values(), ids=CASES)
def test_content_tells_values_apart(
    source: SqlServerResource, second_digits: int, type_: str, one: str, other: str
) -> None:
    if "(7)" in type_ and second_digits < 7:
        pytest.skip(f"this server keeps {second_digits} digits of a second")
    looking.execute(source, f"CREATE TABLE {T} (id int NOT NULL, v {type_} NULL)")
    looking.execute(source, f"INSERT INTO {T} (id, v) VALUES (1, {one})")
    before = content(source)
    looking.execute(source, f"UPDATE {T} SET v = {other}")
    assert content(source) != before
    looking.execute(source, f"UPDATE {T} SET v = {one}")
    assert content(source) == before


def test_content_sees_two_rows_exchange_a_value(source: SqlServerResource) -> None:
    looking.execute(source, f"CREATE TABLE {T} (id int NOT NULL, a nvarchar(10), b nvarchar(10))")
    looking.execute(source, f"INSERT INTO {T} (id, a, b) VALUES (1, N'x', N'y'), (2, N'z', N'w')")
    before = content(source)
    looking.execute(source, f"UPDATE {T} SET a = CASE id WHEN 1 THEN N'z' ELSE N'x' END")
    assert content(source) != before
    looking.execute(source, f"UPDATE {T} SET a = N'ab', b = N'c'")
    before = content(source)
    looking.execute(source, f"UPDATE {T} SET a = N'a', b = N'bc'")
    assert content(source) != before


def test_snapshot_isolation_is_set_by_a_batch_of_its_own(
    source: SqlServerResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_pooled_connections()
    batches: list[str] = []
    for name in ("query", "execute"):
        run = getattr(SqlServerConnection, name)

        def recorded(self: SqlServerConnection, sql: str, run: Any = run) -> Any:
            batches.append(" ".join(sql.split()))
            return run(self, sql)

        monkeypatch.setattr(SqlServerConnection, name, recorded)
    allowed = source.query(ALLOWS_SNAPSHOT)
    with source.read_arrow("SELECT 1 AS one") as reader:
        assert reader.read_all().num_rows == 1
    set_by = [batch for batch in batches if "SET TRANSACTION" in batch]
    assert set_by == ["SET TRANSACTION ISOLATION LEVEL SNAPSHOT"] * len(allowed)


def test_row_version_needs_a_rowversion_column(source: SqlServerResource) -> None:
    looking.execute(source, f"CREATE TABLE {T} (id int NOT NULL)")
    with pytest.raises(InputError, match="needs a rowversion column"):
        fingerprints(SourceReading(source, plan_of(source, TABLE)), [ALL], "row_version")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", "{n}"),
        ("bigint", "{n} * CAST(1000000007 AS bigint)"),
        ("date", "DATEADD(day, {n}, CAST('2020-01-01' AS date))"),
        ("datetime2(7)", "DATEADD(minute, {n}, CAST('2020-01-01T00:00:00' AS datetime2(7)))"),
        ("datetime", "DATEADD(minute, {n}, CAST('2020-01-01T00:00:00' AS datetime))"),
        (
            "datetimeoffset(3)",
            "DATEADD(minute, {n}, CAST('2020-01-01T00:00:00+02:00' AS datetimeoffset(3)))",
        ),
    ],
)
def test_ranges_hold_every_row_once_and_evenly(
    source: SqlServerResource, type_: str, value: str
) -> None:
    looking.execute(source, f"CREATE TABLE {T} (k {type_} NULL)")
    rows = ", ".join(f"({value.format(n=n)})" for n in range(1, 301))
    looking.execute(source, f"INSERT INTO {T} (k) VALUES {rows}, (NULL)")
    key = source.columns(TABLE)[0]
    stats = key_statistics(source, TABLE, key)
    assert (stats.rows, stats.nullable) == (300, True)
    ranges = plan_ranges(stats, {"count": 3}, *key_kind(key, system("sqlserver")))
    depths = [
        source.query(
            f"SELECT COUNT_BIG(*) FROM {T} WHERE {predicate(key, r, system('sqlserver'))}"
        )[0][0]
        for r in ranges
    ]
    assert depths == [100, 100, 100, 0, 1]
    for method in ("content", "none"):
        found = fingerprints(SourceReading(source, plan_of(source, TABLE)), ranges, method)
        assert [found[r.name].rows for r in ranges] == depths
