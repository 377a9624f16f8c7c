"""Tries failed ranges again, a few times and ever more seldom."""

from dataclasses import replace
from time import time

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.ledger import records, verdicts
from tableferry.assets.log.records import State, digest
from tableferry.assets.planning.resolve import checks_of
from tableferry.assets.running.runs import run_requests, run_under_way
from tableferry.sensors.tries import MOST_TRIES, Tries, listed, read, told, written


def failed_ranges_sensor(transfer: Transfer) -> dg.SensorDefinition:
    """The sensor that runs only the failed ranges of one transfer again."""

    @dg.sensor(
        name=f"{transfer.transfer}_failed_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Moves failed ranges of {transfer.transfer} again, up to {MOST_TRIES} times.",
    )
    def failed_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        failed = _failed(transfer, context.instance)
        known = read(context.cursor)
        tries = {name: known.get(name, Tries()) for name in failed}
        now = time()
        due = {
            name
            for name, when in failed.items()
            if (at := tries[name].due(when)) is not None and at <= now
        }
        given_up = sorted(name for name, one in tries.items() if one.number >= MOST_TRIES)
        lost = [
            name
            for name in given_up
            if not tries[name].told and tries[name].given_up(failed[name], now)
        ]
        if lost and told(transfer, lost, context):
            tries |= {name: replace(tries[name], told=True) for name in lost}
        if not due:
            why = f"{len(failed)} failed ranges, none due for a new try"
            if given_up:
                why += f"; {listed(given_up)}"
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=written(tries))
        if running := run_under_way(context.instance, transfer):
            why = f"{len(due)} failed ranges wait for the end of run {running}"
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=written(tries))
        tries |= {name: Tries(tries[name].number + 1, now) for name in due}
        # the same for a tick that is repeated, another for each further try
        key = digest(sorted((name, failed[name], tries[name].number) for name in due))
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        return dg.SensorResult(
            run_requests=run_requests(transfer, order, due, key=f"failed:{key}"),
            cursor=written(tries),
        )

    return failed_ranges


def _failed(transfer: Transfer, instance: dg.DagsterInstance) -> dict[str, float]:
    """The ranges that did not get through a hop, or whose last check failed; with the time."""
    order = instance.get_dynamic_partitions(transfer.partitions_name)
    failed: dict[str, float] = {}
    for hop in transfer.hops:
        asset = asset_key(hop.to)
        checks = verdicts(instance, asset, checks_of(transfer))
        for name, record in records(instance, asset, order).items():
            settled = record.state in (State.COMMITTED, State.SKIPPED_UNCHANGED)
            unfinished = not settled and record.state is not State.FAILED
            if unfinished and not _ended(instance, record.run_id):
                continue
            if not settled or not all(checks.get(name, {}).values()):
                failed[name] = max(failed.get(name, 0.0), record.timestamp or 0.0)
    return failed


def _ended(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is None or run.is_finished
