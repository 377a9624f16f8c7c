"""CAST to binary: every type as the bytes that SQL Server stores."""

from __future__ import annotations

from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import BINARIES, family
from tableferry_local.sqlserver.types.value import Value, ticks


def to_binary(value: Value, to: SqlType, style: int | None, tried: bool) -> str | None:
    kind, sql, length = family(value.type), value.sql, to.length
    bounded = length is not None and length != MAX
    if kind == "text":
        if style in (1, 2):
            text = f"substr({sql}, 3)" if style == 1 else sql
            result = f"decode({text}, 'hex')"
        else:
            page = "UTF8" if value.utf8 else "WIN1252"
            result = (
                f"sys.utf16({sql})" if value.type.is_unicode else f"convert_to({sql}, '{page}')"
            )
    elif kind == "binary":
        result = sql
    elif kind == "guid":
        result = f"sys.guid_bytes({sql})"
    elif kind == "float":
        result = f"float{8 if value.type.name == 'float' else 4}send({sql})"
    elif kind == "dec":
        result = _decimal_bytes(value)
    elif kind == "date":
        result = _date_bytes(value)
    elif kind == "int":
        sender = {"bigint": "int8send", "int": "int4send"}.get(value.type.name, "int2send")
        result = f"{sender}({sql})"
        if value.type.name in ("tinyint", "bit"):
            result = f"substr({result}, 2)"
        if bounded:
            result = f"sys.right_bytes({result}, {length}, {str(to.name == 'binary').lower()})"
        return result
    else:
        return None
    if bounded and not (kind == "binary" and _fits(value.type, to)):
        result = f"substr({result}, 1, {length})"
    if to.name == "binary":
        result = f"sys.pad({result}, {length})"
    return result


def _decimal_bytes(value: Value) -> str:
    # money is a whole number of ten-thousandths; decimal has its own header
    if value.type.name == "money":
        return f"int8send(({value.sql} * 10000)::bigint)"
    if value.type.name == "smallmoney":
        return f"int4send(({value.sql} * 10000)::int)"
    return f"sys.decimal_bytes({value.sql}, {value.type.precision}, {value.type.scale or 0})"


def _date_bytes(value: Value) -> str:
    """How SQL Server stores dates: datetime big-endian, the newer types little-endian."""
    name, scale, whole = value.type.name, value.type.scale, ticks(value)
    days = f"({whole} / 864000000000)"
    if name == "datetime":
        part = f"round(({whole} % 864000000000)::numeric * 3 / 100000)::int"
        return f"(int4send(({days} - 693595)::int) || int4send({part}))"
    if name == "smalldatetime":
        minutes = f"({whole} % 864000000000 / 600000000)"
        return f"substr(int4send(({days} - 693595)::int * 65536 + {minutes}::int), 1, 4)"
    if name == "date":
        return f"sys.le_bytes({days}, 3)"
    scale = 7 if scale is None else scale
    length = 3 if scale <= 2 else 4 if scale <= 4 else 5
    if name == "datetimeoffset":
        whole = f"({value.sql}).utc"
        days = f"({whole} / 864000000000)"
    part = f"({whole} % 864000000000 / {10 ** (7 - scale)})"
    result = f"sys.le_bytes({scale}, 1) || sys.le_bytes({part}, {length})"
    if name != "time":
        result += f" || sys.le_bytes({days}, 3)"
    if name == "datetimeoffset":
        result += f" || sys.le_bytes(({value.sql}).minutes, 2)"
    return f"({result})"


def _fits(source: SqlType, to: SqlType) -> bool:
    return source.name in BINARIES and 0 <= (source.length or -1) <= (to.length or 0)
