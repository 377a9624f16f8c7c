"""Builds the Dagster code location from the declared transfers."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB, check_schedule_name, schedule_name
from tableferry.assets.declaring.freshness import GRACE, longest_pause
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.log.ledger import latest_materialization
from tableferry.assets.log.runs import TRANSFER
from tableferry.assets.planning.planner import make_plan
from tableferry.assets.planning.servers import Servers, resources_of
from tableferry.assets.planning.transfer_plan import apply_growth
from tableferry.assets.running import runs
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.source_slots import sharing
from tableferry.assets.transfer import (
    Origin,
    rejected_asset,
    source_asset,
    target_asset,
    transfer_assets,
)
from tableferry.assets.verifying.checked import CheckRequest
from tableferry.pipelines.certifying import evidence
from tableferry.pipelines.settings import resources, transfers_folder, transfers_link
from tableferry.resources.connecting.waiting import TooSlow, bounded
from tableferry.resources.errors import TableferryError
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.failed_ranges import failed_ranges_sensor
from tableferry.sensors.invalid_files import invalid_definitions
from tableferry.sensors.new_ranges import first_ranges_sensor, new_ranges_sensor
from tableferry.sensors.reaper import reaper
from tableferry.sensors.rounds import LIMIT_SECONDS
from tableferry.sensors.sending import require_valid_variables

logger = logging.getLogger(__name__)


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
        if running := runs.run_under_way(transfer, runs.runs_under_way(context.instance)):
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
            return [runs.unplanned_request(transfer, key=key)]
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
        return runs.run_requests(
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


def build(
    declared: TransferFolder | None = None,
    callers: Mapping[str, Caller] | None = None,
    servers: Mapping[str, object] | None = None,
    *,
    bound: Servers | None = None,
) -> dg.Definitions:
    """Build the definitions of a code location.

    Args:
        declared: the transfers; by default those in the configured folder.
        callers: the callers in this process, by transfer.
        servers: resources by connection name; by default those that the environment names.
        bound: the servers to use instead of Dagster resources.

    Raises:
        InputError: the folder does not exist.
    """
    declared = declared or load_transfers(transfers_folder())
    transfers = declared.transfers
    callers = callers or {}
    link = transfers_link()
    origins = {name: Origin(file, link) for name, file in declared.files.items()}
    assets = {
        name: transfer_assets(
            transfer,
            callers.get(name),
            origins.get(name),
            bound=bound,
            op=None if name in callers else evidence.of_dagster(transfer),
        )
        for name, transfer in transfers.items()
    }
    valid = transfer_definitions(transfers, assets, origins=origins, bound=bound)
    shared = dg.Definitions(
        sensors=[reaper, *alert_sensors(transfers=transfers.values(), all_runs=True)],
        resources={} if bound else (resources() if servers is None else servers),
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(valid, shared, invalid_definitions(declared.invalid, link))


def transfer_definitions(
    transfers: Mapping[str, Transfer],
    assets: Mapping[str, dg.AssetsDefinition],
    *,
    origins: Mapping[str, Origin] | None = None,
    bound: Servers | None = None,
    sources: Container[str] | None = None,
    prefix: str = "",
    specs: Mapping[str, Sequence[dg.AssetSpec]] | None = None,
) -> dg.Definitions:
    """Build the schedules and sensors of transfers, and add their assets.

    Their runs are runs of Dagster's job of all assets, so that loading takes time in proportion to
    the number of transfers: each further job would be built from all assets.

    Args:
        transfers: the declarations by name.
        assets: the assets of each transfer's targets, by its name.
        origins: where each transfer is declared.
        bound: the servers to use instead of Dagster resources.
        sources: the transfers whose source tables are defined, too, as external assets; by default
            all.
        prefix: a prefix of the sensors' names.
        specs: the assets of each transfer's targets, in order; by default those of `target_asset`.
    """
    origins, specs = origins or {}, specs or {}
    targets = {key for definition in assets.values() for key in definition.keys}
    # a source that several transfers share is declared by the first
    not_moved = [
        source_asset(transfer, origins.get(name))
        for name, transfer in transfers.items()
        if sources is None or name in sources
    ]
    for name, transfer in transfers.items():
        if not transfer.write.moves:
            not_moved += specs.get(name) or [
                target_asset(transfer, hop, origins.get(name)) for hop in transfer.hops
            ]
        if transfer.on_reject == "quarantine":
            not_moved += [rejected_asset(transfer, hop) for hop in transfer.hops]
    external = {spec.key: spec for spec in reversed(not_moved) if spec.key not in targets}
    schedules: list[dg.ScheduleDefinition] = []
    for transfer in transfers.values():
        if transfer.schedule:
            schedules.append(transfer_schedule(transfer, transfer.schedule, bound))
        if transfer.check_schedule:
            schedules.append(check_schedule(transfer, transfer.check_schedule))
    sensors = [
        first_ranges_sensor(transfers, f"{prefix}first_ranges", bound),
        new_ranges_sensor(transfers, f"{prefix}new_ranges", bound),
        failed_ranges_sensor(transfers, f"{prefix}failed_ranges"),
    ]
    return dg.Definitions(
        assets=[*assets.values(), *external.values()],
        schedules=schedules,
        sensors=sensors if transfers else [],
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Load the configured folder of transfers; invalid files are logged and left out."""
    require_valid_variables(sends=True)
    declared = load_transfers(transfers_folder())
    for file in declared.invalid:
        logger.error("left out an invalid transfer file:\n%s", file)
    return build(declared)
