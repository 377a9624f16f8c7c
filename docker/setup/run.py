"""Prepares the servers of docker-compose.yml: databases, Tableferry's users, the demo's tables.

It runs the .sql files beside it, which are meant for servers of one's own too: their variables are
those of psql and sqlcmd. Every `docker compose up` repeats all of it, and changes no row of a table
and no password of a user that is there already.

Environment: `ADMIN_POSTGRES_URL`, `ADMIN_SQLSERVER_URL` and `ADMIN_CLICKHOUSE_URL` of users who may
do all that; `FERRY_POSTGRES_URL` and `FERRY_SQLSERVER_URL` with the users to make, as
`TABLEFERRY_..._URL` has them. Each may be in a file that `..._URL_FILE` names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import sql

from tableferry.pipelines.command.plugins import load_demo_data
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import passwords
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.sqlserver.resource import SqlServerResource

HERE = Path(__file__).parent


def main() -> int:
    """Prepare all three servers; returns the exit code."""
    try:
        source, middle, last = (
            _setting(f"ADMIN_{name}_URL") for name in ("POSTGRES", "SQLSERVER", "CLICKHOUSE")
        )
        reader, loader = (_setting(f"FERRY_{name}_URL") for name in ("POSTGRES", "SQLSERVER"))
        counts = load_demo_data(source)
        _say("postgres", f"the demo's tables have {sum(counts.values()):,} rows")
        postgres(source, reader)
        sqlserver(middle, loader)
        clickhouse(last)
    except (TableferryError, psycopg.Error) as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def postgres(admin: str, ferry: str) -> None:
    """Make the role of the URL `ferry`, who reads the database that `admin` is connected to."""
    user, password, _ = _login(ferry)
    with psycopg.connect(admin) as connection:
        psql(connection, "postgres.sql", {"user": user, "password": password})
        _say("postgres", f"{user} reads {connection.info.dbname}")


def psql(
    connection: psycopg.Connection[tuple[Any, ...]], file: str, variables: Mapping[str, str]
) -> None:
    """Run a file as psql does: with what it includes, and its variables as literals or names."""
    values = {**variables, "DBNAME": connection.info.dbname}

    def value(match: re.Match[str]) -> str:
        kind = sql.Literal if match[1] == "'" else sql.Identifier
        return kind(values[match[2]]).as_string(connection)

    text = re.sub(r"^\\ir (.+)$", lambda match: _read(match[1]), _read(file), flags=re.MULTILINE)
    connection.execute(re.sub(r":(['\"])(\w+)\1", value, text).encode())


def sqlserver(admin: str, ferry: str) -> None:
    """Make the database of the URL `ferry`, and its login, which may load tables into `dbo`."""
    user, password, database = _login(ferry)
    values = {"user": user, "password": password, "database": database}
    text = re.sub(
        r"\$\((\w+)\)", lambda match: values[match[1]].replace("'", "''"), _read("sqlserver.sql")
    )
    with SqlServerResource(url=admin).connection() as connection:
        for batch in re.split(r"^GO$", text, flags=re.MULTILINE):
            if batch.strip():
                connection.execute(batch)
    _say("sqlserver", f"{user} loads and reads {database}")


def clickhouse(admin: str) -> None:
    """Make the database; its user is in the server's own files."""
    resource = ClickHouseResource(url=admin)
    for statement in _read("clickhouse.sql").split(";"):
        if statement.strip():
            resource.execute(statement)
    _say("clickhouse", "warehouse is there")


def _login(url: str) -> tuple[str, str, str]:
    parts = urlsplit(url)
    return unquote(parts.username or ""), unquote(parts.password or ""), parts.path.strip("/")


def _setting(name: str) -> str:
    value = passwords.from_environment(name)
    if not value:
        raise InputError(f"{name} is not set")
    return value


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _say(server: str, what: str) -> None:
    print(f"setup: {server}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
