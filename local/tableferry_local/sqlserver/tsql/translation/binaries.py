"""CAST to binary: every type as the bytes that SQL Server stores."""

from __future__ import annotations

from tableferry_local.sqlserver.errors import unsupported
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import BINARIES, family
from tableferry_local.sqlserver.types.value import Value


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
    elif kind in ("dec", "date"):
        raise unsupported(f"a {value.type.name} as binary")
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


def _fits(source: SqlType, to: SqlType) -> bool:
    return source.name in BINARIES and 0 <= (source.length or -1) <= (to.length or 0)
