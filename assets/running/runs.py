"""The Dagster runs that move a set of key ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.run_tags import LAUNCH, RANGE_END, RANGE_START
from tableferry.assets.planning.splitting import MOST_RUNS, segments, split_by_rows

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
            job_name=move_job_name(transfer.transfer),
            tags={RANGE_START: first, RANGE_END: last, **tags},
        )
        for first, last in spans
    ]


def run_under_way(instance: dg.DagsterInstance, transfer: Transfer) -> str | None:
    """Return the id of an unfinished or queued run that moves ranges of the transfer, if any.

    Runs of the transfer's job count, and those that the user interface starts for its assets.
    """
    targets = {asset_key(hop.to) for hop in transfer.hops}
    statuses = [dg.DagsterRunStatus.QUEUED, *UNFINISHED]
    for run in instance.get_runs(dg.RunsFilter(statuses=statuses)):
        moves = run.job_name == move_job_name(transfer.transfer)
        if moves or targets & (run.asset_selection or set()):
            return run.run_id
    return None
