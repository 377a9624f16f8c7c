"""What `ferry doctor` checks of a PostgreSQL server."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator

from tableferry.resources.connecting.health import (
    asked,
    clock,
    encryption,
    examine,
    login,
    privileges,
)
from tableferry.resources.contract.catalog import Finding, Use
from tableferry.resources.contract.markers import markers_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import POOL_SESSIONS
from tableferry.resources.postgres.storage import distributed, of_timescale
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import RIGHTS

OLDEST = 140000
"""The oldest server_version_num; docs/contributing/testing.md says which releases are tested."""

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""https://www.postgresql.org/docs/current/protocol-message-formats.html"""

FEW_CONNECTIONS = 10

VERIFY = (
    "Add ?sslmode=verify-full to the URL, and &sslrootcert=/path/ca.pem for an authority of your "
    "own."
)

PRIVILEGES_SQL = f"""
SELECT w.s, w.t, n.oid IS NOT NULL AND has_schema_privilege(n.oid, 'USAGE'), c.oid IS NOT NULL,
    has_any_column_privilege(c.oid, 'SELECT'), row_security_active(c.oid),
    {", ".join(f"has_table_privilege(c.oid, '{right}')" for right in RIGHTS)}
FROM (VALUES {{tables}}) w(s, t)
LEFT JOIN pg_namespace n ON n.nspname = w.s
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

SCHEMAS_SQL = """
SELECT w.s, n.oid IS NOT NULL, n.oid IS NOT NULL AND has_schema_privilege(n.oid, 'USAGE')
    AND has_schema_privilege(n.oid, 'CREATE')
