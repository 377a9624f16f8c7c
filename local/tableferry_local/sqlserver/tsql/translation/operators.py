"""Parts of the operators: texts put together, words of messages."""

from __future__ import annotations

from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    text_length,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value


def digits_of(value: Value) -> int | None:
    """How many digits a whole literal has: in decimal arithmetic no others count."""
    return len(str(abs(value.constant))) if isinstance(value.constant, int) else None


OPERATOR_WORDS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}


def concatenated(left: Value, right: Value) -> Value:
    if left.is_null:
        left = Value("NULL::text", SqlType("varchar", 1))
    if right.is_null:
        right = Value("NULL::text", SqlType("varchar", 1))
    unicode = left.type.is_unicode or right.type.is_unicode
    a, b = text_length(left.type), text_length(right.type)
    length = MAX if MAX in (a, b) else a + b
    return Value(
        f"({left.sql} || {right.sql})",
        text_type(unicode, length),
        left.nullable or right.nullable,
        left.collation or right.collation,
        supplementary=left.supplementary or right.supplementary,
        utf8=left.utf8 or right.utf8,
    )
