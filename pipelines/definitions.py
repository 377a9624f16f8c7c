"""The code location: the only place where everything is put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import dagster as dg

from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
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
    targets = {key for definition in assets.values() for key in definition.keys}
    # a source of several transfers is shown in the group of the first
    specs = [source_asset(one, origins.get(name)) for name, one in transfers.items()]
    sources = {spec.key: spec for spec in reversed(specs) if spec.key not in targets}
    good = dg.Definitions(
        assets=[*assets.values(), *sources.values()],
        jobs=[
            *(move_job(transfers[name], definition) for name, definition in assets.items()),
            *(check_job(one, callers.get(name)) for name, one in transfers.items()),
        ],
        schedules=[
            *(transfer_schedule(one, one.schedule) for one in transfers.values() if one.schedule),
            *(
                check_schedule(one, one.check_schedule)
                for one in transfers.values()
                if one.check_schedule
            ),
        ],
        sensors=[
            *map(new_ranges_sensor, transfers.values()),
            *map(failed_ranges_sensor, transfers.values()),
            *([first_ranges_sensor(transfers)] if transfers else []),
            reaper,
            failure_alert,
            check_alert,
        ],
        resources=resources() if servers is None else servers,
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(good, invalid_definitions(declared.invalid, link))


@dg.definitions
def defs() -> dg.Definitions:
    """The code location of the folder that the environment names, whatever its files hold."""
    declared = load_transfers(transfers_folder())
    for file in declared.invalid:
        logger.error("left out an invalid transfer file:\n%s", file)
    return build(declared)
