"""Asks many tables for a value each, by few statements."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import StatementFailed

Key = TypeVar("Key", bound=Hashable)

MOST_QUERIES = 100
"""The maximum queries of a statement; PostgreSQL locks each table and its indexes meanwhile."""
MOST_CHARACTERS = 60_000
"""The maximum length of a statement of several queries; ClickHouse parses 256 KiB at most."""


def ask_together(
    endpoint: Endpoint, queries: Mapping[Key, str]
) -> dict[Key, Any | StatementFailed]:
    """Run queries of at most one row and one column, many in a statement.

    A statement that fails is cut in halves, so that a query which the server refuses costs a few
    more statements, and no other query its answer.

    Args:
        endpoint: the server.
        queries: what follows SELECT in each query.

    Returns:
        The value of each query that has a row, or why it failed.

    Raises:
        TableferryError: the server cannot be asked now.
    """
    answers: dict[Key, Any | StatementFailed] = {}
    for page in _pages(queries):
        answers |= _asked(endpoint, queries, page)
    return answers


def _asked(
    endpoint: Endpoint, queries: Mapping[Key, str], keys: Sequence[Key]
) -> dict[Key, Any | StatementFailed]:
    selects = [f"SELECT {number}, {queries[key]}" for number, key in enumerate(keys)]
    try:
        rows = endpoint.query(" UNION ALL ".join(selects))
    except StatementFailed as error:
        if error.transient:
            raise
        if len(keys) == 1:
            return {keys[0]: error}
        middle = len(keys) // 2
        return {
            **_asked(endpoint, queries, keys[:middle]),
            **_asked(endpoint, queries, keys[middle:]),
        }
    return {keys[int(number)]: value for number, value in rows}


def _pages(queries: Mapping[Key, str]) -> Iterator[list[Key]]:
    page: list[Key] = []
    length = 0
    for key, query in queries.items():
        if page and (len(page) == MOST_QUERIES or length + len(query) > MOST_CHARACTERS):
            yield page
            page, length = [], 0
        page.append(key)
        length += len(query)
    if page:
        yield page
