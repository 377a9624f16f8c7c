"""Builds the schedules that a transfer's `schedule` and `check_schedule` declare."""

from datetime import UTC, datetime
from time import monotonic

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.freshness import GRACE, longest_pause
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import ASSET_JOB, check_schedule_name, schedule_name
from tableferry.assets.log.ledger import latest_materialization
from tableferry.assets.log.run_tags import TRANSFER
from tableferry.assets.planning.planner import make_plan
from tableferry.assets.planning.servers import Servers, resources_of
from tableferry.assets.planning.transfer_plan import apply_growth
from tableferry.assets.running.runs import (
    run_requests,
    run_under_way,
    runs_under_way,
    unplanned_request,
)
from tableferry.assets.running.source_slots import sharing
from tableferry.assets.verifying.check_request import CheckRequest
from tableferry.resources.connecting.bounds import TooSlow, bounded
from tableferry.resources.errors import TableferryError
from tableferry.sensors.rounds import LIMIT_SECONDS


def check_schedule(transfer: Transfer, cron: str) -> dg.ScheduleDefinition:
    """Build the schedule that reconciles all committed ranges; nothing is moved."""
    request = CheckRequest(complete=True)

    @dg.schedule(
        name=check_schedule_name(transfer.transfer),
        job_name=ASSET_JOB,
        cron_schedule=cron,
        execution_timezone="UTC",
        description=f"Compares {transfer.source} with its targets.",
    )
    def tick() -> dg.RunRequest:
        return dg.RunRequest(
            asset_selection=[],
            asset_check_keys=request.checks(transfer),
            tags={**request.tags(), TRANSFER: transfer.transfer},
        )

    return tick


def transfer_schedule(
    transfer: Transfer, cron: str, bound: Servers | None = None
) -> dg.ScheduleDefinition:
    """Build the schedule that plans the transfer and runs the ranges that need it.

    Dagster's freshness counts from the latest materialization. If no range needs a run but a
    target would become stale before the next tick, the last range runs and records that it is
    unchanged.
    """

    @dg.schedule(
        name=schedule_name(transfer.transfer),
        job_name=ASSET_JOB,
        cron_schedule=cron,
        execution_timezone="UTC",
        description=f"Moves the changed and new ranges of {transfer.source}.",
        required_resource_keys=resources_of(transfer, bound),
    )
    def tick(
        context: dg.ScheduleEvaluationContext,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        if running := run_under_way(transfer, runs_under_way(context.instance)):
            # another one would move the same ranges, or cut those that this one is about to move
            return dg.SkipReason(f"run {running} is under way")
        servers = Servers.of(transfer, context.resources, bound, sharing(context.instance))
        key = f"{context.scheduled_execution_time:%Y%m%dT%H%M}"
        try:
            with bounded(monotonic() + LIMIT_SECONDS):
                plan = make_plan(transfer, servers, context.instance)
        except TableferryError as error:
            if not (isinstance(error, TooSlow) or getattr(error, "transient", False)):
                raise
            # a server is away, say: the run waits, is retried, and tells of it if it fails
            context.log.warning(f"launched without a plan: {error}")
            return [unplanned_request(transfer, key=key)]
        todo = {
            name
            for decided in plan.decided.values()
            for name, decision in decided.items()
            if decision.runs
        }
        todo |= plan.versions_to_record
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
            key=key,
            rows=plan.rows(),
        )

    return tick


def _becomes_stale(transfer: Transfer, cron: str, instance: dg.DagsterInstance) -> bool:
    """Whether a target will be stale before the next tick's run begins."""
    if transfer.fresh_for is None:
        return False
    newest = [latest_materialization(instance, asset_key(hop.to)) for hop in transfer.hops]
    oldest = min(event.timestamp if event else 0.0 for event in newest)
    age = datetime.now(UTC) - datetime.fromtimestamp(oldest, UTC)
    return age + longest_pause(cron) + GRACE / 2 > transfer.fresh_for
