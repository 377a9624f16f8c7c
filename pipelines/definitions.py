"""The code location: the only place where everything is put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping

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
    """Everything that the declared transfers amount to.

    Args:
        declared: the transfers; those of the folder that the environment names, if not given.
        callers: who runs a transfer in this process, by its name.
        servers: the resources of the servers by their connections' names; those that the
            environment names, if not given.

    Raises:
        InputError: there is no such folder.
    """
    declared = declared or load_transfers(transfers_folder())
    transfers = declared.transfers
    callers = callers or {}
    link = transfers_link()
    origins = {name: Origin(file, link) for name, file in declared.files.items()}
    assets = {
        name: transfer_assets(one, callers.get(name), origins.get(name))
        for name, one in transfers.items()
    }
    good = of_transfers(transfers, assets, callers=callers, origins=origins)
    around = dg.Definitions(
        sensors=[
            *([first_ranges_sensor(transfers)] if transfers else []),
            reaper,
            failure_alert,
            check_alert,
        ],
        resources=resources() if servers is None else servers,
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(good, around, invalid_definitions(declared.invalid, link))


def of_transfers(
    transfers: Mapping[str, Transfer],
    assets: Mapping[str, dg.AssetsDefinition],
    *,
    callers: Mapping[str, Caller] | None = None,
    origins: Mapping[str, Origin] | None = None,
    bound: Servers | None = None,
    sources: bool = True,
) -> dg.Definitions:
    """The assets of transfers, and each one's jobs, schedules and sensors.

    Args:
        transfers: the declarations by name.
        assets: of their targets, by name.
        callers: who runs a transfer in this process.
        origins: where the transfers are declared.
        bound: the servers of their connections, in place of resources.
        sources: define their source tables as external assets, too.
    """
    callers, origins = callers or {}, origins or {}
    targets = {key for definition in assets.values() for key in definition.keys}
    # a source of several transfers is shown in the group of the first
    specs = [source_asset(one, origins.get(name)) for name, one in transfers.items() if sources]
    read = {spec.key: spec for spec in reversed(specs) if spec.key not in targets}
    every = transfers.values()
    return dg.Definitions(
        assets=[*assets.values(), *read.values()],
        jobs=[
            *(move_job(transfers[name], definition) for name, definition in assets.items()),
            *(check_job(one, callers.get(name), bound) for name, one in transfers.items()),
        ],
        schedules=[
            *(transfer_schedule(one, one.schedule, bound) for one in every if one.schedule),
            *(check_schedule(one, one.check_schedule) for one in every if one.check_schedule),
        ],
        sensors=[
            *(new_ranges_sensor(one, bound) for one in every),
            *(failed_ranges_sensor(one) for one in every),
        ],
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The code location of the folder that the environment names, whatever its files hold."""
    declared = load_transfers(transfers_folder())
    for file in declared.invalid:
        logger.error("left out an invalid transfer file:\n%s", file)
    return build(declared)
