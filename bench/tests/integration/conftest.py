"""Fixtures of the bench's tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.postgres.resource import PostgresResource
from tableferry_bench.servers import Servers
from tests import servers


@pytest.fixture
def databases(stack: servers.Servers, tmp_path: Path) -> Iterator[Servers]:
    """The servers as the bench knows them, in databases that no other test uses.

    Workers run tests of several files at once, so each test has databases of its own.
    """
    name = servers.own(f"bench_{uuid.uuid4().hex[:8]}")
    postgres = PostgresResource(url=stack.postgres_url)
    clickhouse = ClickHouseResource(url=stack.clickhouse_url)
    urls = {
        variable: urlsplit(url)._replace(path=f"/{name}").geturl()
        for variable, url in stack.environment().items()
        if "SQLSERVER" not in variable
    }
    postgres.execute(f"CREATE DATABASE {name}")
    clickhouse.execute(f"CREATE DATABASE {name}")
    try:
        yield Servers(urls, tmp_path)
    finally:
        postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
        clickhouse.execute(f"DROP DATABASE {name} SYNC")
