"""Checks of a whole target table, after a run that leaves no range uncommitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from tableferry.checks.checksum import both_sides
from tableferry.checks.counts import count_by_range
from tableferry.checks.limits import with_limits
from tableferry.checks.verdict import Verdict
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import filtered, qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.inspection import inspection_of
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.own_names import own_prefix
from tableferry.resources.ranges.sql import MOST_RANGES, range_number
from tableferry.resources.types.column import Column

TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA = "total_rows", "unique_key", "no_stray_rows", "schema"
WHOLE_TABLE_CHECKS = (TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA)
"""Names of the asset checks."""

EXAMPLES = 20

COUNTED, BY_RANGE = "source_counted", "as its ranges, which leave no key out"
"""Metadata."""


def whole_table(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    *,
    snapshot: str | None = None,
    rows: int | None = None,
    columns: Collection[Column] | None = None,
) -> list[Verdict]:
    """Check what no range alone can show.

    - `total_rows`: both tables hold the same number of rows, whatever their keys are.
    - `unique_key`: no two rows of the target share the source's primary key. Passes, and says so,
      where the source has none or not all of it travels.
    - `no_stray_rows`: every row of the target belongs to one of the ranges.
    - `schema`: the target has the planned columns, with types that hold every planned value.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        ranges: all ranges of the table.
        snapshot: of a PostgreSQL source.
        rows: of the source in all of these ranges, where that is known: it is all of its rows where
            the ranges leave no key out, and then they are not counted again.
        columns: of the target, where the caller has just read them.
    """
    began = time.monotonic()
    summed = rows if every_key_is_in_one(ranges, nullable=plan.key.source.nullable) else None
    own, other, strays = _counted(plan, source, target, ranges, snapshot, summed)
    seconds = time.monotonic() - began
    return [
        with_limits(
            _total_rows(own, other, seconds, {} if summed is None else {COUNTED: BY_RANGE}),
            plan,
            "count",
            {},
        ),
        _timed(lambda: _unique_key(plan, target)),
        _no_strays(strays, other, len(ranges), seconds),
        _timed(lambda: _schema(plan, columns or target.columns(plan.target))),
    ]


def every_key_is_in_one(ranges: Sequence[KeyRange], *, nullable: bool) -> bool:
    """Whether every key is in exactly one of some ranges, by their bounds alone.

    Args:
        ranges: of one table. Of files nobody knows whether there are others.
        nullable: whether a key may be NULL.
    """
    finite = [one for one in ranges if not one.null]
    if any(one.kind == "file" for one in finite) or len(ranges) - len(finite) != nullable:
        return False
    lower = {one.lower for one in finite if one.lower is not None}
    upper = {one.upper for one in finite if one.upper is not None}
    # as each range ends above where it begins, they are one chain
    return lower == upper and len(lower) == len(finite) - 1


def _timed(check: Callable[[], Callable[[float], Verdict]]) -> Verdict:
    began = time.monotonic()
    verdict = check()
    return verdict(time.monotonic() - began)


def _counted(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    snapshot: str | None,
    summed: int | None,
) -> tuple[int, int, int]:
    """The rows of the source and of the target, and those of the target that no range has.

    One scan of each, unless there are too many ranges for one query; none of the source where its
    rows are `summed` up already.
    """
    one_query = len(ranges) <= MOST_RANGES
    key, system = plan.key.target, plan.target.system
    grouped: dict[Side, Grouped] = {
        "source": Grouped("0", filtered("1 = 1", plan.where)),
        "target": Grouped(range_number(ranges, key, system) if one_query else "0", "1 = 1"),
    }
    if summed is None:
        own, other = both_sides(plan, source, target, grouped, snapshot=snapshot)
        rows = sum(one[ROWS] for one in own.values())
    else:
        other, rows = measure(target, plan.target, "target", grouped["target"]), summed
    there = sum(one[ROWS] for one in other.values())
    if one_query:
        return rows, there, other.get(-1, {ROWS: 0})[ROWS]
    return rows, there, there - sum(count_by_range(plan, target, "target", ranges).values())


def _total_rows(own: int, other: int, seconds: float, metadata: dict[str, str]) -> Verdict:
    return Verdict(
        check=TOTAL_ROWS,
        passed=own == other,
        source={ROWS: own},
        target={ROWS: other},
        seconds=seconds,
        disagreeing=() if own == other else (ROWS,),
        metadata=metadata,
    )


def _unique_key(plan: CopyPlan, target: Endpoint) -> Callable[[float], Verdict]:
    by_name = {column.target.name: column.target for column in plan.columns}
    names = [name for name in plan.primary_key if name in by_name]
    if not names or len(names) < len(plan.primary_key):
        why = "the source has no primary key whose columns all travel"
        return lambda seconds: Verdict(
            UNIQUE, True, {}, {}, seconds, metadata={"not_checked": why}, note=f"not checked: {why}"
        )
    if index := inspection_of(plan.target.system).unique_by(target, plan.target, names):
        proof = {"enforced_by": index}
        return lambda seconds: Verdict(
            UNIQUE, True, {"repeated_keys": 0}, {"repeated_keys": 0}, seconds, metadata=proof
        )
    compared = [_exact(plan, by_name[name]) for name in names]
    keys, rows = repeated_keys(plan, target)
    examples = _examples(plan, target, names, compared) if keys else []
    return lambda seconds: Verdict(
        check=UNIQUE,
        passed=not keys,
        source={"repeated_keys": 0},
        target={"repeated_keys": keys},
        seconds=seconds,
        disagreeing=tuple(names) if keys else (),
        metadata={"rows_with_repeated_keys": rows, "examples": examples} if keys else {},
    )


def repeated_keys(plan: CopyPlan, target: Endpoint, where: str = "1 = 1") -> tuple[int, int]:
    """How many primary keys more than one row of the target has, and how many rows those are.

    Args:
        plan: the hop; all of its primary key must travel.
        target: where `plan.target` is.
        where: which rows of it.
    """
    by_name = {column.target.name: column.target for column in plan.columns}
    listed = ", ".join(_exact(plan, by_name[name]) for name in plan.primary_key)
    own = own_prefix(where, listed)
    twice = (
        f"SELECT COUNT(*) AS {own}n FROM {qualified(plan.target)} WHERE {where} "
        f"GROUP BY {listed} HAVING COUNT(*) > 1"
    )
    keys, rows = target.query(f"SELECT COUNT(*), SUM({own}n) FROM ({twice}) {own}keys")[0]
    return int(keys), int(rows or 0)


def _examples(
    plan: CopyPlan, target: Endpoint, names: Sequence[str], compared: Sequence[str]
) -> list[str]:
    """The first repeated keys, with how often they are there."""
    shown = ", ".join(f"MIN({_as_text(plan, name)})" for name in names)
    limit = plan.target.system.dialect.limited(EXAMPLES)
    rows = target.query(
        f"SELECT {limit[0]}{shown}, COUNT(*) FROM {qualified(plan.target)} "
        f"GROUP BY {', '.join(compared)} HAVING COUNT(*) > 1 ORDER BY 1{limit[1]}"
    )
    return [f"{', '.join(map(str, row[:-1]))} ({row[-1]} times)" for row in rows]


def _exact(plan: CopyPlan, column: Column) -> str:
    """The column so that GROUP BY tells apart what differs in case, accents or trailing blanks."""
    name = quote(plan.target.system, column.name)
    return plan.target.system.dialect.told_apart(name, column)


def _as_text(plan: CopyPlan, name: str) -> str:
    return plan.target.system.dialect.text(quote(plan.target.system, name))


def _no_strays(strays: int, rows: int, ranges: int, seconds: float) -> Verdict:
    return Verdict(
        check=NO_STRAYS,
        passed=not strays,
        source={"stray_rows": 0},
        target={"stray_rows": strays},
        seconds=seconds,
        disagreeing=("stray_rows",) if strays else (),
        metadata={"ranges": ranges, "rows_target": rows},
    )


def _schema(plan: CopyPlan, columns: Collection[Column]) -> Callable[[float], Verdict]:
    actual = {column.name: column for column in columns}
    problems: dict[str, str] = {}
    notes: list[str] = []
    for planned in plan.target_columns:
        found = actual.get(planned.name)
        if found is None:
            problems[planned.name] = "is missing"
        elif reason := incompatibility(plan.target.system, planned, found):
            problems[planned.name] = reason
        elif _declared(found) != _declared(planned):
            notes.append(f"{planned.name} is {_declared(found)}, {_declared(planned)} was planned")
    planned_names = {column.name for column in plan.target_columns}
    notes += [f"{name} is not in the transfer" for name in actual if name not in planned_names]
    return lambda seconds: Verdict(
        check=SCHEMA,
        passed=not problems,
        source={column.name: _declared(column) for column in plan.target_columns},
        target={name: _declared(column) for name, column in actual.items()},
        seconds=seconds,
        disagreeing=tuple(problems),
        metadata={**{f"column {name}": why for name, why in problems.items()}, "notes": notes},
    )


def _declared(column: Column) -> str:
    return column.type + ("" if column.nullable else " NOT NULL")
