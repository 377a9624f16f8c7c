"""The examples of docs/routes.md, one per route, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tableferry.pipelines.command.session import open_session
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "routes.md"
SECTION = re.search(r"\n## Routes\n(.*?)\n## ", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TEXT = SECTION[1] if SECTION else ""
EXAMPLES = {
    found[1]: found[0] for found in re.finditer(r"transfer: (\w+)\n.*?(?=```)", TEXT, re.DOTALL)
}
TABLES = ("orders", "invoices", "events")
SCHEMAS = ("copies", "staging")
ROWS = 25


@pytest.fixture(scope="module")
def names(stack: Servers) -> Iterator[dict[str, str]]:
    """What the examples' tables and schemas are called here; the tables are filled."""
    found = {name: own(f"guide_{name}") for name in (*TABLES, *SCHEMAS)}
    orders, invoices, events = (found[name] for name in TABLES)
    rows = ", ".join(
        f"({number}, N'invoice {number}', '2024-01-02T03:04:05')" for number in range(1, ROWS + 1)
    )
    with (
        psycopg.connect(stack.postgres_url, autocommit=True) as postgres,
        closing(looking.sqlserver(stack.sqlserver_url)) as sqlserver,
        closing(sqlserver.cursor()) as cursor,
    ):
        postgres.execute(
            f"CREATE TABLE {orders} (id integer PRIMARY KEY, note jsonb, total numeric);"
            f"INSERT INTO {orders} SELECT g, '{{}}', g / 4.0 "
            f"FROM generate_series(1, {ROWS}) g".encode()
        )
        cursor.execute(
            f"CREATE TABLE dbo.{invoices} "
            "(id int NOT NULL PRIMARY KEY, note nvarchar(20) NULL, issued datetime2(7) NULL)"
        )
        cursor.execute(f"INSERT INTO dbo.{invoices} VALUES {rows}")
        clickhouse = ClickHouseResource(url=stack.clickhouse_url)
        clickhouse.execute(
            f"CREATE TABLE warehouse.{events} ENGINE = MergeTree ORDER BY id AS SELECT "
            f"number AS id, now64(3) AS at, [toString(number)] AS tags FROM numbers({ROWS})"
        )
        yield found
        clickhouse.execute(f"DROP TABLE warehouse.{events}")
        postgres.execute(f"DROP TABLE {orders}".encode())
        for schema in SCHEMAS:
            postgres.execute(f"DROP SCHEMA IF EXISTS {found[schema]} CASCADE".encode())
        for table in (invoices, f"{invoices}_copy"):
            cursor.execute(f"DROP TABLE IF EXISTS dbo.{table}")


def test_every_route_has_an_example() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_moves_its_rows(
    ferry: Callable[..., Ferry],
    names: dict[str, str],
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    one = ferry("['clickhouse://warehouse.{t}']")
    pattern = re.compile(rf"\b({'|'.join((*TABLES, *SCHEMAS))})(?=[._\"]|$)")

    def here(reference: re.Match[str]) -> str:
        return pattern.sub(lambda name: names[name[1]], reference[0])

    text = re.sub("(?<=://).*", here, EXAMPLES[example])
    (one.folder / "t.yaml").write_text(text, encoding="utf-8")
    one.session = open_session()
    one.table = example
    view = one.run()
    assert view.good, view.errors
    last = max(each.hop for each in view.ranges)
    assert sum(each.rows or 0 for each in view.ranges if each.hop == last) == ROWS
    assert one.moved(one.run()) == []
