"""Aggregates and window functions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import key, order_item
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import (
    BIGINT,
    FLOAT,
    INT,
    as_decimal,
    family,
)
from tableferry_local.sqlserver.types.value import Value, pg_type

AGGREGATES = {"count", "count_big", "sum", "min", "max"}


def aggregate(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    """Translate an aggregate call.

    Raises:
        SqlError: 8117, the argument's type does not aggregate.
    """
    name = node.name.lower()
    was, scope.aggregating = scope.aggregating, True
    try:
        argument, distinct = _argument(node)
        if name in ("count", "count_big"):
            inner = "*"
            if not isinstance(argument, exp.Star):
                value = compiler.expression(argument, scope)
                inner = ("DISTINCT " + key(value)) if distinct else value.sql
            result = INT if name == "count" else BIGINT
            return Value(f"count({inner})::{pg_type(result)}", result, False)
        value = compiler.expression(argument, scope)
        return _sum(value, distinct) if name == "sum" else _extreme(name, value)
    finally:
        scope.aggregating = was


def _argument(node: exp.Expr) -> tuple[exp.Expr, bool]:
    if not node.expressions:
        raise syntax_error(")")
    first = node.expressions[0]
    if isinstance(first, exp.Distinct):
        return first.expressions[0], True
    return first, False


def _sum(value: Value, distinct: bool) -> Value:
    kind = value.type
    if value.is_null or family(kind) not in ("int", "dec", "float") or kind.name == "bit":
        raise SqlError(8117, 16, f"Operand data type {kind.name} is invalid for sum operator.")
    if kind.name in ("tinyint", "smallint", "int"):
        result = INT
    elif kind.name in ("decimal", "numeric"):
        result = SqlType(kind.name, precision=38, scale=as_decimal(kind)[1])
    elif kind.name in ("money", "smallmoney"):
        result = SqlType("money")
    else:
        result = BIGINT if kind.name == "bigint" else FLOAT
    inner = convert(value, FLOAT) if result == FLOAT else value.sql
    return Value(f"sum({'DISTINCT ' * distinct}{inner})::{pg_type(result)}", result)


def _extreme(name: str, value: Value) -> Value:
    plain = replace(value, nullable=True, constant=None, identity=False, computed=False, name="")
    if family(value.type) == "text":
        # the greatest as the collation orders, and among equals any
        return replace(plain, sql=_picked(name, value.sql, key(value)))
    if value.type.name in ("uniqueidentifier", "datetimeoffset"):
        return replace(plain, sql=_picked(name, value.sql, key(value, ordered=True)))
    if value.type.name == "bit":
        raise SqlError(8117, 16, f"Operand data type bit is invalid for {name} operator.")
    return replace(plain, sql=f"{name}({value.sql})")


def _picked(name: str, sql: str, order: str) -> str:
    direction = "DESC" if name == "max" else "ASC"
    return f"(array_agg({sql} ORDER BY {order} {direction}) FILTER (WHERE {sql} IS NOT NULL))[1]"


def window(compiler: Compiler, node: exp.Window, scope: Scope) -> Value:
    """Translate `ROW_NUMBER() OVER (...)`.

    Raises:
        SqlError: 40510, another function.
    """
    if node.this.name.lower() != "row_number":
        raise unsupported(f"{node.this.name.upper()} with OVER")
    over = _window_spec(compiler, node, scope)
    return Value(f"(row_number() OVER ({over}))::{pg_type(BIGINT)}", BIGINT, False)


def _window_spec(compiler: Compiler, node: exp.Window, scope: Scope) -> str:
    parts = []
    if node.args.get("partition_by") or node.args.get("spec") is not None:
        raise unsupported("PARTITION BY, ROWS or RANGE in OVER")
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
    return " ".join(parts)
