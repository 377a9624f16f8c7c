"""Tries failed ranges again, a few times and ever more seldom."""

import json
import time

import dagster as dg

from assets.asset_keys import asset_key
from assets.journey import checks_of
from assets.ledger import records, verdicts
from assets.manifest import Transfer
from assets.records import State
from assets.runs import move_job_name, run_requests

MOST_TRIES = 3
FIRST_PAUSE = 300.0
"""Seconds before the first new try; each further one waits twice as long."""


def failed_ranges_sensor(transfer: Transfer) -> dg.SensorDefinition:
    """The sensor that runs only the failed ranges of one transfer again."""
    assets = [asset_key(hop.to) for hop in transfer.hops]

    @dg.sensor(
        name=f"{transfer.transfer}_failed_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Moves failed ranges of {transfer.transfer} again, up to {MOST_TRIES} times.",
    )
    def failed_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        failed: dict[str, float] = {}
        for asset in assets:
            checks = verdicts(context.instance, asset, checks_of(transfer))
            for name, record in records(context.instance, asset, order).items():
                if record.state is State.FAILED or not all(checks.get(name, {}).values()):
                    failed[name] = max(failed.get(name, 0.0), record.timestamp or 0.0)
        tries: dict[str, int] = {
            name: number
            for name, number in json.loads(context.cursor or "{}").items()
            if name in failed
        }
        due = {
            name
            for name, when in failed.items()
            if tries.get(name, 0) < MOST_TRIES
            and time.time() - when >= FIRST_PAUSE * 2 ** tries.get(name, 0)
        }
        if not due:
            return dg.SkipReason(f"{len(failed)} failed ranges, none due for a new try")
        tries |= {name: tries.get(name, 0) + 1 for name in due}
        latest = max(failed[name] for name in due)
        return dg.SensorResult(
            run_requests=run_requests(transfer, order, due, key=f"failed:{latest}"),
            cursor=json.dumps(tries),
        )

    return failed_ranges
