"""Finds keys beyond the known ranges, adds ranges for them, and moves what no run has come to."""

from collections.abc import Sequence
from dataclasses import replace
from time import time

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.ledger import records
from tableferry.assets.planning.resolve import Servers, resources_of
from tableferry.assets.planning.transfer_plan import apply_growth, plan_growth
from tableferry.assets.running.runs import run_requests, run_under_way
from tableferry.resources.errors import TableferryError
from tableferry.sensors.tries import Tries, listed, read, told, written


def new_ranges_sensor(transfer: Transfer, bound: Servers | None = None) -> dg.SensorDefinition:
    """The sensor that keeps one transfer's partitions up with its source.

    A range that a run was asked for, and that is in no record of any run, is asked for again as
    failed ones are: its run ended before it came to it.

    Args:
        transfer: whose ranges.
        bound: the servers of its connections, in place of resources.
    """

    @dg.sensor(
        name=f"{transfer.transfer}_new_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Adds key ranges for new keys of {transfer.source}, and moves them.",
        required_resource_keys=resources_of(transfer, bound),
    )
    def new_ranges(
        context: dg.SensorEvaluationContext,
    ) -> dg.SensorResult | dg.SkipReason:
        servers = Servers.of(transfer, context.resources, bound)
        try:
            plan = plan_growth(transfer, servers, context.instance)
        except TableferryError as error:
            return dg.SkipReason(str(error))
        if running := run_under_way(context.instance, transfer):
            return dg.SkipReason(f"run {running} is under way; new ranges wait for its end")
        apply_growth(plan, servers, context.instance)
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        # also what an earlier tick added, if the daemon ended before it started the run
        missing = {one.name for one in plan.growth.add} | _untouched(transfer, context, order)
        known, now = read(context.cursor), time()
        tries = {name: known.get(name, Tries()) for name in missing}
        due = {name for name, one in tries.items() if _due(one, now)}
        lost = sorted(
            name for name, one in tries.items() if one.given_up(0.0, now) and not one.told
        )
        if lost and told(transfer, lost, context):
            tries |= {name: replace(tries[name], told=True) for name in lost}
        if not due:
            why = f"no keys of {transfer.source} beyond the known ranges"
            if waiting := sorted(name for name, one in tries.items() if not one.told):
                why += f"; {len(waiting)} ranges wait for a new try"
            if gone := sorted(name for name, one in tries.items() if one.told):
                why += f"; {listed(gone)}"
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=written(tries))
        requests = [
            request
            for number in sorted({tries[name].number for name in due})
            # the same for a tick that is repeated, another for each further try
            for request in run_requests(
                transfer,
                order,
                {name for name in due if tries[name].number == number},
                key=f"new:{number}" if number else "new",
            )
        ]
        tries |= {name: Tries(tries[name].number + 1, now) for name in due}
        return dg.SensorResult(run_requests=requests, cursor=written(tries))

    return new_ranges


def _due(tries: Tries, now: float) -> bool:
    """Whether a range is to be asked for: a new one at once."""
    when = 0.0 if not tries.number else tries.due(0.0)
    return when is not None and when <= now


def _untouched(
    transfer: Transfer, context: dg.SensorEvaluationContext, order: Sequence[str]
) -> set[str]:
    """Ranges that no run has come to, in the first hop or in one that has others."""
    found: set[str] = set()
    for number, hop in enumerate(transfer.hops):
        touched = records(context.instance, asset_key(hop.to), order)
        if touched or not number:
            found |= set(order) - set(touched)
    return found
