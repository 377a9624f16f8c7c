"""The Dagster runs that move a set of key ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import ASSET_JOB
from tableferry.assets.log.run_tags import LAUNCH, RANGE_END, RANGE_START, TRANSFER
from tableferry.assets.planning.ranges.splitting import MOST_RUNS, segments, split_by_rows

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
