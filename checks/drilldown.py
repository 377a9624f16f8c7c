"""From a range that disagrees to the rows and columns that differ."""

from __future__ import annotations

from dataclasses import replace

from checks.atoms import Side, digests
from checks.buckets import bucket, in_buckets
from checks.checksum import Grouped, both_sides
from checks.fields import Field, fields, observed
from checks.verdict import Differences, Sink
from resources.endpoint import Endpoint
from resources.keyrange import KeyRange
from resources.plan import CopyPlan

BUCKETS = 1024
"""A range is bisected into this many at once: of a million rows, about a thousand are read."""

READ_ALL = 200_000
"""Up to this many rows are read straight away where the checksums do not see everything."""


def drill_down(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    *,
    limit: int = 20,
    snapshot: str | None = None,
    thorough: bool = False,
    sink: Sink | None = None,
) -> Differences:
    """Find the rows of a key range that differ.

    The first scan sums up the range in buckets by the hash of the key; the second reads the rows
    of those buckets whose sums differ, and compares them value by value. That makes two scans of
    each side at most. Where checksums do not see every change (SQL Server, see
    docs/reconciliation.md), a difference in another bucket could be missed; the result then says
    that it is not `complete`.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        key_range: the rows to compare.
        limit: most examples to return; the counts are of all differences.
        snapshot: of a PostgreSQL source.
        thorough: read all rows of the range, which misses nothing, instead of bisecting.
        sink: gets every difference, slab by slab in key order.
    """
    # polars takes half a second to import, and most runs have nothing to drill into
    from checks.rowhash import compare_rows

    plan = observed(plan, target)
    where: dict[Side, str] = {
        "source": plan.source_range(key_range),
        "target": plan.target_range(key_range),
    }
    columns = fields(plan)
    wanted: list[int] | None = None
    if not thorough and not key_range.null:
        groups: dict[Side, Grouped] = {
            side: Grouped(bucket(plan, side, BUCKETS), sql) for side, sql in where.items()
        }
        own, other = both_sides(plan, source, target, columns, groups, snapshot=snapshot)
        wanted = sorted(
            number for number in own.keys() | other.keys() if own.get(number) != other.get(number)
        )
        rows = sum(figures["rows"] for figures in own.values())
        blind = not all(_all_seen(plan, field) for field in columns)
        # nothing found although asked: then only the rows themselves can tell
        if not wanted or (blind and rows <= READ_ALL) or len(wanted) > BUCKETS // 2:
            wanted = None
    if wanted is not None:
        for side, sql in where.items():
            where[side] = f"({sql}) AND {in_buckets(plan, side, BUCKETS, wanted)}"
    compared = compare_rows(plan, source, target, where, limit=limit, snapshot=snapshot, sink=sink)
    complete = wanted is None or all(_all_seen(plan, field) for field in columns)
    return replace(compared.differences, complete=complete)


def _all_seen(plan: CopyPlan, field: Field) -> bool:
    """Whether the checksum depends on every bit of the column's values."""
    if digests(plan.source.system, plan.target.system):
        return True
    return field.kind not in ("text", "float")
