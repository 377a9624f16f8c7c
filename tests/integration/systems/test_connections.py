"""Two servers of one system: each is a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.pipelines.command.one import runner
from tableferry.resources.tables import TableRef, staging_name
from tests.integration.conftest import Ferry
from tests.servers import Servers, own

pytestmark = pytest.mark.integration


@pytest.fixture
def second(stack: Servers) -> Iterator[str]:
    """The URL of a second PostgreSQL database."""
    name = own("second")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    before, _, options = stack.postgres_url.partition("?")
    yield f"{before.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


def test_rows_move_between_named_servers(
    ferry: Callable[..., Ferry], second: str, stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_PG", second)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", stack.clickhouse_url)
    create = "CREATE TABLE {t} (id integer PRIMARY KEY, name text)"
    one = ferry("['clickhouse://warehouse.{t}']", create, "INSERT INTO {t} VALUES (1, 'usual')")
    with psycopg.connect(second, autocommit=True) as connection:
        for statement in (create, "INSERT INTO {t} SELECT g, 'named' FROM generate_series(1, 9) g"):
            connection.execute(statement.format(t=one.table))  # type: ignore[arg-type]
    one.declare("['LAKE://warehouse.{t}']", source=f"sales_pg://public.{one.table}")
    assert one.session.declared.invalid == ()
    view = one.run()
    assert view.good, view.errors
    lake = TableRef("clickhouse", "warehouse", one.table, "lake")
    assert str(lake) == f"lake://warehouse.{one.table}"
    found = one.session.servers.endpoint(lake).query(
        f"SELECT count(*), min(name), max(name) FROM warehouse.{one.table}"
    )
    assert [tuple(row) for row in found] == [(9, "named", "named")]
    assert list(asset_key(lake).path) == ["lake", "warehouse", one.table]
    assert sum(one.materializations("lake", "warehouse").values()) == len(one.moved(view))

    # what a dead run left under the server's other name
    left = staging_name(TableRef("clickhouse", "warehouse", one.table), "..")
    one.session.servers.endpoint(lake).execute(
        f"CREATE TABLE warehouse.{left} ENGINE = Memory AS SELECT 1 AS id"
    )
    assert runner.clean(one.session, [one.table]) == [left]
