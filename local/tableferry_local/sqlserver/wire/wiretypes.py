"""TYPE_INFO: how TDS names a type on the wire, in both directions ([MS-TDS] 2.2.5.4 to 2.2.5.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tableferry_local.sqlserver.types.sqltype import CODE_PAGE, MAX, SqlType
from tableferry_local.sqlserver.wire.packets import ProtocolError

# LCID 1033, case- and width- and kana-insensitive, sort order 52: SQL_Latin1_General_CP1_CI_AS.
COLLATION = bytes.fromhex("0904d00034")
_UTF8_COLLATION_FLAG = 1 << 26

INTN, BITN, FLTN, MONEYN, DATETIMN, GUID = 0x26, 0x68, 0x6D, 0x6E, 0x6F, 0x24
DECIMALN, NUMERICN = 0x6A, 0x6C
DATEN, TIMEN, DATETIME2N, DATETIMEOFFSETN = 0x28, 0x29, 0x2A, 0x2B
BIGVARBINARY, BIGVARCHAR, BIGBINARY, BIGCHAR = 0xA5, 0xA7, 0xAD, 0xAF
NVARCHAR, NCHAR, XML = 0xE7, 0xEF, 0xF1
IMAGE, TEXT, NTEXT = 0x22, 0x23, 0x63

# Fixed-length types without a length byte: id -> (nullable counterpart, bytes)
FIXED = {
    0x30: (INTN, 1),
    0x32: (BITN, 1),
    0x34: (INTN, 2),
    0x38: (INTN, 4),
    0x3A: (DATETIMN, 4),
    0x3B: (FLTN, 4),
    0x3C: (MONEYN, 8),
    0x3D: (DATETIMN, 8),
    0x3E: (FLTN, 8),
    0x7A: (MONEYN, 4),
    0x7F: (INTN, 8),
}

_BY_LENGTH = {
    INTN: {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"},
    BITN: {1: "bit"},
    FLTN: {4: "real", 8: "float"},
    MONEYN: {4: "smallmoney", 8: "money"},
    DATETIMN: {4: "smalldatetime", 8: "datetime"},
}
_LONG_IDS = {"text": TEXT, "ntext": NTEXT, "image": IMAGE}
_SIZED_IDS = {
    "varchar": BIGVARCHAR,
    "char": BIGCHAR,
    "nvarchar": NVARCHAR,
    "nchar": NCHAR,
    "varbinary": BIGVARBINARY,
    "binary": BIGBINARY,
    "timestamp": BIGBINARY,
}
_SIZED_NAMES = {code: name for name, code in _SIZED_IDS.items() if name != "timestamp"}
_TEMPORAL_IDS = {"time": TIMEN, "datetime2": DATETIME2N, "datetimeoffset": DATETIMEOFFSETN}
_TEMPORAL_NAMES = {code: name for name, code in _TEMPORAL_IDS.items()}
_LENGTHS = {
    name: (code, size) for code, sizes in _BY_LENGTH.items() for size, name in sizes.items()
}


@dataclass(frozen=True)
class WireType:
    """A type as a TYPE_INFO says it.

    `length` is the maximum in bytes; `plp` says that values come in chunks; `fixed` that there is
    no length byte before the value; `long` that a text pointer precedes it.
    """

    code: int
    length: int = 0
    precision: int = 0
    scale: int = 0
    encoding: str = CODE_PAGE
    plp: bool = False
    fixed: bool = False

    @property
    def long(self) -> bool:
        return self.code in (TEXT, NTEXT, IMAGE)

    @property
    def sql_type(self) -> SqlType:
        """The T-SQL type it stands for."""
        if self.code in _BY_LENGTH:
            return SqlType(_BY_LENGTH[self.code][self.length])
        if self.code in (DECIMALN, NUMERICN):
            return SqlType("decimal", precision=self.precision, scale=self.scale)
        if self.code in _TEMPORAL_NAMES:
            return SqlType(_TEMPORAL_NAMES[self.code], scale=self.scale)
        if self.code in _SIZED_NAMES:
            name = _SIZED_NAMES[self.code]
            if self.plp:
                return SqlType(name, MAX)
            return SqlType(name, max(1, self.length // 2 if name[0] == "n" else self.length))
        names = {DATEN: "date", GUID: "uniqueidentifier", XML: "xml"}
        names |= {TEXT: "text", NTEXT: "ntext", IMAGE: "image"}
        return SqlType(names[self.code])


def read_type_info(data: bytes, at: int) -> tuple[WireType, int]:
    """Read a TYPE_INFO; returns it and the offset behind it."""
    code = data[at]
    at += 1
    if code in FIXED:
        nullable, size = FIXED[code]
        return WireType(nullable, size, fixed=True), at
    if code in _BY_LENGTH or code == GUID:
        return WireType(code, data[at]), at + 1
    if code in (DECIMALN, NUMERICN):
        return WireType(code, data[at], data[at + 1], data[at + 2]), at + 3
    if code == DATEN:
        return WireType(code, 3), at
    if code in _TEMPORAL_NAMES:
        return WireType(code, 10, scale=data[at]), at + 1
    if code in _SIZED_NAMES:
        (length,) = struct.unpack_from("<H", data, at)
        at += 2
        encoding = "utf-16-le" if code in (NVARCHAR, NCHAR) else CODE_PAGE
        if code not in (BIGVARBINARY, BIGBINARY):
            if code in (BIGVARCHAR, BIGCHAR):
                encoding = _encoding(data, at)
            at += 5
        return WireType(code, length, encoding=encoding, plp=length == 0xFFFF), at
    if code in (TEXT, NTEXT, IMAGE):
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        encoding = CODE_PAGE
        if code != IMAGE:
            encoding = "utf-16-le" if code == NTEXT else _encoding(data, at)
            at += 5
        return WireType(code, length, encoding=encoding), at
    if code == XML:
        if data[at]:
            raise ProtocolError("typed xml is not supported")
        return WireType(code, 0xFFFF, encoding="utf-16-le", plp=True), at + 1
    raise ProtocolError(f"type 0x{code:02X} is not supported")


def _encoding(data: bytes, at: int) -> str:
    (info,) = struct.unpack_from("<I", data, at)
    return "utf-8" if info & _UTF8_COLLATION_FLAG else CODE_PAGE


def type_info(sql_type: SqlType) -> bytes:
    """The TYPE_INFO that announces a type, in its nullable form."""
    name = sql_type.name
    if name in _LENGTHS:
        return bytes(_LENGTHS[name])
    if name in ("decimal", "numeric"):
        precision = sql_type.precision or 18
        code = DECIMALN if name == "decimal" else NUMERICN
        return bytes((code, decimal_length(precision), precision, sql_type.scale or 0))
    if name in _TEMPORAL_IDS:
        return bytes((_TEMPORAL_IDS[name], time_scale(sql_type)))
    if name == "date":
        return bytes((DATEN,))
    if name == "uniqueidentifier":
        return bytes((GUID, 16))
    if name == "xml":
        return bytes((XML, 0))
    if name in _LONG_IDS:
        collation = b"" if name == "image" else COLLATION
        limit = 0x7FFFFFFE if name == "ntext" else 0x7FFFFFFF
        return bytes((_LONG_IDS[name],)) + struct.pack("<I", limit) + collation
    if name == "sysname":
        return type_info(SqlType("nvarchar", 128))
    if name not in _SIZED_IDS:
        return type_info(SqlType("nvarchar", 4000))
    collation = b"" if sql_type.is_binary else COLLATION
    return bytes((_SIZED_IDS[name],)) + struct.pack("<H", byte_length(sql_type)) + collation


def byte_length(sql_type: SqlType) -> int:
    """The declared length in bytes as TYPE_INFO says it; 0xFFFF for max."""
    if sql_type.name == "timestamp":
        return 8
    if sql_type.length == MAX:
        return 0xFFFF
    return (sql_type.length or 1) * (2 if sql_type.is_unicode else 1)


def decimal_length(precision: int) -> int:
    """Bytes of a decimal on the wire, the sign included."""
    return 5 if precision < 10 else 9 if precision < 20 else 13 if precision < 29 else 17


def time_scale(sql_type: SqlType) -> int:
    """Fractional digits of a time, datetime2 or datetimeoffset; 7 unless declared."""
    return 7 if sql_type.scale is None else sql_type.scale


def time_length(scale: int) -> int:
    """Bytes of a time of day on the wire."""
    return 3 if scale < 3 else 4 if scale < 5 else 5
