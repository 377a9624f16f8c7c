"""Names of tables and conditions on key ranges, one or many, in the SQL of their systems."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tableferry.resources.contract.system import System
from tableferry.resources.keys.range import ROW, Bound, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.kinds import Integer
from tableferry.resources.types.type_map import Column


def alias_prefix(*sql: str) -> str:
    """Return a prefix for aliases that no column's name begins with, in any case or letter width.

    Args:
        sql: every part of the query with users' columns: expressions, conditions, row filters, or
            plain names.
    """
    text = "\n".join(sql)
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    prefixes = ("ferry__" if number == 1 else f"ferry{number}__" for number in itertools.count(1))
    return next(prefix for prefix in prefixes if prefix not in text)


def qualified(table: TableRef, name: str | None = None) -> str:
    """Write the quoted `schema.table`, or that of another table in the schema."""
    return f"{table.system.quote(table.schema)}.{table.system.quote(name or table.name)}"


def read_from(table: TableRef) -> str:
    """Write what stands behind FROM to read a table's rows, with the columns that are computed.

    A query becomes a subquery with an alias; the line breaks end its comments.
    """
    if table.query:
        return f"(\n{table.query}\n) {alias_prefix(table.query)}query"
    return table.read_as or qualified(table)


def drop_table(table: TableRef, name: str | None = None) -> str:
    """Write DROP TABLE IF EXISTS for the table, or for another one in its schema."""
    return table.system.dialect.drop_table(qualified(table, name))


def filtered(condition: str, where: str | None) -> str:
    """Add a row filter to a condition; line breaks end the filter's comments."""
    return f"({condition}) AND (\n{where}\n)" if where else condition


def has_filter(sql: str) -> bool:
    """Whether a query has a condition that `filtered` has added, or reads a query."""
    return "(\n" in sql


def predicate(column: Column, key_range: KeyRange, system: System) -> str:
    """Write the condition that selects exactly the rows of a key range.

    NULL keys are in no bounded range, because comparisons with NULL are not true.
    """
    name, dialect = system.quote(column.name), system.dialect
    if key_range.null:
        return f"{name} IS NULL"
    conditions = []
    if key_range.kind == "file":
        conditions.append(dialect.of_file(name, str(key_range.lower), column))
        first, end = key_range.rows or (None, None)
        row = system.quote(ROW)
        conditions += [f"{row} >= {first}"] if first is not None else []
        conditions += [f"{row} < {end}"] if end is not None else []
        return " AND ".join(conditions)
    if key_range.lower is not None:
        conditions.append(dialect.not_below(name, column, key_range.kind, key_range.lower))
    if key_range.upper is not None:
        conditions.append(dialect.below(name, column, key_range.kind, key_range.upper))
    return " AND ".join(conditions) or f"{name} IS NOT NULL"


MOST_RANGES = 500
"""The maximum ranges of a query, so that its text stays short; see `most_ranges`."""

LONGEST_DIFFERENCE = 2**62 - 1
"""Differences of two numbers up to this one, and down to its negative, have 64 bits."""

ENUMERATED = 16
"""Up to this many ranges get a condition each, so that rows between them are not read."""


def most_ranges(system: System) -> int:
    """Return how many ranges a query tells apart at most."""
    return system.dialect.most_branches or MOST_RANGES


def range_number(
    ranges: Sequence[KeyRange],
    column: Column,
    system: System,
    number_of: Callable[[int], str] = str,
) -> str:
    """Write the position in `ranges` of the range that a row belongs to; -1 if to none.

    Many ranges of integers, of one width, cost a division per row, all others a few comparisons: a
    balanced tree of CASE. With `number_of`, what that writes for the position instead.

    Raises:
        ValueError: two of the ranges overlap.
    """
    if ranges and ranges[0].kind == "file":
        cases = " ".join(
            f"WHEN {predicate(column, key_range, system)} THEN {number_of(number)}"
            for number, key_range in enumerate(ranges)
        )
        return f"CASE {cases} ELSE -1 END"
    bounded = sorted(
        ((r, i) for i, r in enumerate(ranges) if not r.null),
        key=lambda item: _sort_key(item[0].lower),
    )
    cuts: list[Bound] = []
    labels: list[int] = [-1]
    for key_range, number in bounded:
        if key_range.lower is None:
            if len(labels) > 1 or labels[0] != -1:
                raise ValueError("two ranges overlap")
            labels[0] = number
        elif cuts and cuts[-1] == key_range.lower and labels[-1] == -1:
            labels[-1] = number
        elif labels[-1] != -1 or (cuts and key_range.lower < cuts[-1]):  # type: ignore[operator]
            raise ValueError("two ranges overlap")
        else:
            cuts.append(key_range.lower)
            labels.append(number)
        if key_range.upper is not None:
            cuts.append(key_range.upper)
            labels.append(-1)
    kind = ranges[0].kind

    def tree(low: int, high: int) -> str:
        if low == high:
            return "-1" if labels[low] == -1 else number_of(labels[low])
        middle = (low + high) // 2
        below = predicate(column, KeyRange(kind, upper=cuts[middle]), system)
        return f"CASE WHEN {below} THEN {tree(low, middle)} ELSE {tree(middle + 1, high)} END"

    divided = _by_division(cuts, labels, column, system) if number_of is str else None
    sql = divided or tree(0, len(cuts))
    null = next((i for i, r in enumerate(ranges) if r.null), None)
    if null is not None or column.nullable:
        # NULL is not below any cut either
        of_null = "-1" if null is None else number_of(null)
        sql = f"CASE WHEN {system.quote(column.name)} IS NULL THEN {of_null} ELSE {sql} END"
    return sql


