"""CAST and CONVERT: a T-SQL value of one type as PostgreSQL SQL for another."""

from __future__ import annotations

from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import BINARIES, INTEGERS, family, text_length
from tableferry_local.sqlserver.types.value import (
    Value,
    from_ticks,
    literal,
    pg_type,
    ticks,
    time_ticks,
)


def convert(value: Value, to: SqlType) -> str:
    """SQL for the value as another type.

    Args:
        value: what to convert.
        to: the type wanted.

    Raises:
        SqlError: 529, there is no such conversion.
    """
    if value.is_null:
        return f"NULL::{pg_type(to)}"
    if value.type == to:
        return value.sql
    maker = _TARGETS[family(to)]
    result = maker(value, to)
    if result is None:
        raise SqlError(
            529,
            16,
            f"Explicit conversion from data type {value.type.name} to {to.name} is not allowed.",
        )
    return result


def assign(value: Value, to: SqlType, place: str) -> str:
    """SQL for the value as it is stored into a column: what does not fit is error 2628.

    Args:
        value: what to store.
        to: the column's type.
        place: `'db.schema.table', column 'name'`, for the message.
    """
    if value.is_null or value.type == to:
        return value.sql
    if to.name == "timestamp":
        raise SqlError(273, 16, "Cannot insert an explicit value into a timestamp column.")
    length = to.length
    if length is None or length == MAX or family(to) not in ("text", "binary"):
        return convert(value, to)
    if isinstance(value.constant, str):
        longest = len(value.constant.encode("utf-16-le")) // 2
    else:
        longest = text_length(value.type)
    wide = SqlType("nvarchar" if to.is_unicode else "varchar", MAX)
    if family(to) == "binary":
        wide = SqlType("varbinary", MAX)
    whole = convert(value, wide)
    if longest == MAX or longest > length:
        whole = f"sys.fit({whole}, {length}, {literal(place)})"
    if to.name in ("char", "nchar", "binary"):
        whole = f"sys.pad({whole}, {length})"
    return whole


def _to_date(value: Value, to: SqlType) -> str | None:
    name, scale = value.type.name, 7 if to.scale is None else to.scale
    if to.name == "datetimeoffset":
        if name == "datetimeoffset" or family(value.type) == "text":
            sql = value.sql
            if name != "datetimeoffset":
                sql = f"sys.text_dto({sql})"
            if scale == 7 or (name == "datetimeoffset" and (value.type.scale or 0) <= scale):
                return sql
            return f"sys.dto_round({sql}, {scale})"
        whole = ticks(value)
        return None if whole is None else f"sys.make_dto({whole}, 0)"
    stamps = ("datetime2", "datetime", "smalldatetime")
    if name in (*stamps, "date") and value.type.scale != 7 and to.name in (*stamps, "date"):
        sql = value.sql if name != "date" else f"{value.sql}::timestamp"
        if to.name == "date":
            return f"{value.sql}::date"
        if to.name == "datetime":
            return f"sys.to_datetime({sql})"
        if to.name == "smalldatetime":
            return f"sys.to_smalldatetime({sql})"
        if scale < 7:
            last = f"timestamp '9999-12-31 23:59:59.{'9' * scale}'"
            # beyond the last instant nothing is rounded up
            cut = sql if name == "date" else f"CASE WHEN {sql} > {last} THEN {last} ELSE {sql} END"
            return f"({cut})::timestamp({scale})"
    if name == "time" and to.name == "time":
        if value.type.scale == 7:
            return f"sys.ticks_time({value.sql}, {scale})"
        return f"sys.time_ticks({value.sql})" if scale == 7 else f"{value.sql}::time({scale})"
    whole = ticks(value)
    return None if whole is None else from_ticks(whole, to)


def _to_int(value: Value, to: SqlType) -> str | None:
    kind, sql = family(value.type), value.sql
    target = pg_type(to)
    if kind == "text":
        if to.name == "bit":
            return f"sys.text_bit({sql})"
        number = f"sys.text_number({sql}, 'int')::{target}"
        return f"sys.tinyint({number})" if to.name == "tinyint" else number
    if kind == "binary":
        number = f"sys.bytes_int({sql})"
    elif kind == "int":
        if to.name == "bit":
            return sql if value.type.name == "bit" else f"({sql} <> 0)::int::smallint"
        if INTEGERS[to.name] >= INTEGERS[value.type.name]:
            same = pg_type(value.type) == target
            return sql if same else f"({sql})::{target}"
        number = sql
    elif kind == "float" or value.type.name in ("decimal", "numeric"):
        number = f"trunc({sql})"
    elif kind == "dec":
        number = f"round({sql})"
    else:
        return None
    if to.name == "bit":
        return f"({number} <> 0)::int::smallint"
    if to.name == "tinyint":
        return f"sys.tinyint(({number})::bigint)"
    return f"({number})::{target}"


