"""The guide, as its reader follows it: page by page, every command, and what it prints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.guide import Block, blocks, pages
from tests.integration.support import homes
from tests.integration.support.guide_shell import Shell, environment
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FIRST = "first-table.md"
"""Makes the table that the other pages go on with."""
PROJECTS = ("in-your-project.md", "dbt.md")
"""Have a project and a virtualenv made: test_in_a_project.py and test_dbt.py follow them."""


def _lines(page: str) -> list[Block]:
    return [one for one in blocks(page) if "notest" not in one.options]


def _does_something(block: Block) -> bool:
    return block.language == "console" or "run" in block.options


PAGES = [
    page
    for page in pages()
    if page not in (FIRST, *PROJECTS) and any(map(_does_something, _lines(page)))
]


@pytest.fixture(scope="module")
def reader(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Somebody who has followed the first chapter."""
    folder = tmp_path_factory.mktemp("reader")
    homes.copy(folder / "dagster")
    shell = Shell(folder, environment(**stack.environment(), DAGSTER_HOME=str(folder / "dagster")))
    try:
        for block in _lines(FIRST):
            problem = shell.do(block)
            assert not problem, problem
        yield shell
    finally:
        print(*shell.printed, sep="\n")
        schema = shell.named("shop")
        PostgresResource(url=stack.postgres_url).execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        clickhouse = ClickHouseResource(url=stack.clickhouse_url)
        for (table,) in clickhouse.query(
            "SELECT name FROM system.tables WHERE database = 'warehouse' "
            f"AND name LIKE '{shell.named('orders')}%'"
        ):
            clickhouse.execute(f"DROP TABLE warehouse.{table} SYNC")
        chain = shell.named("orders_chain")
        SqlServerResource(url=stack.sqlserver_url).execute(f"DROP TABLE IF EXISTS dbo.{chain}")


def test_a_table_is_moved_and_proven_by_the_first_chapter(reader: Shell, stack: Servers) -> None:
    table = reader.named("orders")
    moved = ClickHouseResource(url=stack.clickhouse_url).query(
        f"SELECT count(), sum(id), sum(amount) FROM warehouse.{table}"
    )
    source = PostgresResource(url=stack.postgres_url).query(
        f"SELECT count(*), sum(id), sum(amount) FROM {reader.named('shop')}.{table}"
    )
    assert [*map(float, moved[0])] == [*map(float, source[0])]
    assert moved[0][0] == 100_000
    assert "<html" in (reader.folder / f"{table}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_can_be_done(reader: Shell, stack: Servers, page: str) -> None:
    shell = reader.fork()
    try:
        for block in _lines(page):
            problem = shell.do(block)
            assert not problem, problem
    finally:
        # the next page goes on with the rows of the first chapter, whichever was before it
        PostgresResource(url=stack.postgres_url).execute(
            reader.named("DELETE FROM shop.orders WHERE id > 100000")
        )
        print(*shell.printed, sep="\n")
