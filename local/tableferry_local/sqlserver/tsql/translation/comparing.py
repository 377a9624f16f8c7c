"""Comparisons: T-SQL's equality and order, in terms of PostgreSQL's."""

from __future__ import annotations

from dataclasses import replace

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.types.typerules import (
    FLOAT,
    INT,
    common_type,
    family,
)
from tableferry_local.sqlserver.types.value import Value, ticks


def unified(values: list[Value]) -> Value:
    """The common type (and collation) of several values; `sql` means nothing."""
    typed = [value for value in values if not value.is_null]
    if not typed:
        return Value("", INT)
    result = typed[0].type
    for value in typed[1:]:
        result = common_type(result, value.type)
    collation = next((value.collation for value in typed if value.collation), None)
    return Value("", result, any(value.nullable for value in values), collation)


def key(value: Value, *, ordered: bool = False) -> str:
    """SQL that is equal (and orders alike) exactly where T-SQL finds values equal."""
    if family(value.type) == "text":
        if value.collation == "bin":
            return f"sys.bin({value.sql}, {value.type.is_unicode})"
        return f"sys.{'cs' if value.collation else 'ci'}({value.sql})"
    if value.type.name == "datetimeoffset":
        return f"({value.sql}).utc"
    if ordered and value.type.name == "uniqueidentifier":
        return f"sys.guid_order({value.sql})"
    return value.sql


def comparable(left: Value, right: Value, *, ordered: bool = False) -> tuple[str, str]:
    """SQL of two values such that PostgreSQL compares them as T-SQL would."""
    kinds = (family(left.type), family(right.type))
    if left.is_null or right.is_null:
        other = right.type if left.is_null else left.type
        left, right = (
            replace(left, sql=convert(left, other), type=other, is_null=False),
            replace(right, sql=convert(right, other), type=other, is_null=False),
        )
        kinds = (family(other), family(other))
    if kinds == ("text", "text"):
        collation = left.collation or right.collation
        # a varchar becomes Unicode beside a Unicode text
        common = common_type(left.type, right.type)
        sides = [replace(side, collation=collation, type=common) for side in (left, right)]
        return key(sides[0]), key(sides[1])
    if set(kinds) <= {"int", "dec"}:
        return _exact(left, right), _exact(right, left)
    if set(kinds) <= {"int", "dec", "float"}:
        if kinds == ("float", "float"):
            return left.sql, right.sql
        return convert(left, FLOAT), convert(right, FLOAT)
    target = common_type(left.type, right.type)
    if kinds == ("date", "date"):
        if target.name == "datetimeoffset":
            sides = [Value(convert(side, target), target) for side in (left, right)]
            return key(sides[0]), key(sides[1])
        plain = {"date", "datetime", "smalldatetime", "datetime2"}
        names = {left.type.name, right.type.name}
        # beside a datetime2, a datetime has 1/300 s
        exact = 7 not in (left.type.scale, right.type.scale) and names != {"datetime", "datetime2"}
        if names <= plain and exact:
            return left.sql, right.sql
        target = replace(target, scale=7) if target.scale is not None else target
        if target.name in ("datetime2", "time"):
            return convert(left, target), convert(right, target)
        return str(ticks(left)), str(ticks(right))
    sides = [Value(convert(side, target), target) for side in (left, right)]
    return key(sides[0], ordered=ordered), key(sides[1], ordered=ordered)


def _exact(value: Value, other: Value) -> str:
    # a whole literal beyond int is numeric in T-SQL, but must not keep a bigint index from use
    if (
        isinstance(value.constant, int)
        and family(other.type) == "int"
        and abs(value.constant) < 2**63
    ):
        return f"({value.constant})"
    return value.sql


def compare(operator: str, left: Value, right: Value) -> str:
    """SQL of a comparison."""
    ordered = operator in ("<", "<=", ">", ">=")
    if ordered and left.type.name == right.type.name == "uniqueidentifier":
        return f"({key(left, ordered=True)} {operator} {key(right, ordered=True)})"
    a, b = comparable(left, right, ordered=ordered)
    return f"({a} {operator} {b})"


def collation_kind(name: str) -> str | None:
    """How a collation compares: 'bin', 'cs' or None for case-insensitive.

    Raises:
        SqlError: 448, no such collation.
    """
    upper = name.upper()
    if upper == "DATABASE_DEFAULT":
        return None
    if "_BIN" in upper:
        return "bin"
    if "_CS" in upper:
        return "cs"
    if "_CI" in upper:
        return None
    raise SqlError(448, 16, f"Invalid collation '{name}'.")


def order_item(value: Value, descending: bool) -> str:
    """One item of an ORDER BY; T-SQL sorts NULL below everything."""
    sql = key(value, ordered=True)
    if descending:
        return f"{sql} DESC" + (" NULLS LAST" if value.nullable else "")
    return sql + (" NULLS FIRST" if value.nullable else "")
