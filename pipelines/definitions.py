"""The code location: the only place where everything is put together."""

from __future__ import annotations

import dagster as dg

from assets.manifest import load_transfers
from assets.transfer import source_asset, transfer_assets
from pipelines.jobs import check_job, move_job
from pipelines.schedules import check_schedule, transfer_schedule
from pipelines.settings import resources, transfers_folder
from sensors.alerts import failure_alert
from sensors.failed_ranges import failed_ranges_sensor
from sensors.new_ranges import new_ranges_sensor
from sensors.reaper import reaper


def build() -> dg.Definitions:
    """Everything that the declared transfers amount to.

    Raises:
        InputError: a transfer file is wrong; the message names file and line.
    """
    transfers = load_transfers(transfers_folder())
    assets = {name: transfer_assets(transfer) for name, transfer in transfers.items()}
    targets = {key for definition in assets.values() for key in definition.keys}
    # a source of several transfers is shown in the group of the first
    specs = map(source_asset, reversed(transfers.values()))
    sources = {spec.key: spec for spec in specs if spec.key not in targets}
    return dg.Definitions(
        assets=[*assets.values(), *sources.values()],
        jobs=[
            *(move_job(transfers[name], definition) for name, definition in assets.items()),
            *map(check_job, transfers.values()),
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
            reaper,
            failure_alert,
        ],
        resources=resources(),
        executor=dg.in_process_executor,
    )


defs = build()
