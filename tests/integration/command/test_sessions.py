"""The methods of a session, as code uses them; docs/python-api.md shows most of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tableferry
from tests.integration.conftest import Ferry
from tests.servers import Servers

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text, amount numeric(12,2))",
    "INSERT INTO {t} SELECT g, 'note ' || g, g * 1.25 FROM generate_series(1, 200) g",
)


@pytest.fixture
def opened(ferry: Callable[..., Ferry], stack: Servers) -> tuple[tableferry.TransferSession, str]:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    servers = {
        "postgres": tableferry.PostgresResource(url=stack.postgres_url),
        "clickhouse": tableferry.ClickHouseResource(url=stack.clickhouse_url),
    }
    transfers = [one.session.transfer(one.table)]
    return tableferry.session(transfers, servers, one.session.instance), one.table


def test_methods_do_what_the_commands_do(opened: tuple[tableferry.TransferSession, str]) -> None:
    session, name = opened
    planned = session.plan(name)
    assert isinstance(planned, tableferry.PlanView)
    assert {each.state for each in planned.ranges} == {"run"}
    moved = session.run(name)
    assert isinstance(moved, tableferry.TransferView)
    assert moved.good, moved.errors
    first = moved.ranges[0].range
    target = session.servers.endpoints["clickhouse"]
    target.execute(
        f"ALTER TABLE warehouse.{name} UPDATE note = 'damaged' WHERE id = 7 "
        "SETTINGS mutations_sync = 2"
    )
    checked = session.check(name)
    assert isinstance(checked, tableferry.CheckView)
    assert not checked.good
    assert session.status(name).failed
    (differences,) = session.diff(name, first).values()
    assert isinstance(differences, tableferry.Differences)
    assert [(each.key, each.column) for each in differences.examples] == [("7", "note")]
    report = session.report(name)
    assert isinstance(report, tableferry.Report)
    assert report.problems
    repaired = session.repair(name)
    assert repaired.good, repaired.errors
    assert session.check(name).good
    assert session.status(name).good
    with pytest.raises(tableferry.InputError, match="no transfer"):
        session.plan("nothing")


def test_any_two_tables_are_compared(opened: tuple[tableferry.TransferSession, str]) -> None:
    session, name = opened
    assert session.run(name).good
    first, second = f"postgres://public.{name}", f"clickhouse://warehouse.{name}"
    outcome = session.compare(first, second)
    assert isinstance(outcome, tableferry.TableComparison)
    assert outcome.equal
    session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{name} UPDATE amount = amount + toDecimal64('0.01', 2) "
        "WHERE id <= 3 SETTINGS mutations_sync = 2"
    )
    outcome = session.compare(first, second)
    assert not outcome.equal
    assert outcome.differences is not None
    assert {each.key for each in outcome.differences.examples} == {"1", "2", "3"}
    assert session.compare(first, second, where="id > 3").equal
    fewer = session.compare(first, second, where=("id > 150", None))
    assert fewer.read["source"].counted == 50 and fewer.read["target"].counted == 200
    assert fewer.read["source"].sent < fewer.read["target"].sent
    assert session.compare(first, second, exclude=["amount"]).equal
    rounded = {"amount": {"round": 0}}
    assert session.compare(first, second, tolerances=rounded, where=("id = 1", "id = 1")).equal
    query = f"postgres: SELECT id AS number, note FROM public.{name}"
    assert session.compare(query, second, key=["number"], renamed={"number": "id"}).equal
    with pytest.raises(tableferry.InputError, match="round"):
        session.compare(first, second, tolerances={"amount": {"rund": 2}})


ODD = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text, amount numeric(12,2), day date, at "
    "timestamp, number float8)",
    "INSERT INTO {t} VALUES (1, '', -0.01, '0001-01-01', '0001-01-01 00:00:00.000001', 'NaN'), "
    "(2, NULL, NULL, NULL, NULL, NULL), (3, 'é😀', 9999999999.99, '9999-12-31', "
    "'9999-12-31 23:59:59.999999', '-0.0')",
)


WITHOUT_NAN = "UPDATE {t} SET number = 0.1 WHERE id = 1"
YEARS_OF_CLICKHOUSE = tuple(
    f"UPDATE {{t}} SET day = day + interval '{years} y', at = at + interval '{years} y' "
    f"WHERE id = {key}"
    for key, years in ((1, 1899), (3, -7700))
)
ZONE = ", tzinfo=zoneinfo.ZoneInfo(key='UTC')"
"""Which a moment without a zone has in ClickHouse."""


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        ("sqlserver://dbo.{t}", [WITHOUT_NAN]),
        ("postgres://public.{t}_copy", []),
        ("files://{f}/*.parquet", []),
        ("clickhouse://warehouse.{t}", YEARS_OF_CLICKHOUSE),
    ],
)
def test_rows_of_a_range_are_read_exactly(
    ferry: Callable[..., Ferry],
    stack: Servers,
    tmp_path: Path,
    target: str,
    changes: Sequence[str],
) -> None:
    one = ferry(f"['{target.replace('{f}', str(tmp_path))}']", *ODD, ranges="{rows: 2}")
    servers = {
        "postgres": tableferry.PostgresResource(url=stack.postgres_url),
        "sqlserver": tableferry.SqlServerResource(url=stack.sqlserver_url),
        "clickhouse": tableferry.ClickHouseResource(url=stack.clickhouse_url),
        "files": tableferry.FilesResource(),
    }
    transfer = one.session.transfer(one.table)
    one.source(*changes)
    session = tableferry.session([transfer], servers, one.session.instance)
    assert session.run(one.table).good
    for key, rows in (("1", 2), ("3", 1), ("4711", 0)):
        source = session.read(one.table, key).sort_by("id").to_pylist()
        target_rows = session.read(one.table, key, side="target").sort_by("id").to_pylist()
        assert repr(source) == repr(target_rows).replace(ZONE, "")
        assert len(source) == rows
    (row,) = [row for row in session.read(one.table, "1").to_pylist() if row["id"] == 1]
    day = "1900-01-01" if changes == YEARS_OF_CLICKHOUSE else "0001-01-01"
    assert (row["note"], str(row["amount"]), str(row["day"])) == ("", "-0.01", day)
    assert str(row["at"]) == f"{day} 00:00:00.000001"
    with pytest.raises(tableferry.InputError, match="side"):
        session.read(one.table, "1", side="middle")  # type: ignore[arg-type]
    with pytest.raises(tableferry.InputError, match="range"):
        session.read(one.table, "nothing")
