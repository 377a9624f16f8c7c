"""Compare the two sides of a hop over key ranges, at a level."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from checks.atoms import Side
from checks.buckets import in_sample
from checks.checksum import ROWS, Figures, Grouped, both_sides, disagreeing, empty
from checks.fields import Field, fields, not_compared, observed
from checks.verdict import CHECK_NAMES, Level, Verdict
from resources.endpoint import Endpoint
from resources.keyrange import KeyRange
from resources.plan import CopyPlan
from resources.rangesql import MOST_RANGES, range_number, within

SAMPLE_ROWS = 1000
"""About as many rows of a range `sample_hash` reads: enough to see a fault of 0.7 % of all rows
with 99.9 % certainty."""


def reconcile(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    level: Level,
    *,
    snapshot: str | None = None,
) -> Verdict:
    """Compare one key range.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        key_range: the rows to compare.
        level: how strictly; see docs/reconciliation.md for what each level sees.
        snapshot: of a PostgreSQL source, to compare with what was exported.

    Raises:
        TableferryError: a server cannot be asked. What differs is never an exception.
    """
    return reconcile_all(plan, source, target, [key_range], level, snapshot=snapshot)[
        key_range.name
    ]


def reconcile_all(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    level: Level,
    *,
    snapshot: str | None = None,
) -> dict[str, Verdict]:
    """Compare many key ranges; `count` and `checksum` ask each side once for all of them.

    Returns:
        Range name -> verdict. The seconds of one query for many ranges are those of all of them.
    """
    plan = observed(plan, target)
    if level in ("sample_hash", "full_hash"):
        return {
            key_range.name: _by_rows(plan, source, target, key_range, level, snapshot)
            for key_range in ranges
        }
    columns = fields(plan) if level == "checksum" else ()
    left_out = _left_out(plan) if level == "checksum" else {}
    verdicts: dict[str, Verdict] = {}
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        began = time.monotonic()
        own, other = both_sides(
            plan,
            source,
            target,
            columns,
            {
                "source": Grouped(
                    range_number(chunk, plan.key.source, plan.source.system),
                    within(chunk, plan.key.source, plan.source.system),
                ),
                "target": Grouped(
                    range_number(chunk, plan.key.target, plan.target.system),
                    within(chunk, plan.key.target, plan.target.system),
                ),
            },
            snapshot=snapshot,
        )
        seconds = time.monotonic() - began
        for number, key_range in enumerate(chunk):
            verdict = _verdict(level, columns, own.get(number), other.get(number), seconds)
            verdicts[key_range.name] = replace(verdict, metadata=left_out, ranges=len(chunk))
    return verdicts


def _by_rows(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    level: Level,
    snapshot: str | None,
) -> Verdict:
    # polars takes half a second to import, and most runs need no rows
    from checks.rowhash import compare_rows

    began = time.monotonic()
    where: dict[Side, str] = {
        "source": plan.source_range(key_range),
        "target": plan.target_range(key_range),
    }
    own: Figures = {}
    other: Figures = {}
    if level == "sample_hash":
        groups: dict[Side, Grouped] = {side: Grouped("0", sql) for side, sql in where.items()}
        counts = both_sides(plan, source, target, (), groups, snapshot=snapshot)
        own[ROWS], other[ROWS] = (count.get(0, {ROWS: 0})[ROWS] for count in counts)
        one_in = max(1, own[ROWS] // SAMPLE_ROWS)
        for side, sql in where.items():
            where[side] = f"({sql}) AND {in_sample(plan, side, one_in)}"
        own["one_in"] = other["one_in"] = one_in
    compared = compare_rows(plan, source, target, where, snapshot=snapshot)
    own["hashed"], other["hashed"] = compared.source_rows, compared.target_rows
    own.setdefault(ROWS, compared.source_rows)
    other.setdefault(ROWS, compared.target_rows)
    found = compared.differences
    rows_differ = own[ROWS] != other[ROWS] or found.missing_in_target or found.extra_in_target
    return Verdict(
        check=CHECK_NAMES[level],
        passed=not found.rows and own[ROWS] == other[ROWS],
        source=own,
        target=other,
        seconds=time.monotonic() - began,
        disagreeing=(*((ROWS,) if rows_differ else ()), *found.by_column),
        differences=found,
        metadata=_left_out(plan),
    )


def _left_out(plan: CopyPlan) -> dict[str, str]:
    """What the verdict must own up to."""
    names = not_compared(plan)
    return {"not_compared (on_overflow)": ", ".join(names)} if names else {}


def _verdict(
    level: Level,
    columns: Sequence[Field],
    source: Figures | None,
    target: Figures | None,
    seconds: float,
) -> Verdict:
    own = source or empty(columns, target)
    other = target or empty(columns, source)
    differing = disagreeing(own, other)
    return Verdict(
        check=CHECK_NAMES[level],
        passed=not differing,
        source=own if columns else {ROWS: own[ROWS]},
        target=other if columns else {ROWS: other[ROWS]},
        seconds=seconds,
        disagreeing=differing,
    )
