"""SQL Server to PostgreSQL as a whole, and through it to ClickHouse."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
CREATE = (
    "CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, name nvarchar(20) NULL, "
    "price money NOT NULL, at datetime2(7) NULL, ref uniqueidentifier NULL)"
)
ROWS = [
    f"({number}, N'name {number}', {number}.25, '2024-01-02T03:04:05.1234560', "
    f"'{uuid.UUID(int=number)}')"
    for number in range(1, 31)
]
SELECT = "SELECT id, name, price::text, at::text, ref::text FROM {t} ORDER BY id"
EXPECTED = [
    (
        number,
        f"name {number}",
        f"{number}.2500",
        "2024-01-02 03:04:05.123456",
        str(uuid.UUID(int=number)),
    )
    for number in range(1, 31)
]


@pytest.fixture
def copies(stack: Servers) -> Iterator[str]:
    """A schema for the copies."""
    schema = own("copied")
    yield schema
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def sales(stack: Servers) -> Iterator[Callable[..., None]]:
    """Runs T-SQL; the tables that it makes are dropped at the end."""
    made: list[str] = []

    def run(table: str, *statements: str) -> None:
        made.append(table)
        for statement in statements:
            looking.ask_sqlserver(stack.sqlserver_url, statement.format(t=table))

    yield run
    for table in dict.fromkeys(made):
        run(table, "DROP TABLE IF EXISTS dbo.{t}")


def test_a_table_arrives_is_skipped_follows_and_is_proven(
    ferry: Make, sales: Callable[..., None], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}']"
    one = ferry(hops, ranges="{rows: 10}")
    sales(one.table, CREATE, "INSERT INTO dbo.{t} VALUES " + ", ".join(ROWS))
    one.declare(hops, source=f"sqlserver://dbo.{one.table}", ranges="{rows: 10}")
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    first = one.run()
    assert first.good, first.errors
    assert one.rows(there) == EXPECTED
    found = one.session.servers.endpoints["clickhouse"].query(
        f"SELECT count(), toString(max(at)) FROM warehouse.{one.table}"
    )
    assert [tuple(row) for row in found] == [(30, "2024-01-02 03:04:05.123456")]
    assert one.moved(one.run()) == []

    sales(one.table, "UPDATE dbo.{t} SET name = N'ž 😀' WHERE id = 15")
    changed = one.run()
    assert changed.good and len(one.moved(changed)) == 1
    assert one.rows(there)[14][1] == "ž 😀"

    one.source(f"UPDATE {copies}.{{t}} SET price = price + 0.0001 WHERE id = 2")
    checked = runner.check(one.session, one.table)
    ranges = [each for each in checked.checks if each.range and not each.verdict.passed]
    assert [each.hop.number for each in ranges if each.failed] == [1, 2]
    assert "was changed since hop 1 proved it" in ranges[1].summary()

    sales(one.table, "UPDATE dbo.{t} SET at = '2024-01-02T03:04:05.1234567' WHERE id = 25")
    if one.session.servers.endpoints["sqlserver"].query(
        f"SELECT 1 FROM dbo.{one.table} WHERE DATEPART(nanosecond, at) % 1000 <> 0"
    ):
        refused = one.run()
        assert not refused.good
        assert any("'at'" in error and "6 decimals" in error for error in refused.errors)


def test_between_two_sql_servers(ferry: Make, sales: Callable[..., None], stack: Servers) -> None:
    one = ferry("['sqlserver://dbo.{t}_copy']")
    sales(one.table, CREATE, "INSERT INTO dbo.{t} VALUES " + ", ".join(ROWS))
    sales(f"{one.table}_copy")
    one.declare("['sqlserver://dbo.{t}_copy']", source=f"sqlserver://dbo.{one.table}")
    view = one.run()
    assert view.good, view.errors
    select = "SELECT id, name, price, at, ref FROM dbo.{t} ORDER BY id"
    first, second = (
        looking.ask_sqlserver(stack.sqlserver_url, select.format(t=name))
        for name in (one.table, f"{one.table}_copy")
    )
    assert first == second and len(first) == 30


MOMENTS = [
    f"2024-01-02T03:04:05.{shown}"
    for shown in ("000", "003", "007", "263", "267", "270", "277", "333", "667", "993", "997")
]


@pytest.mark.parametrize("key", ["at", "id"])
def test_a_datetime_is_what_it_shows(
    ferry: Make, sales: Callable[..., None], copies: str, key: str
) -> None:
    """Its ticks of 1/300 s lie beside the thousandths that are copied."""
    hops = f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}']"
    one = ferry(hops)
    rows = [f"({id}, '{at}', '2024-01-02T03:04:00')" for id, at in enumerate(MOMENTS, 1)]
    sales(
        one.table,
        "CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, at datetime NOT NULL, "
        "minute smalldatetime NULL)",
        f"INSERT INTO dbo.{{t}} VALUES {', '.join(rows)}",
    )
    source = {"source": f"sqlserver://dbo.{one.table}", "key": key, "ranges": "{rows: 2}"}
    one.declare(hops, **source, reconcile="full_hash")
    first = one.run()
    assert first.good, first.errors
    there = (
        f"SELECT id, to_char(at, 'YYYY-MM-DD\"T\"HH24:MI:SS.MS') FROM {copies}.{{t}} ORDER BY id"
    )
    assert one.rows(there) == list(enumerate(MOMENTS, 1))
    assert runner.check(one.session, one.table).good
    assert one.moved(one.run()) == []
    # a bound that lies between what a datetime is and what it shows
    bounds = "{bounds: ['2024-01-02 03:04:05.266668', '2024-01-02 03:04:05.277']}"
    if key == "at":
        one.declare(hops, **{**source, "ranges": bounds}, reconcile="checksum")
        again = one.run(force=True)
        assert again.good, again.errors


def test_a_datetime_as_the_watermark_moves_only_newer_rows(
    ferry: Make, sales: Callable[..., None], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops)
    sales(
        one.table,
        "CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, at datetime NULL)",
        "INSERT INTO dbo.{t} VALUES (1, '2024-01-02T03:04:05.003'), (2, '2024-01-02T03:04:05.267')",
    )
    one.declare(
        hops,
        source=f"sqlserver://dbo.{one.table}",
        write="upsert",
        fingerprint="{watermark: at}",
        incremental="true",
    )
    assert one.run().good
    sales(one.table, "INSERT INTO dbo.{t} VALUES (3, '2024-01-02T03:04:05.267')")
    later = one.run()
    assert later.good, later.errors
    (record,) = (each for each in later.ranges if each.state == "committed" and each.rows)
    assert record.rows == 3 and record.rows_moved == 2, "the row of that moment, and the new one"
    assert one.rows(f"SELECT count(*) FROM {copies}.{{t}}") == [(3,)]
    assert runner.check(one.session, one.table).good
