"""The checks of `ferry doctor` for a SQL Server, and for bcp on this machine."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator

from tableferry.resources.artifacts import artifact_folder
from tableferry.resources.connecting import health
from tableferry.resources.contract.catalog import Finding, Use
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.bcp_tool import find_tool
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.sqlserver.policies import is_babelfish, withheld
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.trial import shut_out, takes_decimals, trial

OLDEST = 15
"""SQL Server 2019."""

ON_DATABASE = ("CREATE TABLE", "CREATE VIEW", "VIEW DEFINITION")
ON_SCHEMA = ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER")
"""Permissions that loading needs; docs/operations.md says for what."""

VERIFY = (
    "Leave trust_server_certificate out of the URL, use the host's name of the certificate, and "
    "install the server's authority on this machine, or name its file by the variable "
    "SSL_CERT_FILE; with encrypt=strict, server_certificate=/path.pem names the certificate itself."
)

SNAPSHOTS = "SELECT snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()"

VOLUMES = """
SELECT DISTINCT v.volume_mount_point, v.available_bytes, v.total_bytes
FROM sys.database_files AS f CROSS APPLY sys.dm_os_volume_stats(DB_ID(), f.file_id) AS v
"""

PRELOGIN, ENCRYPT = 0x12, 0x01
"""A packet type, and the option that requests TLS (MS-TDS 2.2.3.1, 2.2.6.5)."""


def findings(resource: SqlServerServer, use: Use) -> Iterator[Finding]:
    """See `System.health`."""
    # a scalar of datetime2 would come without its zone
    now = "SELECT DATEDIFF_BIG(second, '1970-01-01', SYSUTCDATETIME())"
    return health.asked(
        [
            ("login", lambda: _login(resource)),
            ("version", lambda: _version(resource)),
            ("TLS", lambda: _encryption(resource)),
            ("privileges", lambda: _privileges(resource, use)),
            ("row security", lambda: _policies(resource, use)),
            ("snapshot isolation", lambda: _snapshots(resource)),
            ("disk", lambda: _volumes(resource)),
            ("clock", lambda: health.clock(resource, now)),
            ("bulk copy", lambda: _bulk_copy(resource, use)),
            ("bcp", lambda: _tools(resource)),
        ]
    )


def _login(resource: SqlServerServer) -> Iterator[Finding]:
    yield health.login(str(resource.query("SELECT SUSER_NAME()")[0][0]), str(resource.login()))


def _version(resource: SqlServerServer) -> Iterator[Finding]:
    number = "SELECT CAST(SERVERPROPERTY('productversion') AS nvarchar(99))"
    major = str(resource.query(number)[0][0]).partition(".")[0]
    if major.isdigit() and int(major) < OLDEST and not is_babelfish(resource):
        do = "Upgrade it to 2019 or later."
        yield Finding("version", "problem", f"{resource.ping()} is too old", (do,))


def _encryption(resource: SqlServerServer) -> Iterator[Finding]:
    settings, how = resource.settings(), resource.encryption()
    certificate = None
    if how.encrypt == "strict":
        certificate = health.examine(settings.host, settings.port)
    elif how.encrypt == "yes":
        certificate = health.examine(
            settings.host, settings.port, start=_start, handshake=_handshake
        )
    yield from health.encryption(
        settings.host,
        {"yes": "TLS", "strict": "TLS from the first byte (strict)"}.get(how.encrypt),
        verified=not how.trust or how.certificate is not None,
        certificate=certificate,
        do=VERIFY,
    )


def _start(plain: socket.socket) -> bool:
    """Send the client's first packet (version, encryption, end); return whether TLS follows."""
    options = struct.pack(">BHHBHHB", 0, 11, 6, 1, 17, 1, 0xFF)
    _send(plain, options + bytes(6) + bytes([ENCRYPT]))
    answer = _receive(plain)
    at = 0
    while at + 5 <= len(answer) and answer[at] != 0xFF:
        token, offset, _ = struct.unpack_from(">BHH", answer, at)
        if token == 1:
            return answer[offset] in (1, 3)  # on, required
        at += 5
    return False


