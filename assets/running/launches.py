"""Several runs that share the ranges of a transfer: how many at a time, and which ends last."""

from __future__ import annotations

from math import ceil

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.run_tags import (
    LAUNCH,
)

BACKFILL = "dagster/backfill"
"""Dagster's own run tag, of the runs of a backfill."""
MOVED = "tableferry/moved"
"""Run tag: all ranges of the run are committed."""
RANGES_PER_RUN = 25
"""Of a backfill, where the file does not tell how many ranges there are."""


def backfill_policy(transfer: Transfer) -> dg.BackfillPolicy:
    """How Dagster cuts a backfill of the transfer into runs.

    It wants to know when definitions load, which is before the ranges are known: where the file
    does not tell their number, the pool alone says how many runs there are at a time.
    """
    runs, count = transfer.parallel.runs, transfer.ranges.count
    if runs == 1:
        return dg.BackfillPolicy.single_run()
    # one more than declared: it begins where the keys end
    return dg.BackfillPolicy.multi_run(ceil((count + 1) / runs) if count else RANGES_PER_RUN)


def share_pool(instance: dg.DagsterInstance, transfer: Transfer) -> str | None:
    """Give the transfer's pool a slot for each of its runs, unless it has a limit of its own.

    Returns:
        A note for the user, if that limit lets fewer runs go at a time.
    """
    runs, name, storage = transfer.parallel.runs, transfer.transfer, instance.event_log_storage
    if runs == 1:
        return None
    limits = {one.name: one for one in storage.get_pool_limits()}
    limit = limits.get(name)
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
    """Whether a run that has committed its ranges leaves none of its launch under way.

    Each run says first that it is through, and looks at the others then, so that at least one sees
    them all through; of two that get there in the same moment both may.
    """
    tag = next((one for one in (LAUNCH, BACKFILL) if one in run.tags), None)
    if tag is None or transfer.parallel.runs == 1:
        return True
    instance.add_run_tags(run.run_id, {MOVED: "true"})
    ours = {asset_key(hop.to) for hop in transfer.hops}
    runs = [
        one
        for one in instance.get_runs(dg.RunsFilter(tags={tag: run.tags[tag]}))
        if ours & (one.asset_selection or ours)
    ]
    # those that a command starts are not all there from the beginning
    expected = int(run.tags[tag].partition(":")[0]) if tag == LAUNCH else 0
    return len(runs) >= expected and all(one.is_finished or MOVED in one.tags for one in runs)
