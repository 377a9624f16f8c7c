"""Fixtures that every test may use: one local stack for the whole session, started on first use."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from local import watch
from local.stack import Stack

# how long an example takes says more of the machine's load than of the code
hypothesis.settings.register_profile("tableferry", deadline=None)
hypothesis.settings.load_profile("tableferry")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """PostgreSQL, ClickHouse and the SQL Server stand-in, just for this session.

    Has postgres_url, sqlserver_url, clickhouse_url, environment(), and kill(name) and
    restart(name) for crash tests. It goes away with the session, also if that is killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="tableferry-tests-"))
    folder.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
    stack = Stack(folder)
    watch.start(folder)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


@pytest.fixture(scope="session")
def pg_url(stack: Stack) -> str:
    """URL of the stack's PostgreSQL source database."""
    return stack.postgres_url


@pytest.fixture(scope="session")
def ch_url(stack: Stack) -> str:
    """URL of the stack's ClickHouse."""
    return stack.clickhouse_url


@pytest.fixture(scope="session")
def mssql_url(stack: Stack) -> str:
    """URL of the stack's SQL Server stand-in."""
    return stack.sqlserver_url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is under an `integration` folder, so that `-m "not integration"` works too."""
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker("integration")
