"""Reads a server's catalog about many tables at once, ahead of the decisions about each.

The same `Question` is asked about one table or about many. An endpoint that looks ahead asks it
about all of its tables when the first of them needs it, and answers for the others from memory.
Such an endpoint serves a look at tables that changes nothing. Its answers are those of one moment:
`LookAhead.changed` tells afterwards for which tables they no longer hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tableferry.resources.contract.facts import Facts
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

Answer = TypeVar("Answer")

Question = Callable[[Any, Sequence[TableRef]], Mapping[TableRef, Answer]]
"""Asks a server about tables of one schema, by a number of queries that does not grow with them.
Answers can be compared; tables of which the catalog says nothing may be missing."""

AT_ONCE = 100
"""The most tables that one query names."""


class Asked(Protocol):
    """An `Endpoint` that is asked questions."""

    @property
    def ahead(self) -> LookAhead | None:
        """See `Endpoint.ahead`."""


class LookAhead:
    """What one look at a server has read about its tables. Any thread may ask.

    Args:
        tables: the tables to read about whenever one of them is asked about.
    """

    def __init__(self, tables: Sequence[TableRef]) -> None:
        self._tables = frozenset(tables)
        self._answers: dict[Question[Any], Mapping[TableRef, Any] | None] = {}
        self._asking = Facts()

    def answer(self, endpoint: Asked, question: Question[Answer], table: TableRef) -> Answer | None:
        """Return the answer about a table, by asking about all tables at once the first time.

        A question that the server refuses for all of them is asked about each alone.
        """
        if table not in self._tables:
            return question(endpoint, [table]).get(table)
        answers = self._asking.known(question, lambda: self._first_answers(endpoint, question))
        if answers is None:
            return question(endpoint, [table]).get(table)
        return answers.get(table)

    def changed(self, endpoint: Asked) -> set[TableRef]:
        """Ask all questions again, and return the tables with another answer than before."""
        changed: set[TableRef] = set()
        for question, before in self._answers.items():
            after = self._ask(endpoint, question)
            if before is not None and after is not None:
                changed |= {
                    table for table in self._tables if before.get(table) != after.get(table)
                }
            elif before is not None:
                changed |= self._tables
        return changed

    def _first_answers(
        self, endpoint: Asked, question: Question[Answer]
    ) -> Mapping[TableRef, Answer] | None:
        answers = self._answers[question] = self._ask(endpoint, question)
        return answers

    def _ask(self, endpoint: Asked, question: Question[Answer]) -> Mapping[TableRef, Answer] | None:
        answers: dict[TableRef, Answer] = {}
        try:
            for tables in groups(self._tables):
                answers |= question(endpoint, tables)
        except TableferryError:
            return None
        return answers


def answer(endpoint: Asked, question: Question[Answer], table: TableRef) -> Answer | None:
    """Ask a server about a table; None if the catalog says nothing about it."""
    if endpoint.ahead is not None:
        return endpoint.ahead.answer(endpoint, question, table)
    return question(endpoint, [table]).get(table)


def groups(tables: Iterable[TableRef]) -> list[list[TableRef]]:
    """Group tables of one connection by schema, at most `AT_ONCE` in a group.

    Names that may be equal to the server are in different groups, so that it tells them apart.
    """
    by_schema: dict[tuple[str, int], list[TableRef]] = {}
    alike: Counter[tuple[str, str]] = Counter()
    for table in sorted(set(tables), key=lambda table: (table.schema, table.name)):
        name = table.schema, table.system.dialect.folded(table.name)
        by_schema.setdefault((table.schema, alike[name]), []).append(table)
        alike[name] += 1
    return [
        group[start : start + AT_ONCE]
        for group in by_schema.values()
        for start in range(0, len(group), AT_ONCE)
    ]
