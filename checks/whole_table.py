"""Checks of a whole target table, after a run that leaves no range uncommitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tableferry.checks.rejected import rejected_rows
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import TableSide
from tableferry.checks.verdict import Verdict, with_final, with_limits, with_rejected
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract import table_sql
from tableferry.resources.contract.catalog import inspection_of
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.measure import ROWS, Grouped
from tableferry.resources.errors import describe
from tableferry.resources.keys.cover import gaps, partition
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.type_map import Column
from tableferry.resources.words import counted

TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA = "total_rows", "unique_key", "no_stray_rows", "schema"
WHOLE_TABLE_CHECKS = (TOTAL_ROWS, UNIQUE, NO_STRAYS, SCHEMA)
"""The names of the asset checks."""

EXAMPLES = 20

IN_NO_RANGE = "source_rows_in_no_range"
"""The metadata of a row count that fails for the rows of the source that no range has."""

COUNTED, BY_RANGE = "source_counted", "as its ranges, which leave no key out"
"""The metadata of a row count that is the sum of the ranges' counts."""


def whole_table(
    comparison: Comparison, *, rows: int | None = None, columns: Collection[Column] | None = None
) -> list[Verdict]:
    """Check what no range alone can show.

    - `total_rows`: both tables hold the same number of rows, whatever their keys are, and each row
      of the source belongs to one of the ranges.
    - `unique_key`: no two rows of the target share the source's primary key. Passes, and says so,
      where the source has none or not all of it is copied.
    - `no_stray_rows`: every row of the target belongs to one of the ranges.
    - `schema`: the target has the planned columns, with types that hold every planned value.

    Args:
        comparison: both sides, as planned, with all ranges of the table.
        rows: the source's rows in all of these ranges, if known. Where the ranges leave no key out,
            these are all of its rows, and are not counted again.
        columns: the target's columns, where the caller has just read them.
    """
    began = time.monotonic()
    plan, ranges, target = comparison.plan, comparison.ranges, comparison.sides["target"]
    known_rows = rows if partition(ranges, nullable=plan.key.source.nullable) else None
    source, in_none = comparison.sides["source"], 0
    if missing := _lacking(comparison):
        lacking = table_sql.within_any(missing, source.key, source.table.system)
        in_none = source.total(table_sql.filtered(lacking, plan.where))[ROWS]
    source_rows, target_rows, strays = _count(comparison, known_rows, in_none)
    seconds = time.monotonic() - began
    rejected = rejected_rows(target, ranges)
    total = Verdict.of_figure(
        TOTAL_ROWS,
        ROWS,
        source_rows,
        target_rows + rejected,
        seconds=seconds,
        metadata={} if known_rows is None else {COUNTED: BY_RANGE},
    )
    if in_none:
        of_none = {**total.metadata, IN_NO_RANGE: in_none}
        total = replace(total, passed=False, disagreeing=(ROWS,), metadata=of_none)
    total = with_limits(total, replace(plan, fitting=None), "count", {})
    no_strays = Verdict.of_figure(
        NO_STRAYS,
        "stray_rows",
        0,
        strays,
        seconds=seconds,
        metadata={"ranges": len(ranges), "rows_target": target_rows},
        note=f"{counted(strays, 'row')} of the target in no range" if strays else "",
    )
    final = [table for table in plan.final if table == plan.target]
    return [
        with_rejected(total, plan, rejected),
        with_final(_timed(lambda: _unique_key(target)), final),
        with_final(no_strays, final),
        _timed(lambda: _schema(plan, columns or target.endpoint.columns(plan.target))),
    ]


def _lacking(comparison: Comparison) -> list[KeyRange]:
    """The ranges that lack at the source; of files there are none, as others may come."""
    ranges = comparison.ranges
    if not ranges or ranges[0].kind == "file":
        return []
    if comparison.plan.key.source.nullable and not any(key_range.null for key_range in ranges):
        return [*gaps(ranges), replace(ranges[0], lower=None, upper=None, null=True)]
    return gaps(ranges)


def _timed(check: Callable[[], Verdict]) -> Verdict:
    began = time.monotonic()
    verdict = check()
    return replace(verdict, seconds=time.monotonic() - began)


