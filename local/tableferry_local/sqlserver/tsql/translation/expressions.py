"""T-SQL expressions and conditions to PostgreSQL SQL, with their T-SQL types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tableferry_local.sqlserver.catalog.tables import Catalog
from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import comparable, compare, unified
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.query import Query
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import (
    INT,
    arithmetic,
    family,
    text_length,
    text_type,
)
from tableferry_local.sqlserver.types.value import Value, literal, pg_type

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
)
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


Translator = Callable[["Compiler", exp.Expr, Scope], Value]


@dataclass(frozen=True)
class Language:
    """The parts of T-SQL whose translation builds on that of expressions."""

    nodes: Mapping[type[exp.Expr], Translator]
    """Nodes of the syntax tree that are no operators, conditions or calls."""
    call: Translator
    """Calls of functions."""
    query: Callable[[Compiler, exp.Expr, Scope | None], Query]


@dataclass
class Compiler:
    """Translates one statement; collects the variables that it needs as parameters."""

    language: Language
    catalog: Catalog
    database: str
    variable_type: Callable[[str], SqlType]
    """The type of `@name` or `@@name`; raises SqlError 137 for an unknown one."""
    params: list[str] = field(default_factory=list)
    of_catalog: bool | None = None
    """Whether all that it reads are views of the catalog; None if it reads nothing."""
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

    def query(self, node: exp.Expr, scope: Scope | None) -> Query:
        """Translate a query; the scope is that of the query around it."""
        return self.language.query(self, node, scope)

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
        maker = self.language.nodes.get(type(node))
        if maker is not None:
            return maker(self, node, scope)
        kind = type(node)
        if kind in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[kind], node, scope)
        if isinstance(node, (exp.Anonymous, exp.Window, exp.WithinGroup, exp.Func)):
            return self.language.call(self, node, scope)
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
        left, right = (self.expression(side, scope) for side in (node.this, node.expression))
        return compare(operator, left, right)

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
        found = self._matches(node, escape, scope)
        return f"(NOT {found})" if node.args.get("negate") else found

    def _matches(self, node: exp.Expr, escape: Value | None, scope: Scope) -> str:
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
            return concatenated(left, right)
        if operator == "+" and kinds == {"binary"}:
            sizes = text_length(left.type), text_length(right.type)
            length = MAX if MAX in sizes else min(8000, sum(sizes))
            return Value(f"({left.sql} || {right.sql})", SqlType("varbinary", length), nullable)
        if "date" in kinds:
            raise unsupported("arithmetic with dates")
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
                f"Operand data type {left.type.name} is invalid for {OPERATOR_WORDS[operator]} "
                "operator.",
            )
        result = arithmetic(operator, left.type, right.type, digits_of(left), digits_of(right))
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
                8117,
                16,
                f"Operand data type bit is invalid for {OPERATOR_WORDS[operator]} operator.",
            )
        return Value(f"({a} {operator} {b})", result, nullable)

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
