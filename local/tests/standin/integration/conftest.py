"""Sessions of the stand-in's engine on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from local.tests.standin.integration.tsql_session import Session

from tableferry_local.stack import Stack


@pytest.fixture(scope="module")
def url(local_stack: Stack, request: pytest.FixtureRequest) -> str:
    """A database for the file's tests, of its name."""
    name = request.path.stem
    with psycopg.connect(local_stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return local_stack.postgres_url.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    """A session with an empty table t (id int PRIMARY KEY, name nvarchar(10))."""
    found = Session(url)
    found.run("IF OBJECT_ID('t', 'U') IS NOT NULL DROP TABLE t")
    found.run("CREATE TABLE t (id int NOT NULL PRIMARY KEY, name nvarchar(10) NULL)")
    yield found
    found.engine.close()
    after = Session(url)
    after.run("DROP TABLE IF EXISTS u, t")
    after.engine.close()


@pytest.fixture
def other(url: str) -> Iterator[Session]:
    found = Session(url)
    yield found
    found.engine.close()
