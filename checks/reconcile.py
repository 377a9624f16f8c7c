"""Compare the two sides of a hop over key ranges, at a level."""

from __future__ import annotations

import time
from collections.abc import Sequence

from checks.buckets import MOST_RANGES, range_number, within
from checks.checksum import ROWS, Figures, Grouped, both_sides, disagreeing, empty
from checks.fields import Field, fields
from checks.verdict import CHECK_NAMES, Level, Verdict
from resources.endpoint import Endpoint
from resources.keyrange import KeyRange
from resources.plan import CopyPlan


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
        Range name -> verdict. The seconds of a query for many ranges are spread over them evenly.
    """
    columns = fields(plan) if level == "checksum" else ()
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
        seconds = (time.monotonic() - began) / len(chunk)
        for number, key_range in enumerate(chunk):
            verdicts[key_range.name] = _verdict(
                level, columns, own.get(number), other.get(number), seconds
            )
    return verdicts


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
