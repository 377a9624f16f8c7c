"""Row counts of one side, per key range, in one query."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.checks.checksum import table_and_key
from tableferry.checks.limits import FILTERED
from tableferry.checks.verdict import CHECK_NAMES, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.table_sql import MOST_RANGES
from tableferry.resources.digest.measure import ROWS, Grouped, measure
from tableferry.resources.keys.range import KeyRange


def count_by_range(
    plan: CopyPlan, endpoint: Endpoint, side: Side, ranges: Sequence[KeyRange]
) -> dict[str, int]:
    """Count the rows of each range, by its name, on one side of a hop.

    Raises:
        TableferryError: the table does not exist, or the server cannot be asked.
    """
    counts: dict[str, int] = {}
    table, key = table_and_key(plan, side)
    where = plan.condition if side == "source" else plan.target_where
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        grouped = Grouped.by_range(chunk, key, table.system, where)
        figures = measure(endpoint, table, side, grouped)
        for number, key_range in enumerate(chunk):
            counts[key_range.name] = figures.get(number, {ROWS: 0})[ROWS]
    return counts


def row_count_of(checksum: Verdict) -> Verdict:
    """The verdict on the row count that a checksum contains."""
    where = {"where": checksum.metadata["where"]} if "where" in checksum.metadata else {}
    return Verdict.of_figure(
        CHECK_NAMES["count"],
        ROWS,
        checksum.source[ROWS],
        checksum.target[ROWS],
        seconds=checksum.seconds,
        ranges=checksum.ranges,
        metadata=where,
        remarks=tuple(remark for remark in checksum.remarks if remark.startswith(FILTERED)),
    )
