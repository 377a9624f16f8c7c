"""Decides which ranges are run, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from assets.log.ledger import Committed, committed, committed_schema
from assets.log.records import DataVersion, Reason
from assets.planning.drift import new_columns, schema_changes, target_columns
from assets.planning.resolve import ALL_CHECKS, Hop, Journey, Servers, checks_of
from checks.counts import count_by_range
from resources.plan import CopyPlan


@dataclass(frozen=True)
class Decision:
    """Why a range is run, or that it is not."""

    reason: Reason
    detail: str = ""
    """What exactly is the matter, where there is more to say."""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else str(self.reason)


def decisions(
    journey: Journey,
    hop: Hop,
    servers: Servers,
    instance: dg.DagsterInstance,
    *,
    force: bool = False,
) -> dict[str, Decision]:
    """Why each range of a hop is run, or that it is unchanged; a constant number of queries."""
    transfer = journey.transfer
    blocking = [name for name in ALL_CHECKS if transfer.check_spec(name).blocking]
    previous = committed(instance, hop.asset, blocking, declared=checks_of(transfer))
    rows: dict[str, int] | None = None
    lost: list[str] = []
    if previous:
        endpoint = servers.endpoint(hop.plan.target)
        actual = target_columns(endpoint, hop.plan.target)
        lost = [column.name for column in new_columns(hop.plan, actual)]
        if actual is not None:
            ranges = list(journey.ranges.values())
            rows = {} if lost else count_by_range(hop.plan, endpoint, "target", ranges)
    # these modes keep rows that the source has no more
    keeps = transfer.write in ("append", "upsert")
    found = decide(
        journey.versions(hop),
        previous,
        target_rows=rows,
        expected_rows=None if keeps else journey.rows(),
        lost_columns=lost,
        force=force,
    )
    if any(one.reason is Reason.SCHEMA_CHANGED for one in found.values()):
        detail = schema_changes(hop.plan, committed_schema(instance, hop.asset))
        found = {
            name: replace(one, detail=detail) if one.reason is Reason.SCHEMA_CHANGED else one
            for name, one in found.items()
        }
    return found


def target_rows(journey: Journey, plan: CopyPlan, servers: Servers) -> dict[str, int] | None:
    """Rows per range in the plan's target; None if there is no such table, or a column is gone."""
    endpoint = servers.endpoint(plan.target)
    actual = target_columns(endpoint, plan.target)
    if actual is None or new_columns(plan, actual):
        return None
    return count_by_range(plan, endpoint, "target", list(journey.ranges.values()))


def decide(
    current: Mapping[str, DataVersion],
    previous: Mapping[str, Committed],
    *,
    target_rows: Mapping[str, int] | None = None,
    expected_rows: Mapping[str, int] | None = None,
    lost_columns: Sequence[str] = (),
    force: bool = False,
) -> dict[str, Decision]:
    """Why each range is run, or `UNCHANGED` where it is skipped.

    Args:
        current: the data version that each range would be committed with now.
        previous: what `committed` found.
        target_rows: rows in the target per range, None when the target table does not exist.
        expected_rows: rows in the source per range.
        lost_columns: planned columns that the target has no more.
        force: run all.
    """
    decisions: dict[str, Decision] = {}
    for name, version in current.items():
        before = previous.get(name)
        if before is None:
            decisions[name] = Decision(Reason.MISSING)
        elif force:
            decisions[name] = Decision(Reason.FORCED)
        elif (
            change := version.change_since(before.data_version)
        ) and change is not Reason.DIGEST_CHANGED:
            decisions[name] = Decision(change)
        elif before.failed:
            decisions[name] = Decision(Reason.LAST_CHECK_FAILED, ", ".join(before.failed))
        elif target_rows is None:
            decisions[name] = Decision(Reason.TARGET_MISSING, "no such table")
        elif lost_columns:
            decisions[name] = Decision(
                Reason.TARGET_CHANGED, f"{', '.join(map(repr, lost_columns))} is gone"
            )
        elif expected_rows is not None and target_rows.get(name, 0) != expected_rows[name]:
            decisions[name] = _row_count_differs(target_rows.get(name, 0), expected_rows[name])
        elif change:
            decisions[name] = Decision(change)
        elif before.unchecked:
            decisions[name] = Decision(Reason.UNCHECKED)
        else:
            decisions[name] = Decision(Reason.UNCHANGED)
    return decisions


def _row_count_differs(found: int, expected: int) -> Decision:
    if not found:
        return Decision(Reason.TARGET_MISSING, f"all {expected:,} rows missing")
    if found < expected:
        detail = f"{expected - found:,} of {expected:,} rows missing"
    else:
        detail = f"{found - expected:,} rows more than the source's {expected:,}"
    return Decision(Reason.ROW_COUNT_DIFFERS, detail)
