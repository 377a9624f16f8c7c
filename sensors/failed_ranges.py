"""The sensor that retries failed ranges a few times, with growing pauses."""

from collections.abc import Mapping, Sequence
from time import time

import dagster as dg

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import ProofState, judge_ranges
from tableferry.assets.log.attention import with_failures
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.records import digest
from tableferry.assets.running.runs import run_requests, run_under_way, runs_under_way
from tableferry.sensors import rounds


def failed_ranges_sensor(
    transfers: Mapping[str, Transfer], name: str = "failed_ranges"
) -> dg.SensorDefinition:
    """Build the sensor that retries the failed ranges of transfers."""
    watched = {
        name: transfer
        for name, transfer in transfers.items()
        if transfer.retry_failed and transfer.write.moves
    }

    @dg.sensor(
        name=name,
        job_name=ASSET_JOB,
        minimum_interval_seconds=rounds.INTERVAL_SECONDS,
        description=f"Retries failed ranges, up to {rounds.MOST_TRIES} times.",
    )
    def failed_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        moving = runs_under_way(context.instance)

        def survey(batch: Sequence[Transfer]) -> dict[str, rounds.Look]:
            failed = with_failures(context.instance, batch)
            good = {transfer.transfer for transfer in batch} - failed
            return dict.fromkeys(good, rounds.Look(_none_due(0)))

        return rounds.look_round(
            context,
            watched,
            lambda transfer, tries: _look(context, transfer, tries, moving),
            survey,
        )

    return failed_ranges


def _look(
    context: dg.SensorEvaluationContext,
    transfer: Transfer,
    earlier: Mapping[str, rounds.Tries],
    moving: Mapping[dg.AssetKey | None, str],
) -> rounds.Look:
    """Find the failed ranges of a transfer that are due for a retry."""
    failed = _failed(transfer, context.instance)
    now = time()
    tries, due = rounds.due_retries(context, transfer, failed, earlier, now)
    if not due:
        given_up = [name for name in tries if tries[name].count >= rounds.MOST_TRIES]
        return rounds.Look(_none_due(len(failed)) + rounds.given_up_reason(given_up), tries=tries)
    if running := run_under_way(transfer, moving):
        return rounds.Look(
            f"{len(due)} failed ranges wait for the end of run {running}", tries=tries
        )
    tries |= {name: rounds.Tries(tries[name].count + 1, now) for name in due}
    # a repeated tick requests the same runs; a further retry requests new ones
    key = digest(sorted((name, failed[name], tries[name].count) for name in due))
    order = context.instance.get_dynamic_partitions(transfer.partitions_name)
    requests = run_requests(transfer, order, due, key=f"{transfer.transfer}:failed:{key}")
    return rounds.Look(requests=requests, tries=tries)


def _none_due(failed: int) -> str:
    return f"{failed} failed ranges, none due for a retry"


def _failed(transfer: Transfer, instance: dg.DagsterInstance) -> dict[str, float]:
    """Find the ranges whose latest attempt or check failed in any hop, with the time."""
    failed: dict[str, float] = {}
    statuses = read_status(instance, [transfer])
    for target, status in statuses.items():
        for name, judged in judge_ranges(transfer, target, statuses).items():
            record = status.ranges[name].record
            if judged.good or judged.state is ProofState.NOT_MOVED:
                continue
            unfinished = judged.state is not ProofState.FAILED
            if unfinished and not _ended(instance, record.run_id):
                continue
            failed[name] = max(failed.get(name, 0.0), record.timestamp or 0.0)
    return failed


def _ended(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is None or run.is_finished
