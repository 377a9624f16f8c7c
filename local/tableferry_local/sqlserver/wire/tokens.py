"""The tokens of a TDS reply, as bytes ([MS-TDS] 2.2.7)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tableferry_local.sqlserver.types.sqltype import ResultColumn
from tableferry_local.sqlserver.wire.wiretypes import COLLATION, type_info

DONE = 0xFD
MORE, ERROR, COUNT, ATTENTION = 0x01, 0x02, 0x10, 0x20

PROGRAM = "Microsoft SQL Server"
# SQL Server 2019, as @@VERSION says too: clients switch features on by it.
VERSION = (15, 0, 4430)
TDS_74 = 0x74000004

# CurCmd of DONE: what @@ROWCOUNT-minded clients look at.
_COMMANDS = {
    "SELECT": 0xC1,
    "INSERT": 0xC3,
    "DELETE": 0xC4,
    "UPDATE": 0xC5,
    "BEGIN TRANSACTION": 0xD4,
    "COMMIT TRANSACTION": 0xD5,
    "ROLLBACK TRANSACTION": 0xD2,
    "CREATE TABLE": 0xC6,
    "DROP TABLE": 0xC7,
    "INSERT BULK": 0xF0,
    "EXECUTE": 0xE0,
}


def short_text(text: str) -> bytes:
    """B_VARCHAR: up to 255 UTF-16 units."""
    data = text.encode("utf-16-le", "surrogatepass")[:510]
    return bytes((len(data) // 2,)) + data


def long_text(text: str) -> bytes:
    """US_VARCHAR: up to 65535 UTF-16 units."""
    # A token's own length is 16 bits as well, hence the lower limit.
    data = text.encode("utf-16-le", "surrogatepass")[:8000]
    return struct.pack("<H", len(data) // 2) + data


def done(*, command: str = "", rowcount: int | None = None, status: int = 0) -> bytes:
    """DONE."""
    if rowcount is not None:
        status |= COUNT
    return struct.pack("<BHHQ", DONE, status, _COMMANDS.get(command, 0), rowcount or 0)


def message(
    number: int,
    text: str,
    *,
    severity: int,
    state: int = 1,
    line: int = 1,
    server: str = "",
) -> bytes:
    """INFO up to severity 10, ERROR above."""
    body = (
        struct.pack("<iBB", number, state, severity)
        + long_text(text)
        + short_text(server)
        + short_text("")  # of a procedure
        + struct.pack("<i", line)
    )
    return struct.pack("<BH", 0xAB if severity <= 10 else 0xAA, len(body)) + body


def env_change(kind: int, new: bytes, old: bytes) -> bytes:
    """ENVCHANGE with values that are encoded already, their lengths included."""
    return struct.pack("<BHB", 0xE3, 1 + len(new) + len(old), kind) + new + old


def database_changed(new: str, old: str) -> bytes:
    """ENVCHANGE for USE."""
    return env_change(1, short_text(new), short_text(old))


def language_changed(new: str, old: str) -> bytes:
    """ENVCHANGE for the language."""
    return env_change(2, short_text(new), short_text(old))


def packet_size_changed(new: int, old: int) -> bytes:
    """ENVCHANGE for the packet size."""
    return env_change(4, short_text(str(new)), short_text(str(old)))


def collation_set() -> bytes:
    """ENVCHANGE that names the server's collation."""
    return env_change(7, bytes((len(COLLATION),)) + COLLATION, b"\0")


def transaction_begun(descriptor: int) -> bytes:
    """ENVCHANGE that gives the client its transaction descriptor."""
    return env_change(8, struct.pack("<BQ", 8, descriptor), b"\0")


def transaction_ended(descriptor: int, *, committed: bool) -> bytes:
    """ENVCHANGE that takes the transaction descriptor back."""
    return env_change(9 if committed else 10, b"\0", struct.pack("<BQ", 8, descriptor))


def reset_done() -> bytes:
    """ENVCHANGE that acknowledges RESETCONNECTION."""
    return env_change(18, b"\0", b"\0")


def login_ack(tds_version: int) -> bytes:
    """LOGINACK."""
    major, minor, build = VERSION
    body = (
        struct.pack(">BI", 1, tds_version)
        + short_text(PROGRAM)
        + struct.pack(">BBH", major, minor, build)
    )
    return struct.pack("<BH", 0xAD, len(body)) + body


def feature_ack(features: Sequence[tuple[int, bytes]]) -> bytes:
    """FEATUREEXTACK."""
    body = b"".join(struct.pack("<BI", kind, len(data)) + data for kind, data in features)
    return b"\xae" + body + b"\xff"


def column_metadata(columns: Sequence[ResultColumn]) -> bytes:
    """COLMETADATA: what the rows that follow consist of."""
    return struct.pack("<BH", 0x81, len(columns)) + b"".join(_column(c) for c in columns)


def _column(column: ResultColumn) -> bytes:
    # 0x0008: updatability unknown, as SQL Server says outside of browse mode.
    flags = int(column.nullable) | 0x08 | column.identity << 4 | column.computed << 5
    user_type = 80 if column.type.name == "timestamp" else 0
    table = b"\x01\x00\x00" if column.type.name in ("text", "ntext", "image") else b""
    head = struct.pack("<IH", user_type, flags)
    return head + type_info(column.type) + table + short_text(column.name)
