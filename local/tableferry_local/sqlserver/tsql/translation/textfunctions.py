"""Functions of texts and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tableferry_local.sqlserver.errors import unsupported
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    INT,
    family,
    max_length,
    text_length,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value

Handler = Callable[[Compiler, list[Value]], Value]


def as_text(value: Value) -> Value:
    """The value as text of a type that holds all of it."""
    if value.is_null:
        return Value("NULL::text", SqlType("varchar", 1), True)
    if family(value.type) == "text":
        return value
    kind = text_type(False, text_length(value.type))
    return Value(convert(value, kind), kind, value.nullable)


def nullable(values: Sequence[Value]) -> bool:
    """Whether a function that is NULL for a NULL argument may be NULL."""
    return any(value.nullable or value.is_null for value in values)


def integer(value: Value) -> str:
    """The value as an int."""
    return convert(value, INT)


def _len(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0])
    units = f"length(rtrim({text.sql}, ' '))" if text.supplementary else f"sys.len({text.sql})"
    return Value(units, INT, nullable(args))


def _datalength(compiler: Compiler, args: list[Value]) -> Value:
    value = args[0]
    kind = family(value.type)
    if kind == "binary" or (value.utf8 and not value.type.is_unicode):
        sql = f"octet_length({value.sql})"
    elif kind == "text":
        sql = f"({2 if value.type.is_unicode else 1} * sys.units({value.sql}))"
    else:
        raise unsupported(f"DATALENGTH of a {value.type.name}")
    return Value(sql, INT, nullable(args))


def _text_function(template: str) -> Handler:
    """A function whose result has its argument's type."""

    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text = as_text(args[0])
        made = Value(template.format(text.sql), text.type, nullable(args), text.collation)
        return replace(made, supplementary=text.supplementary, utf8=text.utf8)

    return handler


def _substring(compiler: Compiler, args: list[Value]) -> Value:
    start, length = integer(args[1]), integer(args[2])
    if family(args[0].type) == "binary":
        kind = SqlType("varbinary", _at_most(args[0], args[2]))
        return Value(f"substr({args[0].sql}, {start}, {length})", kind, nullable(args))
    text = as_text(args[0])
    kind = text_type(text.type.is_unicode, _at_most(text, args[2]))
    sql = f"substr({text.sql}, {start}, {length})"
    return Value(sql, kind, nullable(args), text.collation, supplementary=text.supplementary)


def _at_most(text: Value, length: Value) -> int:
    longest = text_length(text.type)
    if isinstance(length.constant, int) and length.constant > 0:
        return length.constant if longest == MAX else min(longest, length.constant)
    return longest


def _left_right(name: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text, count = as_text(args[0]), integer(args[1])
        cut = "left" if text.supplementary else "sys.cut"
        sql = f"{cut}({text.sql}, {count})"
        if name == "right":
            sql = f"CASE WHEN {count} > 0 THEN right({text.sql}, {count}) ELSE '' END"
        kind = text_type(text.type.is_unicode, _at_most(text, args[1]))
        return Value(sql, kind, nullable(args), text.collation)

    return handler


def _concat(compiler: Compiler, args: list[Value]) -> Value:
    texts = [as_text(arg) for arg in args]
    lengths = [text_length(text.type) for text in texts]
    kind = text_type(
        any(text.type.is_unicode for text in texts), MAX if MAX in lengths else sum(lengths)
    )
    sql = " || ".join(f"coalesce({text.sql}, '')" for text in texts)
    return Value(f"({sql})", kind, False, utf8=any(text.utf8 for text in texts))


def _charindex(compiler: Compiler, args: list[Value]) -> Value:
    needle, hay = as_text(args[0]), as_text(args[1])
    a, b = needle.sql, hay.sql
    if not (needle.collation or hay.collation):
        a, b = f'lower({a} COLLATE "pg_c_utf8")', f'lower({b} COLLATE "pg_c_utf8")'
    return Value(f"strpos({b}, {a})", INT, nullable(args))


def _replace(compiler: Compiler, args: list[Value]) -> Value:
    texts = [as_text(arg) for arg in args[:3]]
    unicode = any(text.type.is_unicode for text in texts)
    longest = (
        MAX if texts[0].type.length == MAX else max_length("nvarchar" if unicode else "varchar")
    )
    collation = next((text.collation for text in texts if text.collation), None)
    items = ", ".join(text.sql for text in texts)
    function = "replace" if collation else "sys.replace_ci"
    return Value(f"{function}({items})", text_type(unicode, longest), nullable(args), collation)


def _replicate(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0])
    longest = MAX if text.type.length == MAX else max_length(text.type.name)
    sql = f"repeat({text.sql}, {integer(args[1])})"
    return Value(sql, text_type(text.type.is_unicode, longest), nullable(args), text.collation)


def _nchar(compiler: Compiler, args: list[Value]) -> Value:
    # PostgreSQL has no character 0
    return Value(f"chr(nullif({integer(args[0])}, 0))", SqlType("nchar", 1), True)


def _trimmed(function: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text = as_text(args[0])
        kind = text_type(text.type.is_unicode, text_length(text.type))
        return Value(f"{function}({text.sql})", kind, nullable(args), text.collation)

    return handler


def _quotename(compiler: Compiler, args: list[Value]) -> Value:
    sql = f"('[' || replace({as_text(args[0]).sql}, ']', ']]') || ']')"
    return Value(sql, SqlType("nvarchar", 258), True)


TEXT_FUNCTIONS: dict[str, Handler] = {
    "len": _len,
    "datalength": _datalength,
    "upper": _text_function('upper({} COLLATE "pg_c_utf8")'),
    "lower": _text_function('lower({} COLLATE "pg_c_utf8")'),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    "substring": _substring,
    "left": _left_right("left"),
    "right": _left_right("right"),
    "concat": _concat,
    "charindex": _charindex,
    "replace": _replace,
    "replicate": _replicate,
    "nchar": _nchar,
    "quotename": _quotename,
}
