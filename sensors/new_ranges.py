"""Finds keys beyond the known ranges, and adds and moves ranges for them."""

from collections.abc import Sequence

import dagster as dg

from assets.asset_keys import asset_key
from assets.declaring.manifest import Transfer
from assets.declaring.names import move_job_name
from assets.log.ledger import records
from assets.planning.resolve import Servers, connections_of
from assets.planning.transfer_plan import apply_growth, plan_growth
from assets.running.runs import run_requests, run_under_way
from resources.errors import TableferryError


def new_ranges_sensor(transfer: Transfer) -> dg.SensorDefinition:
    """The sensor that keeps one transfer's partitions up with its source."""

    @dg.sensor(
        name=f"{transfer.transfer}_new_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Adds key ranges for new keys of {transfer.source}, and moves them.",
        required_resource_keys=connections_of(transfer),
    )
    def new_ranges(
        context: dg.SensorEvaluationContext,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        servers = Servers.of(transfer, context.resources)
        try:
            plan = plan_growth(transfer, servers, context.instance)
        except TableferryError as error:
            return dg.SkipReason(str(error))
        if running := run_under_way(context.instance, transfer):
            return dg.SkipReason(f"run {running} is under way; new ranges wait for its end")
        apply_growth(plan, servers, context.instance)
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        # also what an earlier tick added, if the daemon ended before it started the run
        new = {one.name for one in plan.growth.add} | _untouched(transfer, context, order)
        if not new:
            return dg.SkipReason(f"no keys of {transfer.source} beyond the known ranges")
        return run_requests(transfer, order, new, key="new")

    return new_ranges


def _untouched(
    transfer: Transfer, context: dg.SensorEvaluationContext, order: Sequence[str]
) -> set[str]:
    """Ranges that no run has come to in the first hop."""
    return set(order) - set(records(context.instance, asset_key(transfer.hops[0].to), order))
