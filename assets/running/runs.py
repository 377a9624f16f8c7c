"""The Dagster runs that move a set of key ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.runs import LAUNCH, RANGE_END, RANGE_START, TRANSFER
from tableferry.assets.planning.ranges.known import MOST_RUNS, segments, split_by_rows

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


MOST_RETRIES = 5
"""Tries again of a run that a schedule launched without a plan, as a server was away."""

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
"""Statuses of runs that may have a process."""


def run_requests(
    transfer: Transfer,
    order: Sequence[str],
    wanted: Collection[str],
    *,
    key: str,
    rows: Mapping[str, int] | None = None,
) -> list[dg.RunRequest]:
    """Return requests for the runs that move the wanted ranges.

    Args:
        transfer: the transfer.
        order: all partition keys, in Dagster's order.
        wanted: the ranges to move.
        key: prefix of the run keys; Dagster launches each run key once.
        rows: row counts of the ranges, as far as known, to balance several runs.
    """
    todo = [name for name in order if name in wanted]
    shares = split_by_rows(todo, transfer.parallel.runs, rows or {})
    most = max(1, MOST_RUNS // len(shares)) if shares else 0
    spans = [span for share in shares for span in segments(order, share, most)]
    tags = {LAUNCH: f"{len(spans)}:{key}"} if len(shares) > 1 else {}
    return [
        dg.RunRequest(
            run_key=f"{key}:{first}:{last}",
            asset_selection=[asset_key(hop.to) for hop in transfer.hops],
            tags={TRANSFER: transfer.transfer, RANGE_START: first, RANGE_END: last, **tags},
        )
        for first, last in spans
    ]


def unplanned_request(transfer: Transfer, *, key: str) -> dg.RunRequest:
    """Return a request for a run that plans for itself, and is retried by Dagster if it fails.

    Args:
        transfer: the transfer.
        key: prefix of the run key.
    """
    return dg.RunRequest(
        run_key=f"{key}:unplanned",
        asset_selection=[asset_key(hop.to) for hop in transfer.hops],
        tags={
            TRANSFER: transfer.transfer,
            "dagster/max_retries": str(MOST_RETRIES),
            "dagster/retry_strategy": "ALL_STEPS",
        },
    )


def runs_under_way(instance: dg.DagsterInstance) -> dict[dg.AssetKey | None, str]:
    """Return each asset that a run moves now, or is about to, with the id of the run.

    None stands for all assets, which a run moves that selects nothing.
    """
    statuses = [dg.DagsterRunStatus.QUEUED, *UNFINISHED]
    return {
        key: run.run_id
        for run in instance.get_runs(dg.RunsFilter(statuses=statuses))
        for key in run.asset_selection or _unselected(run)
    }


def _unselected(run: dg.DagsterRun) -> tuple[None, ...]:
    return (None,) if run.job_name == ASSET_JOB and not run.asset_check_selection else ()


def run_under_way(transfer: Transfer, moving: Mapping[dg.AssetKey | None, str]) -> str | None:
    """Return the id of one of `runs_under_way` that moves a transfer; None if there is none."""
    keys = (None, *(asset_key(hop.to) for hop in transfer.hops))
    return next((moving[key] for key in keys if key in moving), None)
