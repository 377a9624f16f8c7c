"""INSERT, UPDATE and DELETE read from tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.errors import syntax_error, unsupported
from tableferry_local.sqlserver.tsql.syntax.clauses import (
    Tokens,
    find,
    matching,
    name_at,
    name_list,
    prefixed,
    split,
    words,
)
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression, parse_query, word


@dataclass
class Insert:
    """A parsed INSERT. One of the sources is set."""

    target: list[str]
    columns: list[str] | None
    rows: list[list[exp.Expr | None]] | None = None
    """VALUES; None in a row stands for DEFAULT."""
    query: exp.Expr | None = None


@dataclass
class Change:
    """A parsed UPDATE (with assignments) or DELETE (without)."""

    target: list[str]
    select: exp.Select
    """SELECT 1 FROM ... WHERE ..., with the target or the FROM clause as written."""
    has_from: bool
    assignments: list[tuple[str, exp.Expr]]


def parse_insert(tokens: Sequence[Token]) -> Insert:
    """Read an INSERT.

    Raises:
        SqlError: 102.
    """
    at = 1
    if word(tokens[at]) == "INTO":
        at += 1
    target, at = name_at(tokens, at)
    at = _after_hints(tokens, at)
    columns = None
    if words(tokens[at : at + 1]) == ["("] and words(tokens[at + 1 : at + 2])[:1] not in (
        ["SELECT"],
        ["WITH"],
        ["("],
    ):
        columns, at = name_list(tokens, at)
    stop = find(tokens, {"VALUES", "SELECT", "EXEC", "EXECUTE", "DEFAULT", "WITH", "("}, at)
    if words(tokens[at : at + 1]) == ["OUTPUT"]:
        raise unsupported("OUTPUT")
    made = Insert(target, columns)
    source = tokens[stop:]
    head = words(source, 2)
    if not head:
        raise syntax_error(tokens[-1].text)
    if head[0] in ("EXEC", "EXECUTE", "DEFAULT"):
        raise unsupported(f"INSERT ... {head[0]}")
    if head[0] == "VALUES":
        made.rows = [
            [_value(part) for part in split(row[1 : matching(row, 0)])] for row in split(source[1:])
        ]
    else:
        made.query = parse_query(source)
    return made


def _value(tokens: Tokens) -> exp.Expr | None:
    if len(tokens) == 1:
        token = tokens[0]
        kind = token.token_type
        if kind == TokenType.DEFAULT:
            return None
        if kind == TokenType.STRING:
            return exp.Literal.string(token.text)
        if kind == TokenType.NUMBER:
            return exp.Literal.number(token.text)
        if kind == TokenType.NATIONAL_STRING:
            return exp.National(this=token.text)
        if kind == TokenType.NULL:
            return exp.Null()
        if kind == TokenType.HEX_STRING:
            return exp.HexString(this=token.text)
    return parse_expression(tokens)


def _after_hints(tokens: Tokens, at: int) -> int:
    if words(tokens[at : at + 2]) == ["WITH", "("]:
        return matching(tokens, at + 1) + 1
    return at


def parse_change(tokens: Sequence[Token]) -> Change:
    """Read an UPDATE or DELETE.

    Raises:
        SqlError: 102.
    """
    update = word(tokens[0]) == "UPDATE"
    at = 1
    if words(tokens[at : at + 1]) == ["TOP"]:
        raise unsupported("TOP in UPDATE or DELETE")
    if not update and words(tokens[at : at + 1]) == ["FROM"]:
        at += 1
    begin = at
    target, at = name_at(tokens, at)
    if not update and words(tokens[at : at + 1]) not in (
        ["WITH"],
        ["FROM"],
        ["WHERE"],
        ["OUTPUT"],
        ["OPTION"],
        [],
    ):
        # DELETE FROM t AS x is not T-SQL, DELETE x FROM t AS x is
        raise syntax_error(tokens[at].text)
    at = _after_hints(tokens, at)
    named = list(tokens[begin:at])
    tail_words = {"OUTPUT", "FROM", "WHERE", "OPTION"}
    assignments = []
    if update:
        if words(tokens[at : at + 1]) != ["SET"]:
            raise syntax_error(tokens[at].text if at < len(tokens) else "UPDATE")
        end = find(tokens, tail_words, at)
        assignments = [_assignment(part) for part in split(tokens[at + 1 : end])]
        at = end
    if words(tokens[at : at + 1]) == ["OUTPUT"]:
        raise unsupported("OUTPUT")
    end = find(tokens, {"OPTION"}, at)
    rest = list(tokens[at:end])
    has_from = words(rest, 1) == ["FROM"]
    if not has_from:
        rest = [*prefixed("FROM", named), *rest]
    select = parse_query(prefixed("SELECT 1", rest))
    if not isinstance(select, exp.Select):
        raise syntax_error(tokens[0].text)
    return Change(target, select, has_from, assignments)


def _assignment(tokens: Tokens) -> tuple[str, exp.Expr]:
    names, at = name_at(tokens, 0)
    if words(tokens[at : at + 1]) != ["="] or names[-1].startswith("@"):
        raise syntax_error(tokens[at].text if at < len(tokens) else names[-1])
    return names[-1], parse_expression(tokens[at + 1 :])
