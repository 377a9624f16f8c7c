"""Row counts of one side, per key range, in one query."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.checks.limits import FILTERED
from tableferry.checks.verdict import CHECK_NAMES, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.sql import MOST_RANGES


def count_by_range(
    plan: CopyPlan, endpoint: Endpoint, side: Side, ranges: Sequence[KeyRange]
) -> dict[str, int]:
    """Rows per range name on one side of a hop; ranges without rows count 0.

    Raises:
        TableferryError: the table does not exist, or the server cannot be asked.
    """
    found: dict[str, int] = {}
    table = plan.source if side == "source" else plan.target
    key = plan.key.source if side == "source" else plan.key.target
    where = plan.where if side == "source" else None
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        grouped = Grouped.by_range(chunk, key, table.system, where)
        figures = measure(endpoint, table, side, grouped)
        for number, key_range in enumerate(chunk):
            found[key_range.name] = figures.get(number, {ROWS: 0})[ROWS]
    return found


def row_count_of(checksum: Verdict) -> Verdict:
    """The row count's verdict that a checksum contains."""
    source, target = ({ROWS: side[ROWS]} for side in (checksum.source, checksum.target))
    return Verdict(
        check=CHECK_NAMES["count"],
        passed=source == target,
        source=source,
        target=target,
        seconds=checksum.seconds,
        ranges=checksum.ranges,
        disagreeing=() if source == target else (ROWS,),
        metadata={
            name: checksum.metadata[name] for name in ("where",) if name in checksum.metadata
        },
        remarks=tuple(one for one in checksum.remarks if one.startswith(FILTERED)),
    )
