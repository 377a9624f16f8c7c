"""A SQL Server login with the permissions of docs/operations.md, on a server that has logins."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from tableferry.resources.errors import StatementFailed
from tableferry.resources.sqlserver.connection import SqlServerConnection, close_pooled_connections
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests import servers
from tests.integration.conftest import Ferry
from tests.integration.support.containers import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not servers.named(servers.SQLSERVER),
        reason=f"the stand-in has one login; {servers.SQLSERVER} names a server that has more",
    ),
]

PASSWORD = "Tf1-" + servers.RUN * 4
"""The password of a login that lives as long as a test."""


def by_script(admin: SqlServerConnection, url: str, ferry: str) -> str:
    """What the service `setup` of docker-compose.yml does."""
    spec = importlib.util.spec_from_file_location("setup_run", ROOT / "docker/setup/run.py")
    assert spec is not None and spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if admin.query("SELECT CAST(SERVERPROPERTY('babelfish') AS int)") == [(1,)]:
        pytest.skip("Babelfish has no ALTER DATABASE and no GRANT on a whole schema")
    for _ in range(2):
        script.sqlserver(url, ferry)
    return "dbo"


def by_schema(admin: SqlServerConnection, url: str, ferry: str) -> str:
    """A schema of its own."""
    login, database = urlsplit(ferry).username, urlsplit(ferry).path[1:]
    admin.execute(f"CREATE DATABASE {database}")
    admin.execute(f"CREATE LOGIN {login} WITH PASSWORD = N'{PASSWORD}'")
    admin.execute(f"USE {database}")
    admin.execute(f"CREATE USER {login} FOR LOGIN {login}")
    admin.execute(f"CREATE SCHEMA loaded AUTHORIZATION {login}")
    try:
        admin.execute(f"GRANT CREATE TABLE, CREATE VIEW, VIEW DEFINITION TO {login}")
    except StatementFailed as error:
        assert "Babelfish" in str(error), "which needs no such grant, and has none"
    admin.execute("USE master")
    return "loaded"


@pytest.mark.parametrize("made", [by_script, by_schema])
@pytest.mark.parametrize("write", ["replace", "swap", "upsert"])
def test_it_is_enough_for_both_hops(
    ferry: Callable[..., Ferry],
    mssql_url: str,
    made: Callable[[SqlServerConnection, str, str], str],
    write: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = servers.own(f"ferry_{made.__name__}_{write}")
    at = urlsplit(mssql_url)
    place = f"{at.hostname}:{at.port}"
    url = at._replace(path="/master").geturl()
    mine = at._replace(netloc=f"{name}:{PASSWORD}@{place}", path=f"/{name}").geturl()
    with SqlServerResource(url=url).connection() as admin:
        try:
            schema = made(admin, url, mine)
            rows = "CREATE TABLE {t} AS SELECT id, 'é' AS a FROM generate_series(1, 100) AS id"
            one = ferry(
                "[clickhouse://warehouse.{t}]", rows, "ALTER TABLE {t} ADD PRIMARY KEY (id)"
            )
            monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", mine)
            hops = f"[sqlserver://{schema}.{{t}}, clickhouse://warehouse.{{t}}]"
            one.declare(hops, ranges="{count: 2}", write=write)
            for force in (False, True):
                view = one.run(force=force)
                assert view.good, view.errors
            server = one.session.servers.endpoints["sqlserver"]
            assert server.query(f"SELECT COUNT(*) FROM {schema}.{one.table}") == [(100,)]
            assert server.query("SELECT SUSER_NAME()") == [(name,)]
            with pytest.raises(StatementFailed):
                server.execute("CREATE DATABASE another")
        finally:
            close_pooled_connections()
            admin.execute(f"DROP DATABASE IF EXISTS {name}")
            admin.execute(f"IF SUSER_ID(N'{name}') IS NOT NULL DROP LOGIN {name}")
