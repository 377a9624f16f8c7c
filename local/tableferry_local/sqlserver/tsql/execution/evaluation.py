"""Values of single expressions, for SET, DECLARE, arguments and messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from tableferry_local.sqlserver.catalog.link import PgError
from tableferry_local.sqlserver.errors import ErrorContext
from tableferry_local.sqlserver.tsql.execution.state import State
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.scope import Scope
from tableferry_local.sqlserver.types.sqltype import MAX, SqlType
from tableferry_local.sqlserver.types.typerules import INT

TEXT = SqlType("nvarchar", MAX)


def evaluate(
    state: State, node: exp.Expr, kind: SqlType | None = None
) -> tuple[SqlType, str | None]:
    """An expression's value as PostgreSQL text of a type's storage.

    Args:
        kind: the type wanted; by default the expression's own.

    Raises:
        SqlError: it cannot be computed or converted.
    """
    constant = _constant(node, kind)
    if constant is not None:
        return constant
    with state.statement(ErrorContext("SET")):
        compiler = state.compiler()
        value = compiler.expression(node, Scope())
        wanted = kind or value.type
        rows = state.link.rows(f"SELECT {convert(value, wanted)}", state.values(compiler.params))
    return wanted, rows[0][0]


def _constant(node: exp.Expr, kind: SqlType | None) -> tuple[SqlType, str | None] | None:
    # the frequent cases need no server
    if isinstance(node, exp.Null):
        return kind or INT, None
    if kind is None or not isinstance(node, (exp.Literal, exp.National)):
        return None
    text = str(node.this)
    if kind.name in ("int", "bigint") and isinstance(node, exp.Literal) and not node.is_string:
        if text.isdigit() and int(text) < 2**31:
            return kind, text
    elif kind.name == "nvarchar" and (
        isinstance(node, exp.National) or (node.is_string and text.isascii())
    ):
        units = len(text.encode("utf-16-le")) // 2
        if kind.length == MAX or units <= (kind.length or 0):
            return kind, text
    return None


@contextmanager
def translating(state: State, what: str) -> Iterator[None]:
    """Errors of PostgreSQL become SQL Server's, without a savepoint around."""
    try:
        yield
    except PgError as error:
        context = ErrorContext(what, state._describe)
        state.trancount = 0 if state.link.status.name == "IDLE" else state.trancount
        raise state._translated(error, context) from error
