"""Builds the Dagster code location from the declared transfers."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.caller import Caller
from tableferry.assets.transfer import (
    Origin,
    rejected_asset,
    source_asset,
    target_asset,
    transfer_assets,
)
from tableferry.pipelines.schedules import check_schedule, transfer_schedule
from tableferry.pipelines.settings import resources, transfers_folder, transfers_link
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.failed_ranges import failed_ranges_sensor
from tableferry.sensors.first_ranges import first_ranges_sensor
from tableferry.sensors.invalid_files import invalid_definitions
from tableferry.sensors.new_ranges import new_ranges_sensor
from tableferry.sensors.reaper import reaper
from tableferry.sensors.sending import require_valid_variables

logger = logging.getLogger(__name__)


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
        name: transfer_assets(transfer, callers.get(name), origins.get(name), bound=bound)
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
