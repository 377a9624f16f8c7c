"""Runs that share the ranges of a transfer: how many at a time, and which ends last."""

from __future__ import annotations

from math import ceil

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.run_tags import (
    LAUNCH,
)

BACKFILL = "dagster/backfill"
"""Dagster's tag of the runs of a backfill."""
MOVED = "tableferry/moved"
"""Run tag: all ranges of the run are committed."""
RANGES_PER_RUN = 25
"""In a backfill of a transfer whose file does not give the number of ranges."""


def backfill_policy(transfer: Transfer) -> dg.BackfillPolicy:
    """Return how Dagster splits a backfill of the transfer into runs.

    Dagster needs the policy when definitions load, before the ranges are known. Where the file does
    not give their number, only the pool limits the runs at a time.
    """
    runs, count = transfer.parallel.runs, transfer.ranges.count
    if runs == 1:
        return dg.BackfillPolicy.single_run()
    # one more than declared: keys above the last bound have a range, too
    return dg.BackfillPolicy.multi_run(ceil((count + 1) / runs) if count else RANGES_PER_RUN)


def share_pool(instance: dg.DagsterInstance, transfer: Transfer) -> str | None:
    """Give the transfer's pool a slot for each of its runs, unless a user has set its limit.

    Returns:
        A note for the user if that limit allows fewer runs at a time.
    """
    runs, name, storage = transfer.parallel.runs, transfer.transfer, instance.event_log_storage
    if runs == 1:
        return None
    limit = next((limit for limit in storage.get_pool_limits() if limit.name == name), None)
    if limit is None or limit.from_default:
        storage.set_concurrency_slots(name, runs)
        return None
    if limit.limit >= runs:
        return None
    return (
        f"{name}: its pool has {limit.limit} of the {runs} slots that 'parallel: {{runs: {runs}}}' "
        f"asks for, and the other runs wait: dagster instance concurrency set {name} {runs}"
    )


def ends_last(instance: dg.DagsterInstance, transfer: Transfer, run: dg.DagsterRun) -> bool:
    """Whether all other runs of a launch are done when this one has committed its ranges.

    Each run first tags itself as done and then reads the tags of the others, so that at least one
    sees all of them done. Two that end at the same moment may both be the last.
    """
    tag = next((tag for tag in (LAUNCH, BACKFILL) if tag in run.tags), None)
    if tag is None or transfer.parallel.runs == 1:
        return True
    instance.add_run_tags(run.run_id, {MOVED: "true"})
    targets = {asset_key(hop.to) for hop in transfer.hops}
    runs = [
        other
        for other in instance.get_runs(dg.RunsFilter(tags={tag: run.tags[tag]}))
        if targets & (other.asset_selection or targets)
    ]
    # a command may not have created all of its runs yet
    expected = int(run.tags[tag].partition(":")[0]) if tag == LAUNCH else 0
    return len(runs) >= expected and all(other.is_finished or MOVED in other.tags for other in runs)
