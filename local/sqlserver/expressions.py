"""T-SQL expressions and conditions to PostgreSQL SQL, with their T-SQL types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from local.sqlserver.catalog import Catalog
from local.sqlserver.conversions import Value, convert, from_ticks, literal, pg_type, ticks
from local.sqlserver.errors import SqlError, syntax_error, unsupported
from local.sqlserver.scope import Scope
from local.sqlserver.sqltype import CODE_PAGE, MAX, SqlType
from local.sqlserver.typerules import (
    DATETIME,
    FLOAT,
    INT,
    SYSNAME,
    arithmetic,
    common_type,
    family,
    parse_type,
    text_length,
    text_type,
)

if TYPE_CHECKING:
    from local.sqlserver.queries import Query

CONDITIONS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.And,
    exp.Or,
    exp.Not,
    exp.In,
    exp.Between,
    exp.Like,
    exp.Escape,
    exp.Is,
    exp.Exists,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_BITWISE: dict[type[exp.Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "#"}
_TICKS_PER_DAY = 864_000_000_000


@dataclass
class Compiler:
    """Translates one statement; collects the variables that it needs as parameters."""

    catalog: Catalog
    database: str
    variable_type: Callable[[str], SqlType]
    """The type of `@name` or `@@name`; raises SqlError 137 for an unknown one."""
    params: list[str] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    """PostgreSQL tables that a table hint wants locked."""
    counter: int = 0

    def alias(self) -> str:
        """A new PostgreSQL alias."""
        self.counter += 1
        return f"s{self.counter}"

    def parameter(self, name: str) -> Value:
        """A variable as a query parameter."""
        key = name.lower()
        sql_type = self.variable_type(key)
        if key not in self.params:
            self.params.append(key)
        return Value(f"${self.params.index(key) + 1}::{pg_type(sql_type)}", sql_type)

    # Implemented in queries.py, which builds on this class.
    def query(self, node: exp.Expr, scope: Scope | None) -> Query:
        from local.sqlserver.queries import compile_query

        return compile_query(self, node, scope)

    def expression(self, node: exp.Expr, scope: Scope) -> Value:
        """Translate an expression.

        Raises:
            SqlError: it names something unknown or mixes types that do not mix.
        """
        value = self._expression(node, scope)
        if scope.groups and not scope.aggregating and value.sql in scope.groups:
            return replace(value, sql=scope.groups[value.sql])
        return value

    def _expression(self, node: exp.Expr, scope: Scope) -> Value:
        maker = _EXPRESSIONS.get(type(node))
        if maker is not None:
            return maker(self, node, scope)
        kind = type(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], node, scope)
        if kind in _BITWISE:
            return self._bitwise(_BITWISE[kind], node, scope)
        if isinstance(node, (exp.Anonymous, exp.Window, exp.WithinGroup, exp.Func)):
            from local.sqlserver.functions import call

            return call(self, node, scope)
        if isinstance(node, CONDITIONS):
            raise syntax_error("=")
        raise unsupported(type(node).__name__)

    def condition(self, node: exp.Expr, scope: Scope) -> str:
        """Translate a search condition.

        Raises:
            SqlError: 4145, the expression is not a condition.
        """
        if isinstance(node, exp.Paren):
            return f"({self.condition(node.this, scope)})"
        if isinstance(node, (exp.And, exp.Or)):
            operator = "AND" if isinstance(node, exp.And) else "OR"
            parts = [self.condition(part, scope) for part in node.flatten(unnest=False)]
            return "(" + f" {operator} ".join(parts) + ")"
        if isinstance(node, exp.Not):
            return f"(NOT {self.condition(node.this, scope)})"
        if type(node) in _COMPARISONS:
            return self._comparison(_COMPARISONS[type(node)], node, scope)
        if isinstance(node, exp.Is):
            value = self.expression(node.this, scope)
            sql = f"({value.sql}).utc" if value.type.name == "datetimeoffset" else f"({value.sql})"
            if not isinstance(node.expression, exp.Null):
                raise syntax_error("IS")
            return f"({sql} IS NULL)"
        if isinstance(node, exp.Between):
            value = self.expression(node.this, scope)
            low = self.expression(node.args["low"], scope)
            high = self.expression(node.args["high"], scope)
            return f"({compare('>=', value, low)} AND {compare('<=', value, high)})"
        if isinstance(node, exp.In):
            return self._in(node, scope)
        if isinstance(node, exp.Like):
            return self._like(node, None, scope)
        if isinstance(node, exp.Escape):
            return self._like(node.this, self.expression(node.expression, scope), scope)
        if isinstance(node, exp.Exists):
            return f"EXISTS ({self.query(node.this, scope).sql})"
        raise SqlError(
            4145,
            15,
            "An expression of non-boolean type specified in a context where a condition "
            "is expected.",
        )

    def _comparison(self, operator: str, node: exp.Expr, scope: Scope) -> str:
        right = node.expression
        left = self.expression(node.this, scope)
        if isinstance(right, (exp.Any, exp.All)):
            inner = right.this.this if isinstance(right.this, exp.Subquery) else right.this
            query = self.query(inner, scope)
            name = self.alias()
            one = replace(query.columns[0], sql=f"{name}.c1")
            a, b = comparable(left, one)
            word = "ANY" if isinstance(right, exp.Any) else "ALL"
            return f"({a} {operator} {word} (SELECT {b} FROM ({query.sql}) AS {name}(c1)))"
        return compare(operator, left, self.expression(right, scope))

    def _in(self, node: exp.In, scope: Scope) -> str:
        value = self.expression(node.this, scope)
        inner = node.args.get("query")
        if inner is not None:
            query = self.query(inner.this if isinstance(inner, exp.Subquery) else inner, scope)
            name = self.alias()
            a, b = comparable(value, replace(query.columns[0], sql=f"{name}.c1"))
            return f"({a} IN (SELECT {b} FROM ({query.sql}) AS {name}(c1)))"
        values = [self.expression(item, scope) for item in node.expressions]
        pairs = [comparable(value, item) for item in values]
        if len({pair[0] for pair in pairs}) == 1:
            return f"({pairs[0][0]} IN ({', '.join(pair[1] for pair in pairs)}))"
        return "(" + " OR ".join(f"{a} = {b}" for a, b in pairs) + ")"

    def _like(self, node: exp.Expr, escape: Value | None, scope: Scope) -> str:
        value = self.expression(node.this, scope)
        pattern = self.expression(node.expression, scope)
        text = text_type(True, MAX)
        exact = value.collation or pattern.collation
        left, right = convert(value, text), convert(pattern, text)
        if isinstance(pattern.constant, str) and "[" not in pattern.constant:
            sign = "LIKE" if exact else "ILIKE"
            mark = literal(str(escape.constant)) if escape is not None else "''"
            return f'({left} COLLATE "pg_c_utf8" {sign} {right} ESCAPE {mark})'
        sign = "~" if exact else "~*"
        mark = convert(escape, text) if escape is not None else "NULL"
        return f'({left} COLLATE "pg_c_utf8" {sign} sys.like_pattern({right}, {mark}))'

    def _arithmetic(self, operator: str, node: exp.Expr, scope: Scope) -> Value:
        left, right = self.expression(node.this, scope), self.expression(node.expression, scope)
        nullable = left.nullable or right.nullable
        kinds = {family(left.type), family(right.type)}
        if left.is_null != right.is_null:
            # NULL takes the other's type
            kinds = {family(right.type if left.is_null else left.type)}
        if operator == "+" and kinds == {"text"}:
            return _concatenated(left, right)
        if operator == "+" and kinds == {"binary"}:
            sizes = text_length(left.type), text_length(right.type)
            length = MAX if MAX in sizes else min(8000, sum(sizes))
            return Value(f"({left.sql} || {right.sql})", SqlType("varbinary", length), nullable)
        if "date" in kinds:
            return _date_arithmetic(operator, left, right, nullable)
        if left.is_null and right.is_null:
            return Value("NULL::integer", INT)
        # a text among numbers is read as the number's type, NULL takes the other's
        if family(left.type) in ("text", "binary") or left.is_null:
            left = Value(convert(left, right.type), right.type)
        if family(right.type) in ("text", "binary") or right.is_null:
            right = Value(convert(right, left.type), left.type)
        if family(left.type) not in ("int", "dec", "float"):
            raise SqlError(
                8117,
                16,
                f"Operand data type {left.type.name} is invalid for {_WORDS[operator]} operator.",
            )
        result = arithmetic(operator, left.type, right.type, _digits(left), _digits(right))
        a, b = left.sql, right.sql
        if result.name in ("float", "real"):
            a, b = convert(left, result), convert(right, result)
            if operator == "%":
                raise SqlError(
                    402, 16, "The data types float and int are incompatible in the modulo operator."
                )
            return Value(f"({a} {operator} {b})", result, nullable)
        if result.name in ("decimal", "numeric"):
            if operator == "/":
                # SQL Server cuts the quotient where PostgreSQL would round it
                scale = result.scale or 0
                sql = f"trunc(round({a}::numeric, {scale + 1}) / {b}, {scale})::{pg_type(result)}"
            else:
                sql = f"({a} {operator} {b})::{pg_type(result)}"
            return Value(sql, result, nullable)
        if result.name in ("money", "smallmoney"):
            sql = f"({a}::numeric {operator} {b})::{pg_type(result)}"
            return Value(sql, result, nullable)
        if result.name == "tinyint":
            return Value(f"sys.tinyint(({a} {operator} {b})::bigint)", result, nullable)
        if result.name == "bit":
            raise SqlError(
                8117, 16, f"Operand data type bit is invalid for {_WORDS[operator]} operator."
            )
        return Value(f"({a} {operator} {b})", result, nullable)

    def _bitwise(self, operator: str, node: exp.Expr, scope: Scope) -> Value:
        left, right = self.expression(node.this, scope), self.expression(node.expression, scope)
        if family(left.type) == "binary":
            left = Value(convert(left, right.type), right.type)
        if family(right.type) == "binary":
            right = Value(convert(right, left.type), left.type)
        result = common_type(left.type, right.type)
        if family(result) != "int":
            raise SqlError(
                402,
                16,
                f"The data types {left.type.name} and {right.type.name} are incompatible in "
                f"the '{operator}' operator.",
            )
        a, b = convert(left, result), convert(right, result)
        return Value(f"({a} {operator} {b})", result, left.nullable or right.nullable)

    def case(self, branches: list[tuple[str, Value]], default: Value | None) -> Value:
        """CASE WHEN ... THEN ... END, whose type is the highest of its branches."""
        values = [value for _, value in branches] + ([default] if default is not None else [])
        result = unified(values)
        whens = " ".join(
            f"WHEN {when} THEN {convert(value, result.type)}" for when, value in branches
        )
        tail = f" ELSE {convert(default, result.type)}" if default is not None else ""
        nullable = default is None or any(value.nullable or value.is_null for value in values)
        return replace(result, sql=f"(CASE {whens}{tail} END)", nullable=nullable)


def _digits(value: Value) -> int | None:
    """How many digits a whole literal has: in decimal arithmetic no others count."""
    return len(str(abs(value.constant))) if isinstance(value.constant, int) else None


_WORDS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}


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
        return key(replace(left, collation=collation)), key(replace(right, collation=collation))
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
        if {left.type.name, right.type.name} <= plain and 7 not in (
            left.type.scale,
            right.type.scale,
        ):
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


def _concatenated(left: Value, right: Value) -> Value:
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
    )


def _date_arithmetic(operator: str, left: Value, right: Value, nullable: bool) -> Value:
    # only datetime and smalldatetime add and subtract, in days
    result = left.type if family(left.type) == "date" else right.type
    if result.name not in ("datetime", "smalldatetime") or operator not in "+-":
        raise SqlError(
            206, 16, f"Operand type clash: {left.type.name} is incompatible with {right.type.name}"
        )
    zero = "599266080000000000"
    sql = f"({ticks(left)} {operator} {ticks(right)} {'-' if operator == '+' else '+'} {zero})"
    return Value(from_ticks(sql, DATETIME), DATETIME, nullable)


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
    )


def _cast(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    kind = parse_type(node.args["to"].args["kind"], in_cast=True)
    tried = isinstance(node, exp.TryCast)
    sql = convert(value, kind, tried=tried)
    return Value(sql, kind, tried or value.nullable or value.is_null, value.collation)


def _convert(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.expression, scope)
    kind = parse_type(node.this.args["kind"], in_cast=True)
    style = node.args.get("style")
    number_of_style = None
    if style is not None:
        constant = compiler.expression(style, scope).constant
        if not isinstance(constant, int):
            raise unsupported("CONVERT with a style that is not a literal")
        number_of_style = constant
    tried = bool(node.args.get("safe"))
    sql = convert(value, kind, number_of_style, tried=tried)
    return Value(sql, kind, tried or value.nullable or value.is_null, value.collation)


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


def _binary(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    digits = str(node.this)
    digits = "0" * (len(digits) % 2) + digits
    kind = SqlType("varbinary", max(1, len(digits) // 2) if len(digits) <= 16000 else MAX)
    return Value(f"'\\x{digits}'::bytea", kind, False)


def _inverted(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    if value.type.name == "bit":
        return Value(f"(1 - {value.sql})::smallint", value.type, value.nullable)
    if value.type.name == "tinyint":
        return Value(f"(255 - {value.sql})::smallint", value.type, value.nullable)
    return Value(f"(~ {value.sql})", value.type, value.nullable)


def _parenthesised(compiler: Compiler, node: exp.Expr, scope: Scope) -> Value:
    value = compiler.expression(node.this, scope)
    return replace(
        value, sql=value.sql if value.constant is not None else f"({value.sql})", name=""
    )


_EXPRESSIONS: dict[type, Callable[[Compiler, exp.Expr, Scope], Value]] = {
    exp.Column: _column,
    exp.Parameter: _parameter,
    exp.Paren: _parenthesised,
    exp.Subquery: _subquery,
    exp.Null: lambda compiler, node, scope: Value("NULL", INT, is_null=True),
    exp.Literal: lambda compiler, node, scope: (
        text_value(str(node.this), False) if node.is_string else number(str(node.this))
    ),
    exp.National: lambda compiler, node, scope: text_value(str(node.this), True),
    exp.HexString: _binary,
    exp.Neg: _negative,
    exp.BitwiseNot: _inverted,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Convert: _convert,
    exp.Collate: _collate,
    exp.CurrentTimestamp: lambda compiler, node, scope: Value(
        "sys.to_datetime(clock_timestamp() AT TIME ZONE 'UTC')", DATETIME, False
    ),
    exp.CurrentUser: lambda compiler, node, scope: replace(
        compiler.parameter("@@user_name"), type=SYSNAME
    ),
    exp.SessionUser: lambda compiler, node, scope: compiler.parameter("@@user_name"),
}
