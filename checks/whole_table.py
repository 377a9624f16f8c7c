"""Checks of a whole target table, after a run that leaves no range uncommitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from tableferry.checks.checksum import both_sides
from tableferry.checks.counts import count_by_range
from tableferry.checks.limits import with_limits, with_rejected
from tableferry.checks.verdict import Verdict
from tableferry.resources.aliases import alias_prefix
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.inspection import inspection_of
from tableferry.resources.contract.quarantine import IDENTITY
from tableferry.resources.contract.table_sql import MOST_RANGES, filtered, qualified, range_number
from tableferry.resources.contract.target_names import of_ranges, quarantine_of
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.errors import TableMissing, describe
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.column import Column

TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA = "total_rows", "unique_key", "no_stray_rows", "schema"
WHOLE_TABLE_CHECKS = (TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA)
"""The names of the asset checks."""

EXAMPLES = 20

COUNTED, BY_RANGE = "source_counted", "as its ranges, which leave no key out"
"""The metadata of a row count that is the sum of the ranges' counts."""


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
      where the source has none or not all of it is copied.
    - `no_stray_rows`: every row of the target belongs to one of the ranges.
    - `schema`: the target has the planned columns, with types that hold every planned value.

    Args:
        plan: the hop.
        source: the server of `plan.source`.
        target: the server of `plan.target`.
        ranges: all ranges of the table.
        snapshot: the snapshot to read a PostgreSQL source under.
        rows: the source's rows in all of these ranges, if known. Where the ranges leave no key out,
            these are all of its rows, and are not counted again.
        columns: the target's columns, where the caller has just read them.
    """
    began = time.monotonic()
    known_rows = rows if ranges_partition(ranges, nullable=plan.key.source.nullable) else None
    source_rows, target_rows, strays = _count(plan, source, target, ranges, snapshot, known_rows)
    seconds = time.monotonic() - began
    rejected = _rejected(plan, target, ranges)
    total = Verdict.of_figure(
        TOTAL_ROWS,
        ROWS,
        source_rows,
        target_rows + rejected,
        seconds=seconds,
        metadata={} if known_rows is None else {COUNTED: BY_RANGE},
    )
    total = with_limits(total, replace(plan, fitting=None), "count", {})
    no_strays = Verdict.of_figure(
        NO_STRAYS,
        "stray_rows",
        0,
        strays,
        seconds=seconds,
        metadata={"ranges": len(ranges), "rows_target": target_rows},
    )
    return [
        with_rejected(total, plan, rejected) if rejected else total,
        _timed(lambda: _unique_key(plan, target)),
        no_strays,
        _timed(lambda: _schema(plan, columns or target.columns(plan.target))),
    ]


def ranges_partition(ranges: Sequence[KeyRange], *, nullable: bool) -> bool:
    """Whether every key is in exactly one of some ranges, by their bounds alone.

    Args:
        ranges: ranges of one table. False if they are files: there may be others.
        nullable: whether a key may be NULL.
    """
    bounded = [key_range for key_range in ranges if not key_range.null]
    if any(r.kind == "file" for r in bounded) or len(ranges) - len(bounded) != nullable:
        return False
    lower = {key_range.lower for key_range in bounded if key_range.lower is not None}
    upper = {key_range.upper for key_range in bounded if key_range.upper is not None}
    # as each range ends above where it begins, they form one chain
    return lower == upper and len(lower) == len(bounded) - 1


def _timed(check: Callable[[], Verdict]) -> Verdict:
    began = time.monotonic()
    verdict = check()
    return replace(verdict, seconds=time.monotonic() - began)


def _count(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    snapshot: str | None,
    known_rows: int | None,
) -> tuple[int, int, int]:
    """Count the rows of the source, of the target, and of the target outside of all ranges.

    Takes one scan of each, unless there are too many ranges for one query; none of the source if
    its rows are known. Where the ranges leave out no key but NULL, rows need not be told apart by
    range, so that a server may count them by an index alone, or in parallel.
    """
    key, system = plan.key.target, plan.target.system
    nulls = any(key_range.null for key_range in ranges)
    partitioned = ranges_partition(ranges, nullable=nulls)
    one_query = not partitioned and len(ranges) <= MOST_RANGES
    where = filtered("1 = 1", plan.target_where)
    grouped: dict[Side, Grouped] = {
        "source": Grouped("0", filtered("1 = 1", plan.where)),
        "target": Grouped(range_number(ranges, key, system) if one_query else "0", where),
    }
    if known_rows is None:
        source_figures, target_figures = both_sides(
            plan, source, target, grouped, snapshot=snapshot
        )
        source_rows = sum(group[ROWS] for group in source_figures.values())
    else:
        source_rows = known_rows
        target_figures = measure(target, plan.target, "target", grouped["target"])
    target_rows = sum(group[ROWS] for group in target_figures.values())
    if one_query:
        return source_rows, target_rows, target_figures.get(-1, {ROWS: 0})[ROWS]
    if partitioned:
        null_key = filtered(f"{system.quote(key.name)} IS NULL", plan.target_where)
        return source_rows, target_rows, 0 if nulls else row_count(plan, target, null_key)
    in_ranges = sum(count_by_range(plan, target, "target", ranges).values())
    return source_rows, target_rows, target_rows - in_ranges


def _rejected(plan: CopyPlan, target: Endpoint, ranges: Sequence[KeyRange]) -> int:
    """Count the rows of some ranges that are kept beside the target instead of in it."""
    if not plan.fitting or not ranges:
        return 0
    table, system = quarantine_of(plan.target), plan.target.system
    try:
        present = {column.name: column for column in target.columns(table)}
    except TableMissing:
        return 0  # no run has moved the table like this yet
    names = ", ".join(
        f"{system.dialect.grouping_key(system.quote(name), present[name])} AS {system.quote(name)}"
        for name in IDENTITY
        if name in present
    )
    where = of_ranges(plan.target, [key_range.name for key_range in ranges])
    rows = f"SELECT DISTINCT {names} FROM {qualified(table)} WHERE {where}"
    return int(target.query(f"SELECT COUNT(*) FROM ({rows}) AS ferry__rows")[0][0])


def _unique_key(plan: CopyPlan, target: Endpoint) -> Verdict:
    names = list(plan.primary_key)
    if not names or not set(names) <= {column.target.name for column in plan.columns}:
        why = "the source has no primary key whose columns all travel"
        return Verdict(
            UNIQUE, True, {}, {}, 0, metadata={"not_checked": why}, note=f"not checked: {why}"
        )
    index = inspection_of(plan.target.system).unique_by(target, plan.target, names)
    keys, rows = (0, 0) if index else repeated_keys(plan, target)
    metadata: dict[str, Any] = {"enforced_by": index} if index else {}
    if keys:
        metadata = {"rows_with_repeated_keys": rows}
        try:
            metadata["examples"] = _examples(plan, target)
        except Exception as error:
            # the verdict stands without them
            metadata["examples"] = f"cannot be shown: {describe(error)}"
    return Verdict(
        check=UNIQUE,
        passed=not keys,
        source={"repeated_keys": 0},
        target={"repeated_keys": keys},
        seconds=0,
        disagreeing=tuple(names) if keys else (),
        metadata=metadata,
    )


def stray_rows(plan: CopyPlan, target: Endpoint, ranges: Sequence[KeyRange]) -> int:
    """Count the rows of the target that belong to none of some ranges."""
    in_ranges = sum(count_by_range(plan, target, "target", ranges).values())
    return row_count(plan, target) - in_ranges


def row_count(plan: CopyPlan, target: Endpoint, where: str = "1 = 1") -> int:
    """Count the rows of the target that meet a condition."""
    groups = measure(target, plan.target, "target", Grouped("0", where))
    return sum(group[ROWS] for group in groups.values())


def repeated_keys(plan: CopyPlan, target: Endpoint, where: str = "1 = 1") -> tuple[int, int]:
    """Count the primary keys that several rows of the target share, and these rows.

    Args:
        plan: the hop; all of its primary key must be copied.
        target: the server of `plan.target`.
        where: the condition that the rows meet.
    """
    grouped_by = _grouped_by(plan)
    prefix = alias_prefix(where, grouped_by)
    repeated = (
        f"SELECT COUNT(*) AS {prefix}n FROM {qualified(plan.target)} WHERE {where} "
        f"GROUP BY {grouped_by} HAVING COUNT(*) > 1"
    )
    keys, rows = target.query(f"SELECT COUNT(*), SUM({prefix}n) FROM ({repeated}) {prefix}keys")[0]
    return int(keys), int(rows or 0)


def _examples(plan: CopyPlan, target: Endpoint) -> list[str]:
    """The first repeated keys, with the number of their rows."""
    system, dialect = plan.target.system, plan.target.system.dialect
    shown = ", ".join(f"MIN({dialect.text(system.quote(name))})" for name in plan.primary_key)
    limit = dialect.limited(EXAMPLES)
    rows = target.query(
        f"SELECT {limit[0]}{shown}, COUNT(*) FROM {qualified(plan.target)} "
        f"GROUP BY {_grouped_by(plan)} HAVING COUNT(*) > 1 ORDER BY 1{limit[1]}"
    )
    return [f"{', '.join(map(str, row[:-1]))} ({row[-1]} times)" for row in rows]


def _grouped_by(plan: CopyPlan) -> str:
    """The primary key for GROUP BY, told apart by case, accents and trailing blanks."""
    by_name = {column.target.name: column.target for column in plan.columns}
    system = plan.target.system
    told_apart = system.dialect.grouping_key
    return ", ".join(told_apart(system.quote(name), by_name[name]) for name in plan.primary_key)


def _schema(plan: CopyPlan, columns: Collection[Column]) -> Verdict:
    actual = {column.name: column for column in columns}
    problems: dict[str, str] = {}
    notes: list[str] = []
    for planned in plan.target_columns:
        column = actual.get(planned.name)
        if column is None:
            problems[planned.name] = "is missing"
        elif reason := incompatibility(plan.target.system, planned, column):
            problems[planned.name] = reason
        elif _declared(column) != _declared(planned):
            notes.append(f"{planned.name} is {_declared(column)}, {_declared(planned)} was planned")
    planned_names = {column.name for column in plan.target_columns}
    notes += [f"{name} is not in the transfer" for name in actual if name not in planned_names]
    return Verdict(
        check=SCHEMA,
        passed=not problems,
        source={column.name: _declared(column) for column in plan.target_columns},
        target={name: _declared(column) for name, column in actual.items()},
        seconds=0,
        disagreeing=tuple(problems),
        metadata={**{f"column {name}": why for name, why in problems.items()}, "notes": notes},
    )


def _declared(column: Column) -> str:
    return column.type + ("" if column.nullable else " NOT NULL")
