"""Builds the Dagster code location from the declared transfers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.planning.resolve import Servers
from tableferry.assets.running.caller import Caller
from tableferry.assets.transfer import Origin, source_asset, transfer_assets
from tableferry.pipelines.jobs import check_job, move_job
from tableferry.pipelines.schedules import check_schedule, transfer_schedule
from tableferry.pipelines.settings import resources, transfers_folder, transfers_link
from tableferry.sensors.alerts import check_alert, failure_alert
from tableferry.sensors.failed_ranges import failed_ranges_sensor
from tableferry.sensors.first_ranges import first_ranges_sensor
from tableferry.sensors.invalid_files import invalid_definitions
from tableferry.sensors.new_ranges import new_ranges_sensor
from tableferry.sensors.reaper import reaper

logger = logging.getLogger(__name__)


def build(
    declared: TransferFolder | None = None,
    callers: Mapping[str, Caller] | None = None,
    servers: Mapping[str, object] | None = None,
) -> dg.Definitions:
    """Build the definitions of a code location.

    Args:
        declared: the transfers; by default those in the configured folder.
        callers: the callers in this process, by transfer.
        servers: resources by connection name; by default those that the environment names.

    Raises:
        InputError: the folder does not exist.
    """
    declared = declared or load_transfers(transfers_folder())
    transfers = declared.transfers
    callers = callers or {}
    link = transfers_link()
    origins = {name: Origin(file, link) for name, file in declared.files.items()}
    assets = {
        name: transfer_assets(transfer, callers.get(name), origins.get(name))
        for name, transfer in transfers.items()
    }
    valid = transfer_definitions(transfers, assets, callers=callers, origins=origins)
    shared = dg.Definitions(
        sensors=[
            *([first_ranges_sensor(transfers)] if transfers else []),
            reaper,
            failure_alert,
            check_alert,
        ],
        resources=resources() if servers is None else servers,
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(valid, shared, invalid_definitions(declared.invalid, link))


def transfer_definitions(
    transfers: Mapping[str, Transfer],
    assets: Mapping[str, dg.AssetsDefinition],
    *,
    callers: Mapping[str, Caller] | None = None,
    origins: Mapping[str, Origin] | None = None,
    bound: Servers | None = None,
    sources: bool = True,
) -> dg.Definitions:
    """Build the jobs, schedules and sensors of transfers, and add their assets.

    Args:
        transfers: the declarations by name.
        assets: the assets of each transfer's targets, by its name.
        callers: the callers in this process, by transfer.
        origins: where each transfer is declared.
        bound: the servers to use instead of Dagster resources.
        sources: also define the source tables, as external assets.
    """
    callers, origins = callers or {}, origins or {}
    targets = {key for definition in assets.values() for key in definition.keys}
    # a source that several transfers share appears in the group of the first
    specs = [
        source_asset(transfer, origins.get(name)) for name, transfer in transfers.items() if sources
    ]
    external = {spec.key: spec for spec in reversed(specs) if spec.key not in targets}
    jobs: list[Any] = []
    schedules: list[dg.ScheduleDefinition] = []
    sensors: list[dg.SensorDefinition] = []
    for name, transfer in transfers.items():
        jobs.append(move_job(transfer, assets[name]))
        jobs.append(check_job(transfer, callers.get(name), bound))
        sensors += [new_ranges_sensor(transfer, bound), failed_ranges_sensor(transfer)]
        if transfer.schedule:
            schedules.append(transfer_schedule(transfer, transfer.schedule, bound))
        if transfer.check_schedule:
            schedules.append(check_schedule(transfer, transfer.check_schedule))
    return dg.Definitions(
        assets=[*assets.values(), *external.values()],
        jobs=jobs,
        schedules=schedules,
        sensors=sensors,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Load the configured folder of transfers; invalid files are logged and left out."""
    declared = load_transfers(transfers_folder())
    for file in declared.invalid:
        logger.error("left out an invalid transfer file:\n%s", file)
    return build(declared)
