"""Which Dagster runs cover a set of key ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.run_tags import LAUNCH, RANGE_END, RANGE_START
from tableferry.assets.planning.stretches import MOST_RUNS, segments, stretches

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
"""Of runs that may have a process."""


def run_requests(
    transfer: Transfer,
    order: Sequence[str],
    wanted: Collection[str],
    *,
    key: str,
    rows: Mapping[str, int] | None = None,
) -> list[dg.RunRequest]:
    """Requests for the runs that move the wanted ranges.

    Args:
        transfer: whose ranges.
        order: all partition keys, in Dagster's order.
        wanted: those to move.
        key: what makes the request new; Dagster launches each run key once.
        rows: of each range, where they are known, to share them evenly among several runs.
    """
    todo = [name for name in order if name in wanted]
    shares = stretches(todo, transfer.parallel.runs, rows or {})
    most = max(1, MOST_RUNS // len(shares)) if shares else 0
    found = [span for share in shares for span in segments(order, share, most)]
    tags = {LAUNCH: f"{len(found)}:{key}"} if len(shares) > 1 else {}
    return [
        dg.RunRequest(
            run_key=f"{key}:{first}:{last}",
            job_name=move_job_name(transfer.transfer),
            tags={RANGE_START: first, RANGE_END: last, **tags},
        )
        for first, last in found
    ]


def run_under_way(instance: dg.DagsterInstance, transfer: Transfer) -> str | None:
    """The id of a run that moves ranges of the transfer now, or is about to; None if there is none.

    Both the transfer's own job and what the user interface starts for its assets count.
    """
    ours = {asset_key(hop.to) for hop in transfer.hops}
    statuses = [dg.DagsterRunStatus.QUEUED, *UNFINISHED]
    for run in instance.get_runs(dg.RunsFilter(statuses=statuses)):
        moves = run.job_name == move_job_name(transfer.transfer)
        if moves or ours & (run.asset_selection or set()):
            return run.run_id
    return None
