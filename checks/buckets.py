"""Which range, sample or bucket a row belongs to, as SQL that all systems compute alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from checks.atoms import Side, atoms
from checks.fields import key_field
from resources.dialects import predicate, quote
from resources.keyrange import Bound, KeyRange
from resources.plan import CopyPlan
from resources.tables import Column, System

MOST_RANGES = 500
"""Of one query: SQL Server allows ten nested CASE, and a balanced tree over these needs nine.
https://learn.microsoft.com/sql/t-sql/language-elements/case-transact-sql"""

ENUMERATED = 16
"""Up to this many ranges are selected one by one, so that what lies between them is not read."""

WEIGHT_PRIME = 99_991
"""Rows weigh by their key modulo this, so that values exchanged between two rows show. Five digits,
so that the weighted sums cannot overflow decimal(38,0) nor a 64-bit product."""

_LEHMER_PRIME = 2**31 - 1
_LEHMER_FACTOR = 48_271
"""Park and Miller's minimal standard generator: spreads neighbouring keys, and fits 64 bits."""


def key_number(plan: CopyPlan, side: Side) -> str:
    """SQL of a 64-bit integer that stands for the row's key; NULL for a NULL key."""
    field = key_field(plan)
    systems = (plan.source.system, plan.target.system)
    found = atoms(field, side, systems)
    return found["second_half"] if field.kind == "uuid" else next(iter(found.values()))


def weight(plan: CopyPlan, side: Side) -> str:
    """SQL of the row's weight, between -99990 and 99990; NULL for a NULL key."""
    return f"({key_number(plan, side)}) % {WEIGHT_PRIME}"


def key_hash(plan: CopyPlan, side: Side) -> str:
    """SQL of a number from 0 to 2**31 - 2 that scatters neighbouring keys; NULL for a NULL key."""
    system = _system(plan, side)
    absolute = "ABS" if system == "sqlserver" else "abs"
    residue = f"(({key_number(plan, side)}) % {_LEHMER_PRIME})"
    return f"({absolute}({residue} * {_LEHMER_FACTOR}) % {_LEHMER_PRIME})"


def in_sample(plan: CopyPlan, side: Side, one_in: int) -> str:
    """The condition that picks about one row in `one_in` all over the range, and all NULL keys."""
    name = quote(_system(plan, side), _key(plan, side).name)
    return f"({key_hash(plan, side)} % {one_in} = 0 OR {name} IS NULL)"


def in_buckets(plan: CopyPlan, side: Side, count: int, wanted: Sequence[int]) -> str:
    """The condition that picks the rows of some of `count` buckets; a NULL key is in bucket 0."""
    numbers = ", ".join(str(number) for number in wanted)
    return f"{bucket(plan, side, count)} IN ({numbers})"


def bucket(plan: CopyPlan, side: Side, count: int) -> str:
    """SQL of the row's bucket number, from 0 to `count - 1`."""
    return f"COALESCE({key_hash(plan, side)} % {count}, 0)"


def range_number(ranges: Sequence[KeyRange], column: Column, system: System) -> str:
    """SQL of the position in `ranges` of the range that holds the row; -1 for none of them.

    A balanced tree of CASE, so that many ranges cost a few comparisons per row.

    Raises:
        ValueError: two of the ranges overlap.
    """
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
            return str(labels[low])
        middle = (low + high) // 2
        below = predicate(column, KeyRange(kind, upper=cuts[middle]), system)
        return f"CASE WHEN {below} THEN {tree(low, middle)} ELSE {tree(middle + 1, high)} END"

    sql = tree(0, len(cuts))
    null = next((i for i, r in enumerate(ranges) if r.null), None)
    if null is not None:
        sql = f"CASE WHEN {quote(system, column.name)} IS NULL THEN {null} ELSE {sql} END"
    return sql


def within(ranges: Sequence[KeyRange], column: Column, system: System) -> str:
    """A condition that at least all rows of the ranges meet, cheap for the server to decide."""
    if len(ranges) <= ENUMERATED:
        return " OR ".join(f"({predicate(column, r, system)})" for r in ranges)
    bounded = [r for r in ranges if not r.null]
    lowers, uppers = [r.lower for r in bounded], [r.upper for r in bounded]
    lower = None if None in lowers else min(lowers, key=_sort_key)
    upper = None if None in uppers else max(uppers, key=_sort_key)
    hull = predicate(column, KeyRange(bounded[0].kind, lower, upper), system)
    if len(bounded) < len(ranges):
        hull = f"({hull}) OR {quote(system, column.name)} IS NULL"
    return hull


def _sort_key(bound: Bound | None) -> tuple[bool, object]:
    return (bound is not None, bound if bound is not None else 0)


def _system(plan: CopyPlan, side: Side) -> System:
    return plan.source.system if side == "source" else plan.target.system


def _key(plan: CopyPlan, side: Literal["source", "target"]) -> Column:
    return plan.key.source if side == "source" else plan.key.target
