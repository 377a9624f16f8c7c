"""Functions of texts and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    INT,
    family,
    max_length,
    text_length,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value, literal

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
    kind, name = family(value.type), value.type.name
    if kind == "text":
        each = 2 if value.type.is_unicode else 1
        sql = f"({each} * sys.units({value.sql}))"
        if value.utf8 and each == 1:
            sql = f"octet_length({value.sql})"
    elif kind == "binary":
        sql = f"octet_length({value.sql})"
    elif name in ("decimal", "numeric"):
        precision = value.type.precision or 18
        size = 5 if precision <= 9 else 9 if precision <= 19 else 13 if precision <= 28 else 17
        sql = f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {size} END"
    else:
        scale = 7 if value.type.scale is None else value.type.scale
        small = 0 if scale > 4 else 1 if scale > 2 else 2
        size = {
            "bigint": 8, "int": 4, "smallint": 2, "tinyint": 1, "bit": 1, "money": 8, "float": 8,
            "smallmoney": 4, "real": 4, "date": 3, "datetime": 8, "smalldatetime": 4,
            "uniqueidentifier": 16, "time": 5 - small, "datetime2": 8 - small,
            "datetimeoffset": 10 - small,
        }.get(name, 8)  # fmt: skip
        sql = f"CASE WHEN ({value.sql})::text IS NULL THEN NULL ELSE {size} END"
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
    if len(args) < 3:
        return Value(f"strpos({b}, {a})", INT, nullable(args))
    start = f"greatest({integer(args[2])}, 1)"
    sql = f"COALESCE(nullif(strpos(substr({b}, {start}), {a}), 0) + {start} - 1, 0)"
    return Value(sql, INT, nullable(args))


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


def _char(unicode: bool) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        code = integer(args[0])
        kind = SqlType("nchar" if unicode else "char", 1)
        if unicode:
            # PostgreSQL has no character 0
            return Value(f"chr(nullif({code}, 0))", kind, True)
        return Value(f"convert_from(set_byte('\\x00'::bytea, 0, {code}), 'WIN1252')", kind, True)

    return handler


def trim(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    text = as_text(compiler.expression(node.this, scope))
    chars = node.args.get("expression")
    what = f", {as_text(compiler.expression(chars, scope)).sql}" if chars is not None else ""
    kind = text_type(text.type.is_unicode, text_length(text.type))
    return Value(f"btrim({text.sql}{what})", kind, text.nullable, text.collation)


def _trimmed(function: str) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        text = as_text(args[0])
        what = f", {as_text(args[1]).sql}" if len(args) > 1 else ""
        kind = text_type(text.type.is_unicode, text_length(text.type))
        return Value(f"{function}({text.sql}{what})", kind, nullable(args), text.collation)

    return handler


def _quotename(compiler: Compiler, args: list[Value]) -> Value:
    text = as_text(args[0]).sql
    mark = str(args[1].constant) if len(args) > 1 else "["
    pair = {"(": "()", "'": "''", '"': '""'}.get(mark, "[]")
    left, right = pair[0], pair[1]
    sql = (
        f"({literal(left)} || replace({text}, {literal(right)}, {literal(right * 2)}) || "
        f"{literal(right)})"
    )
    return Value(sql, SqlType("nvarchar", 258), True)


TEXT_FUNCTIONS: dict[str, Handler] = {
    "len": _len,
    "datalength": _datalength,
    "upper": _text_function('upper({} COLLATE "pg_c_utf8")'),
    "lower": _text_function('lower({} COLLATE "pg_c_utf8")'),
    "reverse": _text_function("reverse({})"),
    "ltrim": _trimmed("ltrim"),
    "rtrim": _trimmed("rtrim"),
    "trim": _trimmed("btrim"),
    "substring": _substring,
    "left": _left_right("left"),
    "right": _left_right("right"),
    "concat": _concat,
    "charindex": _charindex,
    "replace": _replace,
    "replicate": _replicate,
    "char": _char(False),
    "nchar": _char(True),
    "quotename": _quotename,
}
