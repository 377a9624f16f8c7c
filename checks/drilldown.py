"""From a range that disagrees to the rows and columns that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tableferry.checks.checksum import Digests, both_sides, bucket
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.limits import limits
from tableferry.checks.rowhash import compare_rows
from tableferry.checks.verdict import Differences, Sink, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.fields import observed
from tableferry.resources.digest.measure import Grouped
from tableferry.resources.keys.range import KeyRange

BUCKETS = 1024
"""A range is bisected into this many at once: of a million rows, about a thousand are read."""

SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True)
class Comparison:
    """Both sides of one key range of a hop; the rows that differ are looked for at most once."""

    plan: CopyPlan
    source: Endpoint
    target: Endpoint
    key_range: KeyRange
    snapshot: str | None = None
    """Of a PostgreSQL source."""

    @cached_property
    def differences(self) -> Differences:
        """The rows that differ, see `drill_down`."""
        return drill_down(
            self.plan, self.source, self.target, self.key_range, snapshot=self.snapshot
        )

    def explained(self, verdict: Verdict) -> Verdict:
        """A failed verdict with the rows that differ, where the check did not find them itself."""
        if verdict.passed or verdict.differences is not None or verdict.check == EXPECTATIONS:
            return verdict
        return replace(verdict, differences=self.differences)


def drill_down(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    *,
    limit: int = 20,
    snapshot: str | None = None,
    sink: Sink | None = None,
) -> Differences:
    """Find the rows of a key range that differ.

    The first scan sums up the digests in buckets by the rows' identity; the second reads the rows
    of those buckets whose sums differ, and compares them value by value. That makes two scans of
    each side at most.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        key_range: the rows to compare.
        limit: most examples to return; the counts are of all differences.
        snapshot: of a PostgreSQL source.
        sink: gets every difference, chunk by chunk in key order.
    """
    plan = observed(plan, target)
    where: dict[Side, str] = {
        "source": plan.source_range(key_range),
        "target": plan.target_range(key_range),
    }
    digests = Digests.of(plan, source, target)
    found = rows_that_differ(
        plan, source, target, digests, where, limit=limit, snapshot=snapshot, sink=sink
    )
    return replace(found, remarks=tuple(limits(plan)))


def rows_that_differ(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    digests: Digests,
    where: Mapping[Side, str],
    *,
    limit: int = 20,
    snapshot: str | None = None,
    sink: Sink | None = None,
) -> Differences:
    """As `drill_down`, of the rows that meet a condition on each side."""
    groups = {side: Grouped(bucket(digests, side, BUCKETS), where[side]) for side in SIDES}
    own, other = both_sides(plan, source, target, groups, digests=digests, snapshot=snapshot)
    wanted = sorted(
        number for number in own.keys() | other.keys() if own.get(number) != other.get(number)
    )
    if not wanted:
        return Differences()
    if len(wanted) <= BUCKETS // 2:
        listed = ", ".join(map(str, wanted))
        where = {
            side: f"({where[side]}) AND {bucket(digests, side, BUCKETS)} IN ({listed})"
            for side in SIDES
        }
    return compare_rows(
        plan, source, target, digests, where, limit=limit, snapshot=snapshot, sink=sink
    ).differences
