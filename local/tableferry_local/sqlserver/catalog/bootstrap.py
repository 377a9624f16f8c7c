"""Makes a PostgreSQL database ready to stand in for SQL Server."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from tableferry_local.sqlserver.catalog.link import Link
from tableferry_local.sqlserver.catalog.tables import DEFAULT_SCHEMA, pg_name, quoted
from tableferry_local.sqlserver.catalog.views import SYSTEM_VIEWS
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import SYSTEM_TYPES
from tableferry_local.sqlserver.types.value import literal

_FOLDER = Path(__file__).parent
_LOCK = 0x7453514C  # any number that is ours; two servers may start at once
_SYSNAME_ID = 256


def bootstrap(postgres_url: str, databases: Sequence[str] = ()) -> None:
    """Create our schema in PostgreSQL unless it is there in this version, and databases.

    Args:
        postgres_url: a PostgreSQL database for the stand-in alone.
        databases: T-SQL databases to create besides master, tempdb, model and msdb.
    """
    link = Link(postgres_url)
    try:
        link.run(f"SELECT pg_advisory_lock({_LOCK})")
        link.run("SET client_min_messages = warning; SET check_function_bodies = off")
        _install(link)
        for name in ("master", "tempdb", "model", "msdb", *databases):
            if not link.rows("SELECT FROM sys._database WHERE key = $1", [name.lower()]):
                create_database(link, name)
        # temporary tables are gone with their sessions, what we know of them is not
        link.run(
            "DELETE FROM sys._column k WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = "
            "k.oid);"
            "DELETE FROM sys._index i WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = "
            "i.oid);"
            "DELETE FROM sys._relation r WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid "
            "= r.oid)"
        )
    finally:
        link.close()


def create_database(link: Link, name: str) -> None:
    """Create a T-SQL database: a group of PostgreSQL schemas.

    Raises:
        SqlError: 1801, it exists.
    """
    if link.rows("SELECT FROM sys._database WHERE key = $1", [name.lower()]):
        raise SqlError(
            1801, 16, f"Database '{name}' already exists. Choose a different database name.", 3
        )
    link.run(
        "INSERT INTO sys._database (id, name, key) "
        f"SELECT COALESCE(max(id), 0) + 1, {literal(name)}, {literal(name.lower())} FROM "
        "sys._database;" + schema_sql(name, DEFAULT_SCHEMA)
    )


def schema_sql(database: str, schema: str) -> str:
    """SQL that creates a schema of a T-SQL database."""
    pg_schema = pg_name(f"{database}.{schema}")
    number = "OVERRIDING SYSTEM VALUE VALUES (1," if schema == DEFAULT_SCHEMA else "VALUES ("
    columns = "id, database" if schema == DEFAULT_SCHEMA else "database"
    return (
        f"CREATE SCHEMA {quoted(pg_schema)}; INSERT INTO sys._schema ({columns}, name, "
        f"pg_schema) {number} "
        f"{literal(database.lower())}, {literal(schema)}, {literal(pg_schema)})"
    )


@functools.cache
def _scripts() -> tuple[str, str, str, str]:
    functions = (_FOLDER / "functions.sql").read_text()
    tables, _, more = (_FOLDER / "catalog.sql").read_text().partition("-- functions")
    replaceable = functions.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    head, _, rest = replaceable.partition("CREATE OR REPLACE FUNCTION")
    body = (
        "CREATE OR REPLACE FUNCTION"
        + rest
        + more.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    )
    views = ";\n".join(
        dict.fromkeys(
            f'DROP FUNCTION IF EXISTS sys."{view.function}"(text);\n{view.ddl}'
            for view in SYSTEM_VIEWS.values()
        )
    )
    digest = hashlib.sha256((tables + head + body + views).encode()).hexdigest()
    return head + tables, body, views, digest


def _install(link: Link) -> None:
    once, functions, views, digest = _scripts()
    if not link.rows("SELECT FROM pg_namespace WHERE nspname = 'sys'"):
        link.run(f"BEGIN; CREATE SCHEMA sys; CREATE TABLE sys._version (digest text);{once};COMMIT")
    if link.rows("SELECT FROM sys._version WHERE digest = $1", [digest]):
        return
    types = [
        (name, ids[0], _SYSNAME_ID if name == "sysname" else ids[0], *ids[1:])
        for name, ids in SYSTEM_TYPES.items()
    ]
    rows = ", ".join(f"({literal(name)}, {', '.join(map(str, rest))})" for name, *rest in types)
    link.run(
        f"BEGIN; {functions}; {views}; TRUNCATE sys._type; INSERT INTO sys._type VALUES {rows};"
        f"TRUNCATE sys._version; INSERT INTO sys._version VALUES ('{digest}'); COMMIT"
    )
