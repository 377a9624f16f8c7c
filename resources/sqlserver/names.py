"""Tables of one schema in the text of catalog queries, and in their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tableferry.resources.sqlserver.dialect import literal
from tableferry.resources.tables import TableRef

Row = tuple[Any, ...]


def about(sql: str, tables: Sequence[TableRef], column: str) -> str:
    """Fill in tables of one schema: `{schema}`, `{names}`, and `{number}`, which of them it is.

    The server compares the names, as its collation decides which are equal.

    Args:
        sql: the query; the first value of its rows should be `{number}`.
        tables: the tables.
        column: the column with the table's name, for the number.
    """
    names = [literal(table.name) for table in tables]
    numbered = " ".join(f"WHEN {name} THEN {number}" for number, name in enumerate(names))
    return sql.format(
        schema=literal(tables[0].schema),
        names=", ".join(names),
        number=f"CASE {column} {numbered} END",
    )


def by_table(
    tables: Sequence[TableRef], rows: Iterable[Sequence[Any]]
) -> dict[TableRef, list[Row]]:
    """Return the rows of each table without their numbers; tables that have none are missing."""
    of_tables: dict[TableRef, list[Row]] = {}
    for number, *row in rows:
        of_tables.setdefault(tables[number], []).append(tuple(row))
    return of_tables
