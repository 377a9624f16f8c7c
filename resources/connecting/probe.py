"""A server is believed only after it has computed constants right.

Servers that speak the same protocol and take the same SQL still differ in what comes out. So what
must be exact (a text wire, a digest) is described here as constants with the results that they
must give, asked for once per connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.system import System
from tableferry.resources.errors import StatementFailed

SHOWN = 80
"""Characters of a value that a message shows."""

NUMBER = "ferry__n"


@dataclass(frozen=True)
class Constant:
    """One value through one expression, and what must come of it."""

    what: str
    """For messages: the kind of value, e.g. `nvarchar(20): a lone backslash`."""
    expression: str
    """In the server's SQL, over the names of `values`, as the product would send it."""
    expected: str | None
    """The result as text; None for NULL."""
    values: tuple[tuple[str, str], ...] = ()
    """Column names, unquoted, and their constants as SQL, each cast to the column's type."""


@dataclass(frozen=True)
class Wrong:
    """A constant that did not give what it must."""

    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: should be {self.expected}, but {self.found} came"


def wrong_answers(endpoint: Endpoint, constants: Sequence[Constant]) -> tuple[Wrong, ...]:
    """Ask a server for all constants by one query, and say which results are wrong.

    If the server refuses the query, each expression is asked for by itself, so that the wrong ones
    are known by name.

    Raises:
        ConnectionFailed: the server is not there.
        StatementFailed: the connection broke, or another failure that passes by itself.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for position, constant in enumerate(constants):
        names = tuple(name for name, _ in constant.values)
        groups.setdefault((constant.expression, names), []).append(position)
    found = _answers_or_errors(endpoint, constants, list(groups.values()))
    return tuple(
        Wrong(constant.what, shown(constant.expected), shown(found.get(position, "nothing")))
        for position, constant in enumerate(constants)
        if position not in found or found[position] != constant.expected
    )


def query_of(system: System, constants: Sequence[Constant], groups: Sequence[Sequence[int]]) -> str:
    """The query that yields (position, result as text) of constants, grouped by expression.

    The values of a group are rows of one table, so that no server computes them while it plans: a
    branch that is not taken may not be computed ahead and fail.
    """
    parts, sql = [], system.dialect
    for group in groups:
        first = constants[group[0]]
        names = [quote(system, name) for name in (NUMBER, *(name for name, _ in first.values))]
        # PostgreSQL treats a single row as constants, hence a second one that is not looked at
        numbered = [(-1, first), *((position, constants[position]) for position in group)]
        rows = [[str(number), *(value for _, value in one.values)] for number, one in numbered]
        text = sql.text(f"({first.expression})")
        parts.append(f"SELECT {names[0]}, {text} FROM {sql.constants(rows, names)}")
    return " UNION ALL ".join(parts)


def shown(value: object) -> str:
    """A value for a message: on one line, with its invisible characters visible."""
    if value is None:
        return "NULL"
    text = str(value)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def probed(endpoint: Endpoint, subject: str, constants: Sequence[Constant]) -> tuple[Wrong, ...]:
    """`wrong_answers`, asked once per connection and list of constants.

    Args:
        endpoint: the server.
        subject: what is believed if nothing is wrong, e.g. `digest`.
        constants: what it consists of.
    """
    constants = tuple(constants)
    facts = endpoint.settings().facts
    return facts.known((subject, constants), lambda: wrong_answers(endpoint, constants))


def _answers(
    endpoint: Endpoint, constants: Sequence[Constant], groups: Iterable[Sequence[int]]
) -> dict[int, str | None]:
    rows = endpoint.query(query_of(endpoint.system, constants, list(groups)))
    return {int(number): value for number, value in rows if int(number) >= 0}


def _answers_or_errors(
    endpoint: Endpoint, constants: Sequence[Constant], groups: Sequence[Sequence[int]]
) -> dict[int, str | None]:
    try:
        return _answers(endpoint, constants, groups)
    except StatementFailed as error:
        if error.transient:
            raise
        if len(groups) == 1:
            return {position: str(error) for position in groups[0]}
    return {
        position: answer
        for group in groups
        for position, answer in _answers_or_errors(endpoint, constants, [group]).items()
    }