FROM unnest(ARRAY[{schemas}]) w(s) LEFT JOIN pg_namespace n ON n.nspname = w.s
"""

ENCRYPTED_BY = """
SELECT CASE WHEN s.ssl THEN s.version END, coalesce(g.encrypted, false)
FROM pg_stat_ssl AS s LEFT JOIN pg_stat_gssapi AS g ON g.pid = s.pid
WHERE s.pid = pg_backend_pid()
"""


def findings(resource: PostgresServer, use: Use) -> Iterator[Finding]:
    """See `Inspection.health`."""
    return asked(
        [
            ("version", lambda: _version(resource)),
            ("login", lambda: [_login(resource)]),
            ("TLS", lambda: _encryption(resource)),
            ("privileges", lambda: _privileges(resource, use)),
            ("tables", lambda: _extensions(resource, use)),
            ("snapshot", lambda: _snapshot(resource)),
            ("connections", lambda: _connections(resource)),
            ("clock", lambda: clock(resource, "SELECT extract(epoch FROM clock_timestamp())")),
        ]
    )


def _version(resource: PostgresServer) -> Iterator[Finding]:
    sql = "SELECT version(), current_setting('server_version_num')::int"
    whole, number = resource.query(sql)[0]
    if number < OLDEST:
        do = "Upgrade it to 14 or later."
        yield Finding("version", "problem", f"{whole} is too old", (do,))
    else:
        yield Finding("version", "ok", str(whole))


def _login(resource: PostgresServer) -> Finding:
    certificate = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    with resource.session() as session:
        ((user,),) = session.query("SELECT session_user::text")
        (name,) = (session.query(certificate) or [(None,)])[0]
        used = session.raw.pgconn
    if used.used_gssapi:
        how = "Kerberos"
    elif used.used_password:
        # libpq may have it from PGPASSWORD or a file of its own
        settings = resource.settings()
        how = settings.secret() if settings.has_password else "a password that libpq has found"
    else:
        how = f"the certificate {name}" if name else "no secret, as the server asks for none"
    return login(str(user), how)


def _encryption(resource: PostgresServer) -> Iterator[Finding]:
    settings = resource.settings()
    rows = resource.query(ENCRYPTED_BY)
    encrypted, by_ticket = rows[0] if rows else (None, False)
    mode = settings.options.get("sslmode", "prefer")
    certificate = None
    if by_ticket:  # either end has shown the other who it is
        encrypted = "GSSAPI"
    elif encrypted:
        authority = settings.options.get("sslrootcert")
        authority = None if authority in (None, "system") else authority
        certificate = examine(settings.host, settings.port, authority=authority, start=_start)
    yield from encryption(
        settings.host,
        encrypted,
        verified=by_ticket or mode == "verify-full",
        certificate=certificate,
        do=VERIFY,
    )


def _start(plain: socket.socket) -> bool:
    plain.sendall(SSL_REQUEST)
    return plain.recv(1) == b"S"


def _reader(use: Use) -> Iterator[str]:
    """The statements that create a role with read access to the sources alone."""
    yield "CREATE ROLE ferry LOGIN PASSWORD '...';"
    for schema in dict.fromkeys(table.schema for table in use.reads):
        yield f"GRANT USAGE ON SCHEMA {DIALECT.quote(schema)} TO ferry;"
    for table in use.reads:
        yield f"GRANT SELECT ON {qualified(table)} TO ferry;"


def _privileges(resource: PostgresServer, use: Use) -> Iterator[Finding]:
    user, superuser = resource.query(
        "SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user"
    )[0]
    if superuser and not use.writes:
        says = f"{user} is a superuser; a role that may only read is enough"
        yield Finding("privileges", "note", says, tuple(_reader(use)))
    role = DIALECT.quote(user)
    written = {*use.writes, *map(markers_of, use.writes)}
    # a table that is written may not exist yet, and will be the login's own
    tables = {(table.schema, table.name): table for table in (*use.reads, *written)}
    missing = _missing_on_schemas(resource, use, role)
    rows = resource.query(PRIVILEGES_SQL.format(tables=_values(tables.values()))) if tables else []
    for schema, name, usage, exists, some, hidden, *has in rows:
        table = tables[schema, name]
        if table in written:
            if exists and not all(has):
                missing.append(f"GRANT {', '.join(RIGHTS)} ON {qualified(table)} TO {role};")
            continue
        if not usage:
            missing.append(f"GRANT USAGE ON SCHEMA {DIALECT.quote(schema)} TO {role};")
        if not exists:
            says = f"{table} does not exist, or is hidden from {user}"
            yield Finding("tables", "warning", says, ("`ferry validate` names the file and line.",))
        elif not has[RIGHTS.index("SELECT")] and some:
            says = (
                f"{user} may read some columns of {table} only: `exclude` the others; row versions "
                "come with the whole table, so that `fingerprint: auto` goes by the content"
            )
            yield Finding("privileges", "warning", says)
        elif not some:
            missing.append(f"GRANT SELECT ON {qualified(table)} TO {role};")
        if hidden:
            says = f"row security hides rows of {table} from {user}; transfers of it are refused"
            do = (f"ALTER ROLE {role} BYPASSRLS;", "Or declare 'row_security: apply'.")
            yield Finding("row security", "warning", says, do)
    tables_used = len({*use.reads, *use.writes})
    yield from privileges(user, list(dict.fromkeys(missing)), tables_used)


def _missing_on_schemas(resource: PostgresServer, use: Use, role: str) -> list[str]:
    """The missing grants on the schemas of targets, which get staging tables."""
    missing: list[str] = []
    if not use.writes:
        return missing
    schemas = ", ".join(map(DIALECT.literal, dict.fromkeys(table.schema for table in use.writes)))
    for schema, exists, allowed in resource.query(SCHEMAS_SQL.format(schemas=schemas)):
        name = DIALECT.quote(schema)
        if not exists:
            missing.append(f"CREATE SCHEMA {name} AUTHORIZATION {role};")
        elif not allowed:
            missing.append(f"GRANT USAGE, CREATE ON SCHEMA {name} TO {role};")
    return missing


def _values(tables: Iterable[TableRef]) -> str:
    return ", ".join(
        f"({DIALECT.literal(table.schema)}, {DIALECT.literal(table.name)})" for table in tables
    )


def _extensions(resource: PostgresServer, use: Use) -> Iterator[Finding]:
    for table in dict.fromkeys([*use.reads, *use.writes]):
        if why := distributed(resource, table):
            yield Finding("tables", "problem", f"{table}: {why}")
        if says := of_timescale(resource, table):
            yield Finding("tables", "note", f"{table} is {says}")


def _snapshot(resource: PostgresServer) -> Iterator[Finding]:
    standby, feedback = resource.query(
        "SELECT pg_is_in_recovery(), current_setting('hot_standby_feedback') = 'on'"
    )[0]
    if standby and not feedback:
        do = "Set hot_standby_feedback = on there, or read the primary."
        says = "this is a standby, which may cancel a long read"
        yield Finding("snapshot", "warning", says, (do,))
    if resource.settings().facts.latest(POOL_SESSIONS, 2) < 2:
        says = "the one session of the pool leaves none to hold it: each range is read by itself"
        yield Finding("snapshot", "note", says)
        return
    with resource.snapshot() as snapshot:
        resource.query("SELECT 1", snapshot=str(snapshot))
    yield Finding("snapshot", "ok", "all ranges of a run read one state of the database")


def _connections(resource: PostgresServer) -> Iterator[Finding]:
    most, used = resource.query(
        "SELECT current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
    )[0]
    free = most - used
    if free >= FEW_CONNECTIONS:
        yield Finding("connections", "ok", f"{free} of {most} are free")
    else:
        do = "Raise max_connections, or lower `parallel` of the transfers."
        yield Finding("connections", "warning", f"only {free} of {most} are free", (do,))
