"""DATEADD, DATEDIFF, DATEPART and the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import BIGINT, DATETIME, DATETIME2, INT, family
from tableferry_local.sqlserver.types.value import Value, from_ticks, literal, ticks

Handler = Callable[[Compiler, list[exp.Expr], Scope], Value]

_PARTS = (
    "year", "month", "day", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond",
    "tz",
)  # fmt: skip

# 100 ns in one step of DATEADD, and in one boundary of DATEDIFF
_STEP = {
    "day": 864_000_000_000,
    "hour": 36_000_000_000,
    "minute": 600_000_000,
    "second": 10_000_000,
    "millisecond": 10_000,
    "microsecond": 10,
}


def _part(node: exp.Expr, known: Iterable[str]) -> str:
    part = node.name.lower()
    if part not in known:
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
    part = _part(args[0], _STEP)
    amount = compiler.expression(args[1], scope)
    value = compiler.expression(args[2], scope)
    result = value.type if family(value.type) == "date" else DATETIME
    sql = f"sys.date_add({_date(value)}, {convert(amount, BIGINT)} * {_STEP[part]})"
    nullable = amount.nullable or value.nullable
    if result.name == "datetimeoffset":
        return Value(f"sys.make_dto({sql}, ({value.sql}).minutes)", result, nullable)
    return Value(from_ticks(sql, result), result, nullable)


def _datediff(result: SqlType) -> Handler:
    def handler(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
        step = _STEP[_part(args[0], _STEP)]
        start, end = (compiler.expression(item, scope) for item in args[1:3])
        sql = f"({_date(end)} / {step} - {_date(start)} / {step})"
        sql = f"sys.int4({sql})" if result == INT else f"{sql}::bigint"
        return Value(sql, result, start.nullable or end.nullable)

    return handler


def _datepart(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
    part = _part(args[0], _PARTS)
    value = compiler.expression(args[1], scope)
    whole = _date(value)
    if part == "tz":
        sql = f"({value.sql}).minutes::int"
    elif part == "nanosecond":
        sql = f"({whole} % 10000000 * 100)::int"
    elif part in ("millisecond", "microsecond"):
        sql = f"({whole} % 10000000 / {_STEP[part]})::int"
    else:
        sql = f"extract({part} FROM sys.ticks_ts({whole} / 10000000 * 10000000))::int"
    return Value(sql, INT, value.nullable)


def _now(compiler: Compiler, args: list[exp.Expr], scope: Scope) -> Value:
    # the stand-in's time zone is UTC, like that of SQL Server in a container
    now = "sys.ts_ticks(statement_timestamp() AT TIME ZONE 'UTC')"
    return Value(from_ticks(now, DATETIME2), DATETIME2, False)


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
    "sysutcdatetime": _now,
    "switchoffset": _switchoffset,
}
