"""T-SQL's scalar functions; aggregates are in aggregates.py, dates in datefunctions.py."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.translation.aggregates import (
    AGGREGATES,
    aggregate,
    window,
)
from tableferry_local.sqlserver.tsql.translation.comparing import compare, unified
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.datefunctions import DATE_FUNCTIONS
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.metafunctions import META_FUNCTIONS
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.tsql.translation.textfunctions import (
    TEXT_FUNCTIONS,
    Handler,
    integer,
    nullable,
)
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    INT,
    family,
)
from tableferry_local.sqlserver.types.value import Value, pg_type


def call(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    """Translate a function call.

    Raises:
        SqlError: 195, there is no such function; 174, it takes other arguments.
    """
    if isinstance(node, exp.Window):
        return window(compiler, node, scope)
    if not isinstance(node, exp.Anonymous):
        raise unsupported(type(node).__name__)
    name = node.name.lower()
    if name in AGGREGATES:
        return aggregate(compiler, node, scope)
    if name in DATE_FUNCTIONS:
        return DATE_FUNCTIONS[name](compiler, node.expressions, scope)
    values = [compiler.expression(item, scope) for item in node.expressions]
    handler = _SCALARS.get(name) or META_FUNCTIONS.get(name)
    if handler is None:
        raise SqlError(195, 15, f"'{node.name}' is not a recognized built-in function name.")
    try:
        return handler(compiler, values)
    except IndexError:
        raise SqlError(174, 15, f"The {node.name} function requires more argument(s).") from None


def _isnull(compiler: Compiler, args: list[Value]) -> Value:
    first, second = args[0], args[1]
    # unlike COALESCE, the type is the first argument's
    kind = second.type if first.is_null else first.type
    collation = first.collation or second.collation
    sql = f"COALESCE({convert(first, kind)}, {convert(second, kind)})"
    if kind.name == "datetimeoffset":
        sql = (
            f"CASE WHEN ({first.sql}).utc IS NULL THEN {convert(second, kind)} ELSE {first.sql} END"
        )
    null = first.nullable and (second.nullable or second.is_null)
    return Value(sql, kind, null, collation, utf8=first.utf8 or second.utf8)


def _coalesce(compiler: Compiler, args: list[Value]) -> Value:
    result = unified(args)
    items = ", ".join(convert(arg, result.type) for arg in args)
    every = all(arg.nullable or arg.is_null for arg in args)
    return replace(result, sql=f"COALESCE({items})", nullable=every)


def _nullif(compiler: Compiler, args: list[Value]) -> Value:
    same = compare("=", args[0], args[1])
    return replace(
        args[0], sql=f"(CASE WHEN {same} THEN NULL ELSE {args[0].sql} END)", nullable=True,
        constant=None, name="",
    )  # fmt: skip


def _hashbytes(compiler: Compiler, args: list[Value]) -> Value:
    algorithm = str(args[0].constant or "").upper()
    function = {
        "MD5": "decode(md5({}), 'hex')",
        "SHA2_256": "sha256({})",
    }.get(algorithm)
    if function is None:
        raise unsupported(f"HASHBYTES('{algorithm}', ...)")
    value = args[1]
    data = (
        convert(value, SqlType("varbinary", MAX)) if family(value.type) != "binary" else value.sql
    )
    return Value(function.format(data), SqlType("varbinary", 8000), nullable(args[1:]))


def _abs(compiler: Compiler, args: list[Value]) -> Value:
    kind = INT if args[0].type.name in ("tinyint", "smallint") else args[0].type
    return Value(f"abs({args[0].sql})::{pg_type(kind)}", kind, args[0].nullable)


def _round(compiler: Compiler, args: list[Value]) -> Value:
    value, digits = args[0], args[1]
    sql = f"round(({value.sql})::numeric, {integer(digits)})::{pg_type(value.type)}"
    return Value(sql, value.type, nullable(args))


_SCALARS: dict[str, Handler] = {
    **TEXT_FUNCTIONS,
    "isnull": _isnull,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "hashbytes": _hashbytes,
    "abs": _abs,
    "round": _round,
}