def _count(comparison: Comparison, known_rows: int | None, in_none: int) -> tuple[int, int, int]:
    """Count the rows of the source, of the target, and of the target outside of all ranges.

    Takes one scan of each, unless there are too many ranges for one query; none of the source if
    its rows are known. Where the ranges leave out no key but NULL, rows need not be told apart by
    range, so that a server may count them by an index alone, or in parallel; of `in_none`, the
    source's rows in no range, the number is known then.
    """
    plan, ranges, target = comparison.plan, comparison.ranges, comparison.sides["target"]
    system = target.table.system
    nulls = any(key_range.null for key_range in ranges)
    partitioned = partition(ranges, nullable=nulls)
    one_query = not partitioned and len(ranges) <= target.most_ranges
    where = table_sql.filtered("1 = 1", target.filter)
    grouped: dict[Side, Grouped] = {
        "source": Grouped("0", table_sql.filtered("1 = 1", plan.where)),
        "target": Grouped(
            table_sql.range_number(ranges, target.key, system) if one_query else "0", where
        ),
    }
    if known_rows is None and partitioned:
        source = comparison.sides["source"]
        pool = ThreadPoolExecutor(1)
        counting = pool.submit(target.measure, grouped["target"])
        # a source that is lost is told at once, not when the target is counted
        pool.shutdown(wait=False)
        parts = (
            table_sql.within(part, source.key, source.table.system)
            for part in source.stretches(ranges)
        )
        counts = (source.total(table_sql.filtered(part, plan.where)) for part in parts)
        source_rows = in_none + sum(int(count[ROWS]) for count in counts)
        target_figures = counting.result()
    elif known_rows is None:
        source_figures, target_figures = comparison.measure(grouped)
        source_rows = sum(group[ROWS] for group in source_figures.values())
    else:
        source_rows, target_figures = known_rows, target.measure(grouped["target"])
    target_rows = sum(group[ROWS] for group in target_figures.values())
    if one_query:
        return source_rows, target_rows, target_figures.get(-1, {ROWS: 0})[ROWS]
    if partitioned:
        null_key = table_sql.filtered(f"{system.quote(target.key.name)} IS NULL", target.filter)
        return source_rows, target_rows, 0 if nulls else target.total(null_key)[ROWS]
    return source_rows, target_rows, target_rows - sum(target.counts(ranges).values())


def _unique_key(target: TableSide) -> Verdict:
    plan = target.plan
    names = list(plan.primary_key)
    if not names or not set(names) <= {column.target.name for column in plan.columns}:
        why = "the source has no primary key whose columns all travel"
        return Verdict(
            UNIQUE, True, {}, {}, 0, metadata={"not_checked": why}, note=f"not checked: {why}"
        )
    index = inspection_of(plan.target.system).unique_by(target.endpoint, plan.target, names)
    keys, rows = (0, 0) if index else repeated_keys(target)
    metadata: dict[str, Any] = {"enforced_by": index} if index else {}
    if keys:
        metadata = {"rows_with_repeated_keys": rows}
        try:
            metadata["examples"] = _examples(target)
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


def stray_rows(target: TableSide, ranges: Sequence[KeyRange]) -> int:
    """Count the rows of the target that belong to none of some ranges."""
    return int(target.total()[ROWS]) - sum(target.counts(ranges).values())


def repeated_keys(target: TableSide, where: str = "1 = 1") -> tuple[int, int]:
    """Count the primary keys that several rows of the target share, and these rows.

    Args:
        target: the target; all of the primary key must be copied.
        where: the condition that the rows meet.
    """
    grouped_by = _grouped_by(target.plan)
    prefix, count = table_sql.alias_prefix(where, grouped_by), target.table.system.dialect.count
    repeated = (
        f"SELECT {count} AS {prefix}n FROM {table_sql.qualified(target.table)} WHERE {where} "
        f"GROUP BY {grouped_by} HAVING COUNT(*) > 1"
    )
    query = f"SELECT {count}, SUM({prefix}n) FROM ({repeated}) {prefix}keys"
    keys, rows = target.endpoint.query(query)[0]
    return int(keys), int(rows or 0)


def _examples(target: TableSide) -> list[str]:
    """The first repeated keys, with the number of their rows."""
    plan, system = target.plan, target.table.system
    shown = ", ".join(
        f"MIN({system.dialect.text(system.quote(name))})" for name in plan.primary_key
    )
    limit = system.dialect.limited(EXAMPLES)
    rows = target.endpoint.query(
        f"SELECT {limit[0]}{shown}, COUNT(*) FROM {table_sql.qualified(target.table)} "
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
