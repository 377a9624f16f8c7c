"""Aggregates and window functions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import key, order_item
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    BIGINT,
    FLOAT,
    INT,
    as_decimal,
    family,
    text_length,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value, pg_type

AGGREGATES = {
    "count", "count_big", "sum", "avg", "min", "max", "string_agg",
}  # fmt: skip
WINDOW_FUNCTIONS = ("row_number", "rank", "dense_rank")


def aggregate(
    compiler: Compiler, node: exp.Expr, scope: Scope, order: exp.Expr | None, over: str = ""
) -> Value:
    """Translate an aggregate call.

    Args:
        order: of WITHIN GROUP.
        over: ` OVER (...)` if it is used as a window function.

    Raises:
        SqlError: 8117, the argument's type does not aggregate.
    """
    name = node.name.lower()
    was, scope.aggregating = scope.aggregating, not over
    try:
        argument, distinct = _argument(node)
        if name in ("count", "count_big"):
            inner = "*"
            if argument is not None and not isinstance(argument, exp.Star):
                value = compiler.expression(argument, scope)
                inner = ("DISTINCT " + key(value)) if distinct else value.sql
            result = INT if name == "count" else BIGINT
            return Value(f"(count({inner}){over})::{pg_type(result)}", result, False)
        if argument is None:
            raise syntax_error(")")
        value = compiler.expression(argument, scope)
        word = "DISTINCT " if distinct else ""
        if name == "string_agg":
            return _string_agg(compiler, node, value, scope, order, over)
        if name in ("sum", "avg"):
            return _sum(name, value, word, over)
        return _extreme(name, value, over)
    finally:
        scope.aggregating = was


def _argument(node: exp.Expr) -> tuple[exp.Expr | None, bool]:
    if not node.expressions:
        return None, False
    first = node.expressions[0]
    if isinstance(first, exp.Distinct):
        return first.expressions[0], True
    return first, False


def _sum(name: str, value: Value, word: str, over: str) -> Value:
    kind = value.type
    if value.is_null or family(kind) not in ("int", "dec", "float") or kind.name == "bit":
        raise SqlError(8117, 16, f"Operand data type {kind.name} is invalid for {name} operator.")
    if kind.name in ("tinyint", "smallint", "int"):
        result = INT
    elif kind.name in ("decimal", "numeric"):
        scale = as_decimal(kind)[1]
        result = SqlType(kind.name, precision=38, scale=scale if name == "sum" else max(scale, 6))
    elif kind.name in ("money", "smallmoney"):
        result = SqlType("money")
    else:
        result = BIGINT if kind.name == "bigint" else FLOAT
    inner = convert(value, FLOAT) if result == FLOAT else value.sql
    sql = f"{name}({word}{inner}){over}"
    if name == "avg" and family(kind) in ("int", "dec"):
        # SQL Server cuts where PostgreSQL would round
        scale = 0 if family(kind) == "int" else as_decimal(result)[1]
        sql = f"trunc({sql}, {scale})"
    return Value(f"({sql})::{pg_type(result)}", result)


def _extreme(name: str, value: Value, over: str) -> Value:
    plain = replace(value, nullable=True, constant=None, identity=False, computed=False, name="")
    if family(value.type) == "text":
        # the greatest as the collation orders, and among equals any
        if over:
            return replace(plain, sql=f'{name}({value.sql} COLLATE "C"){over}')
        return replace(plain, sql=_picked(name, value.sql, key(value)))
    if value.type.name in ("uniqueidentifier", "datetimeoffset"):
        if over:
            # PostgreSQL has no extreme of uuid, and that of a composite is an anonymous record
            sql = f"{name}({value.sql}::text){over}::{pg_type(value.type)}"
            return replace(plain, sql=f"({sql})")
        return replace(plain, sql=_picked(name, value.sql, key(value, ordered=True)))
    if value.type.name == "bit":
        raise SqlError(8117, 16, f"Operand data type bit is invalid for {name} operator.")
    return replace(plain, sql=f"{name}({value.sql}){over}")


def _picked(name: str, sql: str, order: str) -> str:
    direction = "DESC" if name == "max" else "ASC"
    return f"(array_agg({sql} ORDER BY {order} {direction}) FILTER (WHERE {sql} IS NOT NULL))[1]"


def _string_agg(
    compiler: Compiler,
    node: exp.Expr,
    value: Value,
    scope: Scope,
    order: exp.Expr | None,
    over: str,
) -> Value:
    unicode = value.type.is_unicode
    longest = MAX if text_length(value.type) == MAX else 4000 if unicode else 8000
    kind = text_type(unicode, longest)
    separator = compiler.expression(node.expressions[1], scope)
    text = convert(value, text_type(unicode, MAX))
    order_sql = ""
    if order is not None:
        items = [
            order_item(compiler.expression(item.this, scope), bool(item.args.get("desc")))
            for item in order.expressions
        ]
        order_sql = f" ORDER BY {', '.join(items)}"
    between = convert(separator, text_type(True, MAX))
    return Value(f"string_agg({text}, {between}{order_sql}){over}", kind)


def window(compiler: Compiler, node: exp.Window, scope: Scope) -> Value:
    """Translate `function OVER (...)`.

    Raises:
        SqlError: 195, it is no window function.
    """
    over = f" OVER ({_window_spec(compiler, node, scope)})"
    inner = node.this
    if isinstance(inner, exp.WithinGroup):
        return aggregate(compiler, inner.this, scope, inner.expression, over)
    name = inner.name.lower()
    if name in AGGREGATES:
        return aggregate(compiler, inner, scope, None, over)
    if name not in WINDOW_FUNCTIONS:
        raise SqlError(195, 15, f"'{inner.name}' is not a recognized built-in function name.")
    return Value(f"({name}(){over})::{pg_type(BIGINT)}", BIGINT, False)


def _window_spec(compiler: Compiler, node: exp.Window, scope: Scope) -> str:
    parts = []
    partition = node.args.get("partition_by")
    if partition:
        keys = [key(compiler.expression(item, scope)) for item in partition]
        parts.append(f"PARTITION BY {', '.join(keys)}")
    order = node.args.get("order")
    if order is not None:
        items = []
        for item in order.expressions:
            inner = item.this
            if isinstance(inner, exp.Subquery):  # ORDER BY (SELECT NULL)
                continue
            items.append(order_item(compiler.expression(inner, scope), bool(item.args.get("desc"))))
        if items:
            parts.append(f"ORDER BY {', '.join(items)}")
    spec = node.args.get("spec")
    if spec is not None:
        raise unsupported("ROWS or RANGE in OVER")
    return " ".join(parts)
