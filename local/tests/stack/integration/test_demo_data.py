"""The demo's source data, as loaded into PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tableferry_local.demo_data import FILES, load_demo_data
from tableferry_local.errors import DemoError
from tableferry_local.stack import Stack

COUNTS = {"airlines": 16, "airports": 1458, "planes": 3322, "weather": 26115, "flights": 336776}


@pytest.fixture
def url(local_stack: Stack) -> Iterator[str]:
    """A database of its own."""
    with psycopg.connect(local_stack.postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE demo_data_test")
        yield local_stack.postgres_url.rpartition("/")[0] + "/demo_data_test"
        connection.execute("DROP DATABASE demo_data_test WITH (FORCE)")


def test_loads_every_row_once(url: str) -> None:
    assert load_demo_data(url) == COUNTS
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE flights SET distance = 0 WHERE id = 1")
    assert load_demo_data(url) == COUNTS
    with psycopg.connect(url) as connection:
        # The user's change was kept.
        assert connection.execute("SELECT distance FROM flights WHERE id = 1").fetchone() == (0,)
        for table in FILES:
            row = connection.execute(f"SELECT min(id), max(id), count(*) FROM {table}").fetchone()
            assert row == (1, COUNTS[table], COUNTS[table])
        # Figures of the data set's own documentation: 8,255 flights were cancelled.
        row = connection.execute(
            "SELECT count(*) - count(dep_time), count(DISTINCT carrier), min(time_hour)::text"
            " FROM flights"
        ).fetchone()
        assert row == (8255, 16, "2013-01-01 10:00:00+00")


def test_leaves_tables_of_others_alone(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE planes (a integer)")
    with pytest.raises(DemoError, match=r"your own public\.planes"):
        load_demo_data(url)
