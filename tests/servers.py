"""The servers that tests run on: those that the environment names, or else a local stack."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from tableferry.resources.clickhouse.resource import ClickHouseResource
    from tableferry.resources.postgres.resource import PostgresResource
    from tableferry.resources.sqlserver.resource import SqlServerResource
    from tableferry.resources.tables import TableRef
    from tableferry_local.stack import Stack

POSTGRES, SQLSERVER, CLICKHOUSE = (
    f"TABLEFERRY_TEST_{system}_URL" for system in ("POSTGRES", "SQLSERVER", "CLICKHOUSE")
)
"""Each names a server to test on, in the form of the product's own variables."""

RUN = os.environ.setdefault("TABLEFERRY_TEST_RUN", uuid4().hex[:6])
"""Is part of the name of what a run of the tests makes on a server; its workers inherit it."""

OWNER = int(os.environ.setdefault("TABLEFERRY_TEST_OWNER", str(os.getpid())))
"""The process that the run ends with."""


@dataclass(frozen=True)
class Servers:
    """Where the three servers are."""

    postgres_url: str
    sqlserver_url: str
    clickhouse_url: str

    def environment(self) -> dict[str, str]:
        """The settings that the product reads."""
        return {
            "TABLEFERRY_POSTGRES_URL": self.postgres_url,
            "TABLEFERRY_SQLSERVER_URL": self.sqlserver_url,
            "TABLEFERRY_CLICKHOUSE_URL": self.clickhouse_url,
        }


def named(*variables: str) -> str | None:
    """The first of these variables (by default of all) that names a server."""
    wanted = variables or (POSTGRES, SQLSERVER, CLICKHOUSE)
    return next((variable for variable in wanted if os.environ.get(variable)), None)


def own(name: str) -> str:
    """The name, as nobody else on the server has it, nor another worker of the run."""
    return f"{name}_{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}"


def shared_folder() -> Path:
    """Where the stack of the run is, if there is one."""
    return Path(tempfile.gettempdir()) / f"tableferry-tests-{RUN}"


def shared_stack() -> Stack:
    """The one stack of all workers; the first that needs it starts it."""
    from tableferry_local import watch
    from tableferry_local.stack import Stack

    folder = shared_folder()
    folder.mkdir(mode=0o711, exist_ok=True)  # PostgreSQL's user must get to its own folder inside
    stack = Stack(folder)
    try:
        (folder / "watched").touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        watch.start(folder, OWNER)
    stack.up()
    return stack


def drop_leftovers() -> None:
    """Drop what the run has left on servers that the environment names."""
    if not named():
        return
    from tableferry.resources.clickhouse.resource import ClickHouseResource
    from tableferry.resources.contract.table_sql import drop_table
    from tableferry.resources.errors import TableferryError
    from tableferry.resources.postgres.resource import PostgresResource
    from tableferry.resources.sqlserver.resource import SqlServerResource

    for variable, resource in (
        (POSTGRES, PostgresResource),
        (SQLSERVER, SqlServerResource),
        (CLICKHOUSE, ClickHouseResource),
    ):
        if not (url := os.environ.get(variable)):
            continue
        server = resource(url=url)
        try:
            for table in _left(server, views=True):
                server.execute(drop_table(table).replace("TABLE", "VIEW", 1))
            for table in _left(server, views=False):
                server.execute(drop_table(table))
            for names, drop in _HOLDERS[server.system_name]:
                for (name,) in server.query(f"{names} LIKE '%{RUN}%'"):
                    server.execute(drop.format(server.system.quote(str(name))))
        except TableferryError as error:
            print(f"what has {RUN} in its name may be left: {error}")


def _left(
    server: PostgresResource | SqlServerResource | ClickHouseResource, *, views: bool
) -> list[TableRef]:
    """The tables of the run, and their staging tables, which have names of their own; or views."""
    from tableferry.resources.tables import TableRef, staging_prefix

    kinds = {
        TableRef(server.system_name, str(schema), str(name)): str(kind)
        for schema, name, kind in server.query(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE TABLE_NAME LIKE '%{RUN}%' OR TABLE_NAME LIKE '%ferry%'"
        )
    }
    staging = tuple(staging_prefix(table) for table in kinds if RUN in table.name)
    ours = [one for one in kinds if RUN in str(one) or one.name.startswith(staging)]
    return [one for one in ours if (kinds[one] == "VIEW") == views]


_HOLDERS = {
    "postgres": (
        ("SELECT nspname FROM pg_namespace WHERE nspname", "DROP SCHEMA {} CASCADE"),
        ("SELECT datname FROM pg_database WHERE datname", "DROP DATABASE {} WITH (FORCE)"),
    ),
    "sqlserver": (("SELECT name FROM sys.schemas WHERE name", "DROP SCHEMA {}"),),
    "clickhouse": (("SELECT name FROM system.databases WHERE name", "DROP DATABASE {} SYNC"),),
}
"""By system: what names schemas and databases, and what drops one."""


def find() -> Servers:
    """The servers that the environment names; whichever it does not is the shared stack's."""
    found = {variable: os.environ.get(variable) for variable in (POSTGRES, SQLSERVER, CLICKHOUSE)}
    if (url := found[CLICKHOUSE]) and urlsplit(url).path != "/warehouse":
        pytest.exit(f"{CLICKHOUSE} must name the database warehouse: http://...:8123/warehouse")
    if not all(found.values()):
        stack = shared_stack()
        local = (stack.postgres_url, stack.sqlserver_url, stack.clickhouse_url)
        found = {
            variable: url or one for (variable, url), one in zip(found.items(), local, strict=True)
        }
    return Servers(*(str(url) for url in found.values()))
