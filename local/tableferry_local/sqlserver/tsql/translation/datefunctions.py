"""DATEADD, DATEDIFF, DATEPART and the clocks."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import BIGINT, DATETIME, DATETIME2, INT, family
from tableferry_local.sqlserver.types.value import Value, from_ticks, literal, ticks

Handler = Callable[[Compiler, list[exp.Expr], Scope], Value]

_PARTS = {
    "year": ("year", "yy", "yyyy"),
    "quarter": ("quarter", "qq", "q"),
    "month": ("month", "mm", "m"),
    "dayofyear": ("dayofyear", "dy", "y"),
    "day": ("day", "dd", "d"),
    "week": ("week", "wk", "ww"),
    "weekday": ("weekday", "dw", "w"),
    "hour": ("hour", "hh"),
    "minute": ("minute", "mi", "n"),
    "second": ("second", "ss", "s"),
    "millisecond": ("millisecond", "ms"),
    "microsecond": ("microsecond", "mcs"),
    "nanosecond": ("nanosecond", "ns"),
    "tzoffset": ("tzoffset", "tz"),
    "iso_week": ("iso_week", "isowk", "isoww"),
}
_BY_NAME = {alias: part for part, aliases in _PARTS.items() for alias in aliases}

# 100 ns in one step of DATEADD, and in one boundary of DATEDIFF
_STEP = {
    "dayofyear": 864_000_000_000,
    "day": 864_000_000_000,
    "weekday": 864_000_000_000,
    "week": 7 * 864_000_000_000,
    "hour": 36_000_000_000,
    "minute": 600_000_000,
    "second": 10_000_000,
    "millisecond": 10_000,
    "microsecond": 10,
}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}


def _part(node: exp.Expr) -> str:
    part = _BY_NAME.get(node.name.lower())
    if part is None:
        raise SqlError(155, 15, f"'{node.name}' is not a recognized datepart option.")
    return part


def _date(value: Value) -> str:
    sql = ticks(Value(convert(value, DATETIME2), DATETIME2) if value.is_null else value)
    if sql is None:
        raise SqlError(
            8116, 16, f"Argument data type {value.type.name} is invalid for a date function."
        )
    return sql


def _dateadd(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
    part = _part(args[0])
    amount = compiler.expression(args[1], scope)
    value = compiler.expression(args[2], scope)
    result = value.type if family(value.type) == "date" else DATETIME
    count = convert(amount, BIGINT)
    if part in _MONTHS:
        sql = f"sys.date_add({_date(value)}, {count} * {_MONTHS[part]}, true)"
    elif part == "nanosecond":
        sql = f"sys.date_add({_date(value)}, {count} / 100, false)"
    else:
        sql = f"sys.date_add({_date(value)}, {count} * {_STEP[part]}, false)"
    nullable = amount.nullable or value.nullable
    if result.name == "datetimeoffset":
        return Value(f"sys.make_dto({sql}, ({value.sql}).minutes)", result, nullable)
    return Value(from_ticks(sql, result), result, nullable)


def _datediff(result: SqlType) -> Handler:
    def handler(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
        part = _part(args[0])
        start, end = (compiler.expression(item, scope) for item in args[1:3])
        a, b = _date(start), _date(end)
        if part in _MONTHS:
            divide = f" / {_MONTHS[part]}" if part != "month" else ""
            shift = " - 1" if part != "month" else ""
            sql = f"((sys.months({b}){shift}){divide} - (sys.months({a}){shift}){divide})"
        elif part == "nanosecond":
            sql = f"(({b} - {a})::numeric * 100)"
        else:
            # weeks begin on Sunday, and 0001-01-01 is a Monday
            shift = f" + {864_000_000_000}" if part == "week" else ""
            sql = f"(({b}{shift}) / {_STEP[part]} - ({a}{shift}) / {_STEP[part]})"
        sql = f"sys.int4({sql})" if result == INT else f"({sql})::bigint"
        return Value(sql, result, start.nullable or end.nullable)

    return handler


def _extract(value: Value, part: str) -> str:
    whole = _date(value)
    stamp = f"sys.ticks_ts({whole} / 10000000 * 10000000)"
    if part == "iso_week":
        return f"extract(week FROM {stamp})::int"
    if part == "week":
        # week 1 holds January 1; weeks begin on Sunday
        return (
            f"((extract(doy FROM {stamp}) + extract(dow FROM date_trunc('year', {stamp})) - "
            "1)::int / 7 + 1)"
        )
    if part == "weekday":
        return f"(extract(dow FROM {stamp})::int + 1)"
    if part == "dayofyear":
        return f"extract(doy FROM {stamp})::int"
    if part in ("millisecond", "microsecond", "nanosecond"):
        fraction = f"({whole} % 10000000)"
        if part == "nanosecond":
            return f"({fraction} * 100)::int"
        return f"({fraction} / {10 if part == 'microsecond' else 10000})::int"
    if part == "tzoffset":
        return f"({value.sql}).minutes::int"
    return f"extract({part} FROM {stamp})::int"


def _datepart(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
    part = _part(args[0])
    value = compiler.expression(args[1], scope)
    return Value(_extract(value, part), INT, value.nullable)


def _one_part(part: str) -> Handler:
    def handler(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
        value = compiler.expression(args[0], scope)
        return Value(_extract(value, part), INT, value.nullable)

    return handler


def _clock(kind: SqlType) -> Handler:
    # the stand-in's time zone is UTC, like that of SQL Server in a container
    now = "(statement_timestamp() AT TIME ZONE 'UTC')"

    def handler(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
        if kind.name == "datetime":
            return Value(f"sys.to_datetime{now}", kind, False)
        return Value(from_ticks(f"sys.ts_ticks{now}", kind), kind, False)

    return handler


def _switchoffset(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
    value, zone = (compiler.expression(item, scope) for item in args[:2])
    kind = SqlType(
        "datetimeoffset", scale=value.type.scale if value.type.name == "datetimeoffset" else 7
    )
    sql = convert(value, kind)
    minutes = convert(zone, INT)
    if isinstance(zone.constant, str):
        minutes = f"(sys.text_dto({literal('00:00' + zone.constant)})).minutes"
    return Value(
        f"sys.make_dto(({sql}).utc + {minutes} * 600000000::bigint, {minutes})", kind, True
    )


DATE_FUNCTIONS: dict[str, Handler] = {
    "dateadd": _dateadd,
    "datediff": _datediff(INT),
    "datediff_big": _datediff(BIGINT),
    "datepart": _datepart,
    "year": _one_part("year"),
    "month": _one_part("month"),
    "day": _one_part("day"),
    "getdate": _clock(DATETIME),
    "getutcdate": _clock(DATETIME),
    "sysdatetime": _clock(DATETIME2),
    "sysutcdatetime": _clock(DATETIME2),
    "sysdatetimeoffset": _clock(SqlType("datetimeoffset", scale=7)),
    "switchoffset": _switchoffset,
}