def _by_division(
    cuts: Sequence[Bound], labels: Sequence[int], column: Column, system: System
) -> str | None:
    """Write the number of a range by a division; None if their widths or places do not allow it."""
    type_ = system.types.read(column.type).kind
    if (
        len(labels) <= ENUMERATED
        or not isinstance(type_, Integer)
        or [*labels] != [*range(len(labels))]
    ):
        return None
    numbers = [cut for cut in cuts if isinstance(cut, int)]
    widths = {upper - lower for lower, upper in itertools.pairwise(numbers)}
    first, last = numbers[0], numbers[-1]
    if (
        len(numbers) < len(cuts)
        or len(widths) > 1
        or first < -LONGEST_DIFFERENCE
        or last > LONGEST_DIFFERENCE
    ):
        return None
    name, width = system.quote(column.name), widths.pop()
    below = predicate(column, KeyRange("integer", upper=first), system)
    above = predicate(column, KeyRange("integer", lower=last), system)
    steps = system.dialect.whole_steps(name, first, width)
    return f"CASE WHEN {below} THEN 0 WHEN {above} THEN {len(numbers)} ELSE {steps} + 1 END"


def within(ranges: Sequence[KeyRange], column: Column, system: System) -> str:
    """Write a condition that is true for all rows of the ranges, and cheap to evaluate."""
    if len(ranges) <= ENUMERATED or ranges[0].kind == "file":
        return " OR ".join(f"({predicate(column, r, system)})" for r in joined(ranges))
    bounded = [r for r in ranges if not r.null]
    lowers, uppers = [r.lower for r in bounded], [r.upper for r in bounded]
    lower = None if None in lowers else min(lowers, key=_sort_key)
    upper = None if None in uppers else max(uppers, key=_sort_key)
    hull = predicate(column, KeyRange(bounded[0].kind, lower, upper), system)
    if len(bounded) < len(ranges):
        hull = f"({hull}) OR {system.quote(column.name)} IS NULL"
    return hull


def within_any(ranges: Iterable[KeyRange], column: Column, system: System) -> str:
    """Write the condition that selects exactly the rows of all ranges; of none, no row.

    It is in parentheses. Ranges that follow each other, or overlap, become one.
    """
    conditions = [f"({predicate(column, each, system)})" for each in joined(ranges)]
    return f"({' OR '.join(conditions) or '1 = 0'})"


def joined(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return as few ranges as have the same rows, in key order; NULL and files are last."""
    merged: list[KeyRange] = []
    alone: list[KeyRange] = []
    for key_range in sorted(set(ranges), key=lambda each: _sort_key(each.lower)):
        if key_range.null or key_range.kind == "file":
            alone.append(key_range)
        elif merged and _reaches(merged[-1].upper, key_range.lower):
            if _reaches(key_range.upper, merged[-1].upper):
                merged[-1] = replace(merged[-1], upper=key_range.upper)
        else:
            merged.append(key_range)
    return [*merged, *alone]


def _reaches(upper: Bound | None, bound: Bound | None) -> bool:
    """Whether a range with this upper bound ends at another bound or above it; None is no bound."""
    return upper is None or (bound is not None and upper >= bound)  # type: ignore[operator]


def _sort_key(bound: Bound | None) -> tuple[bool, object]:
    return (bound is not None, bound if bound is not None else 0)
