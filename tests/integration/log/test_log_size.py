"""How much a small transfer adds to the event log, by the storage that keeps it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest
import yaml

from tests.integration.conftest import Ferry
from tests.integration.support import homes
from tests.servers import Servers, own

pytestmark = homes.of_ours
DATABASE = own("log_size")
CHAIN = "[sqlserver://dbo.{t}, clickhouse://warehouse.{t}]"
TABLE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, name text NOT NULL, amount numeric(12, 2), "
    "at timestamp, flag boolean, note text)",
    "INSERT INTO {t} SELECT id, 'name', 1.25 * id, '2024-01-01', id % 2 = 0, 'note' "
    "FROM generate_series(1, 20) id",
)

Size = Callable[[], float]
"""Returns the size of the event log in KB."""


@pytest.fixture
def sqlite_size(tmp_path: Path) -> Size:
    """The pages in use in the files of a new home."""

    def size() -> float:
        shutil.copytree(tmp_path / "dagster" / "history", copy := tmp_path / "copy")
        used = 0
        for file in copy.rglob("*.db"):
            with closing(sqlite3.connect(file)) as connection:
                pages, free, bytes_ = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
            used += (pages - free) * bytes_
        shutil.rmtree(copy)
        return used / 1024

    return size


@pytest.fixture
def postgres_size(stack: Servers, tmp_path: Path) -> Iterator[Size]:
    """The rows in the tables of a database that dagster.yaml names."""
    url = urlsplit(stack.postgres_url)
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    database = {
        "hostname": url.hostname,
        "port": url.port,
        "username": url.username,
        "password": url.password,
        "db_name": DATABASE,
    }
    storage = {
        "module": "tableferry.assets.log.postgres_storage",
        "class": "Storage",
        "config": {"postgres_db": database},
    }
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(
        yaml.safe_dump({"telemetry": {"enabled": False}, "storage": {"custom": storage}})
    )

    def size() -> float:
        with psycopg.connect(url._replace(path=f"/{DATABASE}").geturl()) as connection:
            tables = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace = 'public'::regnamespace"
            ).fetchall()
            return sum(
                connection.execute(
                    f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"  # type: ignore[arg-type]
                ).fetchone()[0]  # type: ignore[index]
                for (table,) in tables
            ) / 1024  # fmt: skip

    yield size
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def grown(ferry: Callable[..., Ferry], size: Size) -> tuple[float, float]:
    """The KB per range and hop that a first load adds, and that one changed range of two adds."""
    one = ferry(CHAIN, *TABLE, ranges="{count: 1}")
    before = size()
    first = one.run()
    assert first.good and len(first.ranges) == 4, "two ranges through two hops"
    loaded = size()
    one.source("UPDATE {t} SET amount = 7 WHERE id = 15")
    assert len(one.moved(one.run())) == 1
    changed = size()
    shown = one.session.instance.get_latest_materialization_event(
        dg.AssetKey(["clickhouse", "warehouse", one.table])
    )
    assert shown and shown.asset_materialization
    columns = shown.asset_materialization.metadata["dagster/column_schema"].value
    assert isinstance(columns, dg.TableSchema) and len(columns.columns) == 6
    return (loaded - before) / 4, (changed - loaded) / 2


def test_a_home_of_files_grows_by_little(ferry: Callable[..., Ferry], sqlite_size: Size) -> None:
    first, changed = grown(ferry, sqlite_size)
    # each commit keeps the declaration that its range was proven by
    assert first < 42 and changed < 58, "133 and 194 with a file for each run"


def test_a_small_table_has_one_range_in_each_target(
    ferry: Callable[..., Ferry], sqlite_size: Size
) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 100}")
    before = sqlite_size()
    first = one.run()
    assert first.good and len(first.ranges) == 2
    assert sqlite_size() - before < 125, "168 at most with a second, empty range"


@pytest.mark.slow
def test_a_database_grows_by_little(ferry: Callable[..., Ferry], postgres_size: Size) -> None:
    first, changed = grown(ferry, postgres_size)
    assert first < 25.5 and changed < 37, "28 and 41 with all that Dagster says twice"
