"""A server is trusted only after it has computed constants correctly.

Servers with the same protocol and the same SQL may still give different results. So what must be
exact (a text wire, a digest) is stated as constants with the expected results, and each connection
is asked for them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.system import System
from tableferry.resources.errors import StatementFailed

SHOWN = 80
"""Maximum number of a value's characters in a message."""

NUMBER = "ferry__n"


@dataclass(frozen=True)
class Constant:
    """A value, an expression on it, and the expected result."""

    what: str
    """The kind of value for messages, e.g. `nvarchar(20): a lone backslash`."""
    expression: str
    """In the server's SQL, on the names of `values`."""
    expected: str | None
    """The expected result as text; None for NULL."""
    values: tuple[tuple[str, str], ...] = ()
    """Unquoted column names, and constants in SQL, cast to the columns' types."""


@dataclass(frozen=True)
class Wrong:
    """A constant that did not give the expected result."""

    what: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.what}: should be {self.expected}, but {self.actual} arrived"


def wrong_answers(endpoint: Endpoint, constants: Sequence[Constant]) -> tuple[Wrong, ...]:
    """Have a server compute all constants by one query, and list the wrong results.

    If the server refuses the query, it gets one for each expression, to find the wrong ones.

    Raises:
        ConnectionFailed: the server cannot be reached.
        StatementFailed: the connection broke, or the query failed for another transient reason.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for position, constant in enumerate(constants):
        names = tuple(name for name, _ in constant.values)
        groups.setdefault((constant.expression, names), []).append(position)
    answers = _answers(endpoint, constants, list(groups.values()))
    return tuple(
        Wrong(constant.what, shown(constant.expected), shown(answers.get(position, "nothing")))
        for position, constant in enumerate(constants)
        if position not in answers or answers[position] != constant.expected
    )


def _query(system: System, constants: Sequence[Constant], groups: Sequence[Sequence[int]]) -> str:
    """Write the query for (position, result as text) of constants, grouped by expression.

    A group's values are rows of a table, lest the server evaluate them while it plans: a branch
    that is not taken might fail.
    """
    parts, sql = [], system.dialect
    for group in groups:
        first = constants[group[0]]
        names = [system.quote(name) for name in (NUMBER, *(name for name, _ in first.values))]
        # PostgreSQL treats a single row as constants, hence a second one, which is ignored
        numbered = [(-1, first), *((position, constants[position]) for position in group)]
        rows = [[str(number), *(value for _, value in row.values)] for number, row in numbered]
        text = sql.text(f"({first.expression})")
        parts.append(f"SELECT {names[0]}, {text} FROM {sql.constants(rows, names)}")
    return " UNION ALL ".join(parts)


def shown(value: object) -> str:
    """Write a value for a message: on one line, with its invisible characters visible."""
    if value is None:
        return "NULL"
    text = str(value)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def probed(endpoint: Endpoint, subject: str, constants: Sequence[Constant]) -> tuple[Wrong, ...]:
    """Call `wrong_answers` once per connection, subject (e.g. `digest`) and list of constants."""
    constants = tuple(constants)
    facts = endpoint.settings().facts
    return facts.known((subject, constants), lambda: wrong_answers(endpoint, constants))


def _answers(
    endpoint: Endpoint, constants: Sequence[Constant], groups: Sequence[Sequence[int]]
) -> dict[int, str | None]:
    """Answers, or errors of expressions, by the constants' positions."""
    try:
        rows = endpoint.query(_query(endpoint.system, constants, groups))
        return {int(number): answer for number, answer in rows if int(number) >= 0}
    except StatementFailed as error:
        if error.transient:
            raise
        if len(groups) == 1:
            return {position: str(error) for position in groups[0]}
    return {
        position: answer
        for group in groups
        for position, answer in _answers(endpoint, constants, [group]).items()
    }
