"""Literals: numbers, texts and bytes with the types that T-SQL gives them."""

from __future__ import annotations

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import CODE_PAGE, MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    FLOAT,
    INT,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value, literal, pg_type


def number(text: str) -> Value:
    """A numeric literal."""
    if "e" in text.lower():
        return Value(f"{text}::double precision", FLOAT, False)
    whole, dot, fraction = text.partition(".")
    if dot:
        digits = len(whole.lstrip("0")) + len(fraction)
        kind = SqlType("numeric", precision=max(digits, 1), scale=len(fraction))
        return Value(f"{text if fraction else whole}::{pg_type(kind)}", kind, False)
    value = int(text)
    if value < 2**31:
        return Value(str(value), INT, False, constant=value)
    if len(str(value)) > 38:
        raise SqlError(
            1007,
            15,
            f"The number '{text}' is out of the range for numeric representation (maximum "
            "precision 38).",
        )
    kind = SqlType("numeric", precision=len(str(value)), scale=0)
    return Value(f"{value}::numeric", kind, False, constant=value)


def text_value(text: str, unicode: bool) -> Value:
    """A text literal; without N it can hold the code page's characters only."""
    if not unicode and not text.isascii():
        text = "".join(
            char if _in_code_page(char) else "?" * (1 + (ord(char) > 0xFFFF)) for char in text
        )
    length = len(text.encode("utf-16-le")) // 2
    kind = text_type(unicode, length if length <= (4000 if unicode else 8000) else MAX)
    return Value(f"{literal(text)}::text", kind, False, constant=text)


def _in_code_page(char: str) -> bool:
    try:
        char.encode(CODE_PAGE)
    except UnicodeEncodeError:
        return False
    return True


def binary_value(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    digits = str(node.this)
    digits = "0" * (len(digits) % 2) + digits
    kind = SqlType("varbinary", max(1, len(digits) // 2) if len(digits) <= 16000 else MAX)
    return Value(f"'\\x{digits}'::bytea", kind, False)
