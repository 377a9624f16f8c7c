"""Schedules out of the transfers' `schedule` lines."""

from datetime import UTC, datetime

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.freshness import GRACE, longest_pause
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import (
    check_job_name,
    check_schedule_name,
    move_job_name,
    schedule_name,
)
from tableferry.assets.log.ledger import latest_materialization
from tableferry.assets.log.records import Reason
from tableferry.assets.planning.decisions import decisions
from tableferry.assets.planning.resolve import Servers, resources_of
from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.assets.running.runs import run_requests, run_under_way


def check_schedule(transfer: Transfer, cron: str) -> dg.ScheduleDefinition:
    """At each tick, reconcile all committed ranges of the transfer; nothing is moved."""
    return dg.ScheduleDefinition(
        name=check_schedule_name(transfer.transfer),
        job_name=check_job_name(transfer.transfer),
        cron_schedule=cron,
        execution_timezone="UTC",
        description=f"Compares {transfer.source} with its targets.",
    )


def transfer_schedule(
    transfer: Transfer, cron: str, bound: Servers | None = None
) -> dg.ScheduleDefinition:
    """At each tick, plan the transfer and run the ranges that need it.

    Where none does, and the targets would otherwise count as stale before the next tick, the last
    range is run: it is found unchanged, which is recorded. Dagster looks at nothing else.
    """

    @dg.schedule(
        name=schedule_name(transfer.transfer),
        job_name=move_job_name(transfer.transfer),
        cron_schedule=cron,
        execution_timezone="UTC",
        description=f"Moves the changed and new ranges of {transfer.source}.",
        required_resource_keys=resources_of(transfer, bound),
    )
    def tick(
        context: dg.ScheduleEvaluationContext,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        if transfer.parallel.runs > 1 and (running := run_under_way(context.instance, transfer)):
            # else the pool might let both go at a time, and both move the same ranges
            return dg.SkipReason(f"run {running} is under way")
        servers = Servers.of(transfer, context.resources, bound)
        plan = plan_transfer(transfer, servers, context.instance)
        plan = plan.fingerprinted(servers, plan.ranges)
        todo = {
            name
            for hop in plan.hops
            for name, found in decisions(plan, hop, servers, context.instance).items()
            if found.reason is not Reason.UNCHANGED
        }
        if not todo:
            if not _becomes_stale(transfer, cron, context.instance):
                return dg.SkipReason(f"all {len(plan.ranges)} ranges are unchanged")
            todo = {[*plan.ranges][-1]}
        apply_growth(plan, servers, context.instance)
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        return run_requests(
            transfer,
            order,
            todo,
            key=f"{context.scheduled_execution_time:%Y%m%dT%H%M}",
            rows=plan.rows(),
        )

    return tick


def _becomes_stale(transfer: Transfer, cron: str, instance: dg.DagsterInstance) -> bool:
    """Whether a target will count as stale at the next tick, or before its run has begun."""
    if transfer.fresh_for is None:
        return False
    found = [latest_materialization(instance, asset_key(hop.to)) for hop in transfer.hops]
    oldest = min((one.timestamp if one else 0.0) for one in found)
    now_old = datetime.now(UTC) - datetime.fromtimestamp(oldest, UTC)
    return now_old + longest_pause(cron) + GRACE / 2 > transfer.fresh_for