def _handshake(plain: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Shake hands for TLS within prelogin packets (MS-TDS 2.2.6.5)."""
    # TLS 1.3 sends tickets after its handshake, so TDS 7 stops at 1.2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(coming, going, server_hostname=host)
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            if data := going.read():
                _send(plain, data)
            coming.write(_receive(plain))
        else:
            return secured


def _send(plain: socket.socket, data: bytes) -> None:
    plain.sendall(struct.pack(">BBHHBB", PRELOGIN, 1, len(data) + 8, 0, 0, 0) + data)


def _receive(plain: socket.socket) -> bytes:
    """Receive the contents of one message."""
    message = b""
    last = False
    while not last:
        head = _receive_exactly(plain, 8)
        last = bool(head[1] & 1)
        message += _receive_exactly(plain, struct.unpack_from(">H", head, 2)[0] - 8)
    return message


def _receive_exactly(plain: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = plain.recv(size - len(data))
        if not part:
            raise OSError("the server hung up")
        data += part
    return data


def _privileges(resource: SqlServerServer, use: Use) -> Iterator[Finding]:
    user, babelfish = _user(resource), is_babelfish(resource)
    to = DIALECT.quote(user)
    missing = []
    for permission in ON_DATABASE if use.writes else ON_DATABASE[-1:]:
        # Babelfish shows everything, and has no such grant
        known = permission == "VIEW DEFINITION" and babelfish
        if not known and _may(resource, None, "DATABASE", permission) is False:
            missing.append(f"GRANT {permission} TO {to};")
    for schema in dict.fromkeys(table.schema for table in use.writes):
        name = DIALECT.quote(schema)
        if resource.query(f"SELECT SCHEMA_ID({literal(schema)})")[0][0] is None:
            yield Finding(
                "schema",
                "note",
                f"there is no schema {schema!r}; it is created, if {user} may do that",
                (f"CREATE SCHEMA {name} AUTHORIZATION {to};",),
            )
            continue
        lacking = [right for right in ON_SCHEMA if _may(resource, name, "SCHEMA", right) is False]
        if lacking and babelfish:
            # Babelfish has neither these grants on a schema nor ALTER AUTHORIZATION
            missing.append(
                f"CREATE SCHEMA loaded AUTHORIZATION {to}; -- and hops to it, in place of {name}"
            )
        elif lacking:
            missing.append(f"GRANT {', '.join(lacking)} ON SCHEMA::{name} TO {to};")
    written = {(table.schema, table.name) for table in use.writes}
    for table in use.reads:
        # a table that hops write may not exist yet; one that the login may not see gives None
        readable = (table.schema, table.name) in written or _may(
            resource, qualified(table), "OBJECT", "SELECT"
        )
        if not readable:
            missing.append(f"GRANT SELECT ON {qualified(table)} TO {to};")
    read = {(table.schema, table.name) for table in use.reads}
    yield from health.privileges(user, missing, len(read | written))


def _user(resource: SqlServerServer) -> str:
    return str(resource.query("SELECT USER_NAME()")[0][0])


def _may(resource: SqlServerServer, name: str | None, kind: str, permission: str) -> bool | None:
    """Whether the login has a permission; None if the server does not say."""
    securable = "NULL" if name is None else literal(name)
    sql = f"SELECT HAS_PERMS_BY_NAME({securable}, '{kind}', '{permission}')"
    answer = resource.query(sql)[0][0]
    return None if answer is None else bool(answer)


def _policies(resource: SqlServerServer, use: Use) -> Iterator[Finding]:
    for tables in groups((*use.reads, *use.writes)):
        for table, (why, _) in withheld(resource, tables).items():
            if why:
                yield Finding("row security", "warning", f"{table}: {why}", ())


def _snapshots(resource: SqlServerServer) -> Iterator[Finding]:
    database = resource.settings().database
    if int(resource.query(SNAPSHOTS)[0][0] or 0) == 1:
        yield Finding("snapshot isolation", "ok", "is allowed: a range is read as of one moment")
        return
    yield Finding(
        "snapshot isolation",
        "warning",
        "is off: rows that change while a range is read make it be read again",
        (f"ALTER DATABASE {DIALECT.quote(database)} SET ALLOW_SNAPSHOT_ISOLATION ON;",),
    )


def _volumes(resource: SqlServerServer) -> Iterator[Finding]:
    for name, free, total in resource.query(VOLUMES):
        yield health.disk(str(name), int(free), int(total))


def _bulk_copy(resource: SqlServerServer, use: Use) -> Iterator[Finding]:
    if why := shut_out(resource, "arrow"):
        do = "Hops with `wire: auto` take bcp; log in to the server in another way to have more."
        yield Finding("bulk copy", "warning" if use.writes else "note", why, (do,))
    elif use.writes and (why := trial(resource, use.writes[0], "arrow")):
        yield Finding("bulk copy", "problem", why, ())
    elif use.writes and not takes_decimals(resource, use.writes[0]):
        says = "decimals of 38 digits do not arrive as they are: a run refuses each by name"
        yield Finding("bulk copy", "note", says, ())


def _tools(resource: SqlServerServer) -> Iterator[Finding]:
    try:
        tool = find_tool()
    except InputError as error:
        yield Finding("bcp", "note", f"only `wire: text` needs it: {error}")
        return
    yield Finding("bcp", "ok", f"{tool.path} ({tool.kind})")
    folder = artifact_folder()
    yield health.disk_of(folder, f"{folder}, for bcp's files")
