"""Names that need quoting, and narrow and wide tables, from PostgreSQL to both targets."""

from __future__ import annotations

import pytest

from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tests.integration.support.typed_servers import (
    EVERYTHING,
    ClickHouseEnd,
    PostgresEnd,
    SqlServerEnd,
)
from tests.servers import own

pytestmark = pytest.mark.integration

NAMES = [
    "id",
    "with space",
    "select",
    "größe",
    "日本",
    'quote"double',
    "quote'single",
    "back\\slash",
    "tick`",
    "bracket]",
    "percent%s",
    "{brace}",
    "semi;colon--",
    "Case",
]


@pytest.fixture(scope="module")
def source(stack):
    end = PostgresEnd(stack.postgres_url)
    yield end
    end.close()


@pytest.fixture(params=["sqlserver", "clickhouse"])
def target(request, stack):
    if request.param == "sqlserver":
        return SqlServerEnd(stack.sqlserver_url)
    return ClickHouseEnd(stack.clickhouse_url)


def copy(source, target, name, names):
    """Row 1, with the column's position as its value; what the target then says it has."""
    columns = ", ".join(f"{system('postgres').quote(column)} int" for column in names)
    table = TableRef("postgres", source.schema, name)
    source.connection.execute(f"DROP TABLE IF EXISTS {qualified(table)}")
    source.connection.execute(f"CREATE TABLE {qualified(table)} ({columns})".encode())
    values = ", ".join(str(number) for number in range(1, len(names) + 1))
    source.connection.execute(f"INSERT INTO {qualified(table)} VALUES ({values})")
    if isinstance(target, ClickHouseEnd):
        into = TableRef("clickhouse", target.database, name)
    else:
        into = TableRef("sqlserver", "dbo", name)
    plan = plan_copy(table, source.resource.columns(table), into, key=names[0])
    with source.resource.read_arrow(plan.select(EVERYTHING, "arrow")) as batches:
        target.load(plan, [conform(batch, plan, {}) for batch in batches])
    found = [column.name for column in target.resource.columns(into)]
    name_there = ".".join(into.system.quote(part) for part in (into.schema, into.name))
    rows = target.resource.query(f"SELECT * FROM {name_there}")
    target.drop(into)
    return found, rows


def test_names_survive_quoting(source, target):
    found, rows = copy(source, target, own("names ']\"` ü"), NAMES)
    assert found == NAMES
    assert rows == [tuple(range(1, len(NAMES) + 1))]


@pytest.mark.parametrize("width", [1, 500])
def test_narrow_and_wide_tables(source, target, width):
    names = ["id", *(f"c{number}" for number in range(2, width + 1))]
    found, rows = copy(source, target, own(f"wide{width}"), names)
    assert found == names
    assert rows == [tuple(range(1, width + 1))]
