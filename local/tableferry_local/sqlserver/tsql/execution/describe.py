"""What a batch's first result will look like, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry_local.sqlserver.errors import ErrorContext
from tableferry_local.sqlserver.tsql.execution.arguments import definitions_of
from tableferry_local.sqlserver.tsql.execution.assignments import declare
from tableferry_local.sqlserver.tsql.execution.state import Frame, State, Variable
from tableferry_local.sqlserver.tsql.syntax.batch import (
    Block,
    Node,
    Statement,
    parse_batch,
)
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize
from tableferry_local.sqlserver.tsql.syntax.preparing import assigned_variables, prepare
from tableferry_local.sqlserver.tsql.translation.queries import compile_query
from tableferry_local.sqlserver.types.sqltype import ResultColumn


def describe(state: State, text: str, declarations: str = "") -> list[ResultColumn]:
    """The columns of the first result; none if the batch yields no rows.

    Args:
        declarations: parameters, such as `@p0 int, @p1 nvarchar(10)`.

    Raises:
        SqlError: the batch cannot be translated.
    """

    definitions = definitions_of(tokenize(declarations)) if declarations else []
    frame = Frame({name: Variable(kind) for name, kind, _, _ in definitions}, parent=state.frame)
    return described_in(state, text, frame)


def described_in(state: State, text: str, frame: Frame) -> list[ResultColumn]:
    """Like `describe`, with variables that are already there."""
    outer, state.frame = state.frame, frame
    try:
        with state.statement(ErrorContext("SELECT")):
            return _first(state, parse_batch(text)) or []
    finally:
        state.frame = outer


def _first(state: State, nodes: Sequence[Node]) -> list[ResultColumn] | None:
    for node in nodes:
        found: list[ResultColumn] | None = None
        if isinstance(node, Statement):
            found = _statement(state, node)
        elif isinstance(node, Block):
            found = _first(state, node.body)
        else:
            found = _first(state, [node.then, *([node.otherwise] if node.otherwise else [])])
        if found is not None:
            return found
    return None


def _statement(state: State, statement: Statement) -> list[ResultColumn] | None:
    prepare(statement)
    parsed = statement.parsed
    if statement.kind == "DECLARE":
        declare(state, statement)
    elif statement.kind == "SELECT":
        if assigned_variables(parsed) is not None:
            return None
        return compile_query(state.compiler(), parsed, None).result_columns
    return None