def _to_decimal(value: Value, to: SqlType) -> str | None:
    kind, sql, target = family(value.type), value.sql, pg_type(to)
    if kind == "text":
        if to.name in ("money", "smallmoney"):
            return f"sys.text_money({sql})::{target}"
        return f"sys.text_number({sql}, 'numeric')::{target}"
    return f"({sql})::{target}" if kind in ("int", "dec", "float") else None


def _to_float(value: Value, to: SqlType) -> str | None:
    kind, sql, target = family(value.type), value.sql, pg_type(to)
    if kind == "text":
        return f"sys.text_number({sql}, 'float')::{target}"
    return f"({sql})::{target}" if kind in ("int", "dec", "float") else None


def _to_text(value: Value, to: SqlType) -> str:
    kind, length = family(value.type), to.length
    bounded = length is not None and length != MAX
    sql = _shown(value, to)
    if kind == "text" and value.type.is_unicode and not to.is_unicode:
        sql = sql if value.utf8 else f"sys.cp1252({sql})"
    longest = text_length(value.type)
    if bounded and length is not None and (longest == MAX or longest > length):
        if kind in ("int", "dec"):
            sql = f"sys.number_text({sql}, {length})"
        else:
            sql = f"sys.cut({sql}, {length})"
    if to.name in ("char", "nchar"):
        sql = f"sys.pad({sql}, {length})"
    return sql


def _shown(value: Value, to: SqlType) -> str:
    kind, sql, name = family(value.type), value.sql, value.type.name
    if kind == "text":
        return sql
    if kind == "int" or name in ("decimal", "numeric"):
        return f"({sql})::text"
    if kind == "dec":
        return f"round({sql}, 2)::text"
    if kind == "float":
        return f"sys.float_text({sql}, 0)"
    if kind == "guid":
        return f"upper(({sql})::text)"
    if kind == "binary":
        if to.is_unicode:
            return f"sys.from_utf16({sql})"
        return f"convert_from({sql}, 'WIN1252')"
    scale = 7 if value.type.scale is None else value.type.scale
    if name == "time":
        return f"sys.time_text({time_ticks(value)}, {scale})"
    if name == "date":
        return f"to_char({sql}, 'YYYY-MM-DD')"
    if name == "datetimeoffset":
        shown = f"sys.stamp_text(sys.dto_local({sql}), {scale})"
        return f"({shown} || ' ' || sys.offset_text(({sql}).minutes))"
    if name == "datetime2":
        return f"sys.stamp_text({ticks(value)}, {scale})"
    return f"sys.datetime_text({sql})"


def _to_guid(value: Value, to: SqlType) -> str | None:
    kind, sql = family(value.type), value.sql
    if kind == "text":
        return f"btrim({sql}, ' {{}}')::uuid"
    return f"sys.bytes_guid({sql})" if kind == "binary" else None


def _to_binary(value: Value, to: SqlType) -> str:
    kind, sql, length = family(value.type), value.sql, to.length
    bounded = length is not None and length != MAX
    if kind == "text":
        page = "UTF8" if value.utf8 else "WIN1252"
        result = f"sys.utf16({sql})" if value.type.is_unicode else f"convert_to({sql}, '{page}')"
    elif kind == "binary":
        result = sql
    elif kind == "guid":
        result = f"sys.guid_bytes({sql})"
    elif kind == "float":
        result = f"float{8 if value.type.name == 'float' else 4}send({sql})"
    else:
        raise unsupported(f"a {value.type.name} as binary")
    if bounded and not (kind == "binary" and _fits(value.type, to)):
        result = f"substr({result}, 1, {length})"
    if to.name == "binary":
        result = f"sys.pad({result}, {length})"
    return result


def _fits(source: SqlType, to: SqlType) -> bool:
    return source.name in BINARIES and 0 <= (source.length or -1) <= (to.length or 0)


_TARGETS = {
    "int": _to_int,
    "dec": _to_decimal,
    "float": _to_float,
    "date": _to_date,
    "text": _to_text,
    "binary": _to_binary,
    "guid": _to_guid,
}
