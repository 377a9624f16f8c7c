"""Parsing every statement of a batch before the first one runs."""

from __future__ import annotations

from sqlglot import exp

from tableferry_local.sqlserver.errors import (
    SqlError,
    syntax_error,
)
from tableferry_local.sqlserver.tsql.syntax.batch import Block, Node, Statement
from tableferry_local.sqlserver.tsql.syntax.clauses import find
from tableferry_local.sqlserver.tsql.syntax.dmlparsing import parse_change, parse_insert
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression, parse_query


def assigned_variables(node: exp.Expr) -> list[str] | None:
    """The variables of SELECT @a = ..., @b = ...; None if it selects for the client."""
    if not isinstance(node, exp.Select):
        return None
    names = [
        "@" + item.this.name
        for item in node.expressions
        if isinstance(item, exp.EQ) and isinstance(item.this, exp.Parameter)
    ]
    if not names:
        return None
    if len(names) != len(node.expressions):
        raise SqlError(
            141,
            15,
            "A SELECT statement that assigns a value to a variable must not be combined with "
            "data-retrieval operations.",
        )
    return names


def prepare_all(node: Node) -> None:
    """Parse every statement of a batch, so that a syntax error anywhere stops all of it."""
    if isinstance(node, Statement):
        prepare(node)
    elif isinstance(node, Block):
        for item in node.body:
            prepare_all(item)
    else:
        prepare(node.condition)
        prepare_all(node.then)
        if node.otherwise is not None:
            prepare_all(node.otherwise)


def prepare(statement: Statement) -> None:
    """Parse a statement's tokens into `parsed`, once.

    Raises:
        SqlError: 102.
    """
    if statement.parsed is not None:
        return
    kind = statement.kind
    if kind == "SELECT":
        end = find(statement.tokens, {"OPTION"})
        node = parse_query(statement.tokens[:end])
        if not isinstance(node, (exp.Query,)):
            raise syntax_error(statement.tokens[0].text)
        statement.parsed = node
    elif kind == "CONDITION":
        statement.parsed = parse_expression(statement.tokens)
    elif kind == "INSERT":
        statement.parsed = parse_insert(statement.tokens)
    elif kind in ("UPDATE", "DELETE"):
        statement.parsed = parse_change(statement.tokens)
