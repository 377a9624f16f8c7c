"""The nodes of an expression's syntax tree, one function each."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import collation_kind, compare
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler, Translator
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import CODE_PAGE, MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    FLOAT,
    INT,
    family,
    parse_type,
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


def _text_value(text: str, unicode: bool) -> Value:
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


def _binary_value(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    digits = str(node.this)
    digits = "0" * (len(digits) % 2) + digits
    kind = SqlType("varbinary", max(1, len(digits) // 2) if len(digits) <= 16000 else MAX)
    return Value(f"'\\x{digits}'::bytea", kind, False)


def _case(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    subject = node.args.get("this")
    branches = []
    for branch in node.args["ifs"]:
        if subject is not None:
            left = compiler.expression(subject, scope)
            when = compare("=", left, compiler.expression(branch.this, scope))
        else:
            when = compiler.condition(branch.this, scope)
        branches.append((when, compiler.expression(branch.args["true"], scope)))
    default = node.args.get("default")
    return compiler.case(branches, None if default is None else compiler.expression(default, scope))


def _column(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    if not isinstance(node.this, exp.Identifier):
        raise syntax_error("*")
    return scope.resolve([part.name for part in node.parts])  # type: ignore[attr-defined]


def _parameter(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    name = "@" + (
        node.this.name if not isinstance(node.this, exp.Parameter) else "@" + node.this.this.name
    )
    return compiler.parameter(name)


def _negative(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    if isinstance(value.constant, int):
        constant = -value.constant
        kind = INT if constant == -(2**31) else value.type
        tail = "" if kind == INT else "::numeric"
        return Value(f"({constant}){tail}", kind, False, constant=constant)
    if family(value.type) not in ("int", "dec", "float"):
        raise SqlError(
            8117, 16, f"Operand data type {value.type.name} is invalid for minus operator."
        )
    return Value(f"(- {value.sql})", value.type, value.nullable)


def _collate(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    name = node.expression.name
    return replace(
        value,
        collation=collation_kind(name) or None,
        # https://learn.microsoft.com/sql/relational-databases/collations/collation-and-unicode-support
        supplementary="_SC" in name.upper() or "_140_" in name,
        utf8=name.upper().endswith("_UTF8"),
    )


def _cast(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    kind = parse_type(node.args["to"].args["kind"], in_cast=True)
    nullable = value.nullable or value.is_null
    return Value(convert(value, kind), kind, nullable, value.collation, utf8=value.utf8)


def _try_cast(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    kind = parse_type(node.args["to"].args["kind"], in_cast=True)
    if kind.name != "decimal" or family(value.type) not in ("int", "dec", "float"):
        raise unsupported("TRY_CAST but of numbers as decimals")
    scale = kind.scale or 0
    fits = f"abs(round(({value.sql})::numeric, {scale})) < {10 ** ((kind.precision or 18) - scale)}"
    return Value(f"CASE WHEN {fits} THEN {convert(value, kind)} END", kind)


def _convert(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.expression, scope)
    kind = parse_type(node.this.args["kind"], in_cast=True)
    style = node.args.get("style")
    if style is not None:
        if compiler.expression(style, scope).constant != 3 or family(value.type) != "float":
            raise unsupported("CONVERT with another style than 3, which is for floats,")
        value = Value(f"sys.float_text({value.sql}, 3)", SqlType("varchar", 24), value.nullable)
    nullable = value.nullable or value.is_null
    return Value(convert(value, kind), kind, nullable, value.collation, utf8=value.utf8)


def _subquery(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    query = compiler.query(node.this, scope)
    if len(query.columns) != 1:
        raise SqlError(
            116,
            16,
            "Only one expression can be specified in the select list when the subquery is "
            "not introduced with EXISTS.",
        )
    return replace(query.columns[0], sql=f"({query.sql})", nullable=True, identity=False)


def _parenthesised(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    return replace(
        value, sql=value.sql if value.constant is not None else f"({value.sql})", name=""
    )


NODES: dict[type[exp.Expr], Translator] = {
    exp.Column: _column,
    exp.Parameter: _parameter,
    exp.Paren: _parenthesised,
    exp.Subquery: _subquery,
    exp.Null: lambda compiler, node, scope: Value("NULL", INT, is_null=True),
    exp.Literal: lambda compiler, node, scope: (
        _text_value(str(node.this), False) if node.is_string else number(str(node.this))
    ),
    exp.National: lambda compiler, node, scope: _text_value(str(node.this), True),
    exp.HexString: _binary_value,
    exp.Neg: _negative,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _try_cast,
    exp.Convert: _convert,
    exp.Collate: _collate,
}
