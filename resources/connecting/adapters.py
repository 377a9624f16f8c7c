"""Servers made of the resources and engines that a project has, with their addresses and logins.

What they are made of brings its own package; none is imported here before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

from tableferry.resources.connecting.address import Variable
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError
from tableferry.resources.registry import systems

HTTP_PORTS = {False: 8123, True: 8443}
"""ClickHouse's ports for HTTP, without and with TLS."""

ODBC_DRIVERS = ("pyodbc", "aioodbc")
ODBC_NAMES = {"encrypt": "encrypt", "trustservercertificate": "trust_server_certificate"}
"""Options of ODBC's connection strings, in small letters, and their names in our URLs."""


def from_clickhouse(resource: Any, *, http_port: int | None = None) -> Endpoint:
    """Return the server of a `ClickhouseResource` of dagster-clickhouse.

    Args:
        resource: the resource, or another with its fields.
        http_port: the server's port for HTTP, by default 8123, or 8443 with TLS: the resource's own
            is that of the native protocol, which Tableferry does not speak.

    Raises:
        InputError: it has no such fields.
    """
    names = ("host", "user", "password", "database", "secure")
    if missing := [name for name in names if not hasattr(resource, name)]:
        raise InputError(f"{type(resource).__name__} has no {missing[0]}")
    host, user, password, database, secure = (getattr(resource, name) for name in names)
    return _server(
        "https",
        host=host,
        port=http_port or HTTP_PORTS[bool(secure)],
        user=user,
        database=database,
        secure=bool(secure),
        password=password,
    )


def from_psycopg(source: Any) -> Endpoint:
    """Return the server that psycopg 3 connects to.

    Args:
        source: a connection, a pool of psycopg_pool, or a connection string of libpq.

    Raises:
        InputError: it is none of these, or names no host.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    info = getattr(source, "info", None)
    text = getattr(source, "conninfo", source) if info is None else info.dsn
    if not isinstance(text, str):
        raise InputError(f"{type(source).__name__} is no connection, pool or string of psycopg")
    given = getattr(source, "kwargs", None)
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    more = given.items() if isinstance(given, Mapping) else ()
    try:
        options = conninfo_to_dict(text, **{name: value for name, value in more if name in known})
    except psycopg.ProgrammingError:
        raise InputError("this is no connection string of psycopg") from None  # it may be a secret
    password = options.pop("password", None) if info is None else info.password
    user, database = options.pop("user", None), options.pop("dbname", None)
    url = f"postgresql:///{quote(str(database or user or ''), safe='')}{_query(options)}"
    return _server("postgresql", url=url, user=user, password=password)


def from_sqlalchemy(source: Any) -> Endpoint:
    """Return the PostgreSQL or SQL Server of an engine or URL of SQLAlchemy, whatever its driver.

    Args:
        source: an engine, a URL or its text.

    Raises:
        InputError: it is none of these, is for another system, or has an option without equivalent.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(getattr(source, "url", source))
    except ArgumentError:
        raise InputError("this is no engine or URL of SQLAlchemy") from None  # it may be a secret
    scheme, options = url.get_backend_name(), dict(url.query)
    listed = options.pop("host", None) or f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    hosts = listed if isinstance(listed, str) else ",".join(listed)
    if "odbc_connect" in options:
        raise InputError("odbc_connect: the engine's URL should have host and login itself")
    if url.get_driver_name() in ODBC_DRIVERS:
        named = {name.lower(): value for name, value in options.items()}
        named.pop("driver", None)
        options = {ODBC_NAMES.get(name, name): value for name, value in named.items()}
    address = f"{scheme}://{hosts}/{quote(url.database or '', safe='')}{_query(options)}"
    return _server(scheme, url=address, user=url.username, password=url.password)


def _query(options: Mapping[str, Any]) -> str:
    query = urlencode({name: str(value) for name, value in options.items()}, quote_via=quote)
    return f"?{query}" if query else ""


def _server(scheme: str, **fields: Any) -> Endpoint:
    """Return the server of the system whose URLs have a scheme; empty fields are not given."""
    given = {
        # Dagster's own variables would be taken for texts
        name: Variable(value.env_var_name) if hasattr(value, "env_var_name") else value
        for name, value in fields.items()
        if value not in (None, "")
    }
    for system in systems():
        if scheme in system.schemes:
            return cast("Endpoint", system.resource(**given))
    raise InputError(f"there is no system for {scheme}:// here")
