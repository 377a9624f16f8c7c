"""From a range that disagrees to the rows and columns that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tableferry.checks.checksum import Digests, both_sides
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.limits import limits
from tableferry.checks.row_tally import compare_rows
from tableferry.checks.verdict import Differences, Sink, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.fields import observed
from tableferry.resources.digest.measure import Grouped
from tableferry.resources.keys.range import KeyRange

BUCKETS = 1024
"""The number of buckets a range is split into: of a million rows, about a thousand are read."""


@dataclass(frozen=True)
class Comparison:
    """Both sides of one key range of a hop; the rows that differ are searched at most once."""

    plan: CopyPlan
    source: Endpoint
    target: Endpoint
    key_range: KeyRange
    snapshot: str | None = None
    """The snapshot to read a PostgreSQL source under."""
    where: Mapping[Side, str] | None = None
    """Conditions on both sides' rows, which replace the key range."""
    limit: int = 20
    """Maximum number of examples."""

    @cached_property
    def differences(self) -> Differences:
        """The rows that differ, see `drill_down`."""
        return self.search()

    def search(self, sink: Sink | None = None) -> Differences:
        """Search for the rows that differ, see `drill_down`."""
        return drill_down(
            self.plan,
            self.source,
            self.target,
            self.key_range,
            where=self.where,
            limit=self.limit,
            snapshot=self.snapshot,
            sink=sink,
        )

    def explained(self, verdict: Verdict) -> Verdict:
        """Add the rows that differ to a failed verdict whose check did not find them itself.

        The verdict stands if they cannot be looked for, and says why.
        """
        if verdict.passed or verdict.differences is not None or verdict.check == EXPECTATIONS:
            return verdict
        try:
            return replace(verdict, differences=self.differences)
        except Exception as error:
            return verdict.unexplained(error)


def drill_down(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    *,
    where: Mapping[Side, str] | None = None,
    limit: int = 20,
    snapshot: str | None = None,
    sink: Sink | None = None,
) -> Differences:
    """Find the rows of a key range that differ, in at most two scans of each side.

    The first scan sums up the digests in buckets by the rows' identity; the second reads the rows
    of the buckets whose sums differ, and compares them value by value.

    Args:
        plan: the hop.
        source: the server of `plan.source`.
        target: the server of `plan.target`.
        key_range: the rows to compare.
        where: conditions on the rows of both sides, which replace the key range.
        limit: maximum number of examples to return; the counts include all differences.
        snapshot: the snapshot to read a PostgreSQL source under.
        sink: gets every difference, chunk by chunk in key order.
    """
    plan = observed(plan, target)
    if where is None:
        where = {"source": plan.source_range(key_range), "target": plan.target_range(key_range)}
    digests = Digests.of(plan, source, target)
    differences = rows_that_differ(
        plan, source, target, digests, where, limit=limit, snapshot=snapshot, sink=sink
    )
    return replace(differences, remarks=tuple(limits(plan)))


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
    """Find the rows that differ among those that meet a condition, as `drill_down` does."""
    buckets = {side: f"abs({identity} % {BUCKETS})" for side, identity in digests.identity.items()}
    groups = {side: Grouped(bucket, where[side]) for side, bucket in buckets.items()}
    source_figures, target_figures = both_sides(
        plan, source, target, groups, digests=digests, snapshot=snapshot
    )
    unequal = sorted(
        number
        for number in source_figures.keys() | target_figures.keys()
        if source_figures.get(number) != target_figures.get(number)
    )
    if not unequal:
        return Differences()
    if len(unequal) <= BUCKETS // 2:
        listed = ", ".join(map(str, unequal))
        where = {
            side: f"({where[side]}) AND {bucket} IN ({listed})" for side, bucket in buckets.items()
        }
    return compare_rows(
        plan, source, target, digests, where, limit=limit, snapshot=snapshot, sink=sink
    ).differences
