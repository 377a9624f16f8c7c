"""The sensors that alert about failed runs, and about failed checks in successful runs."""

from collections.abc import Collection
from dataclasses import replace

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, move_job_name
from tableferry.assets.log.history import failed_checks
from tableferry.assets.log.run_tags import (
    RANGE_END,
    RANGE_START,
)
from tableferry.assets.planning.resolve import Servers
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted
from tableferry.sensors.channels import Alert, Kind, channels, send

STATUS = dg.DefaultSensorStatus.RUNNING if channels() else dg.DefaultSensorStatus.STOPPED
"""Configuring a channel switches the sensors on; the UI can switch them off."""

NOT_OURS = dg.SkipReason("a run of other assets")


def alert_sensors(
    prefix: str = "",
    transfers: Collection[Transfer] | None = None,
    bound: Servers | None = None,
) -> tuple[dg.SensorDefinition, dg.SensorDefinition]:
    """Build the sensor of failed runs, and the sensor of failed checks in successful runs.

    Args:
        prefix: a prefix of the sensors' names.
        transfers: the transfers whose runs to watch; by default all runs of the code location.
        bound: servers whose passwords to redact, besides those that the environment names.
    """

    def is_foreign(run: dg.DagsterRun) -> bool:
        return transfers is not None and not _belongs(run, transfers)

    def alert(
        context: dg.RunStatusSensorContext, kind: Kind, message: str, errors: list[str]
    ) -> None:
        run = context.dagster_run
        unsafe = Alert(
            kind,
            f"{run.job_name} {message}",
            run.job_name,
            run.run_id,
            run.tags.get(RANGE_START),
            run.tags.get(RANGE_END),
            errors,
        )
        safe = _without_passwords(unsafe, bound)
        context.log.error(safe.text)
        send(safe)

    @dg.run_failure_sensor(
        name=f"{prefix}failure_alert",
        description="Logs every failed run, and alerts the configured channels.",
        default_status=STATUS,
    )
    def failed_run(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        if is_foreign(context.dagster_run):
            return NOT_OURS
        errors = [
            data.user_failure_data.description or ""
            for event in context.get_step_failure_events()
            if (data := event.step_failure_data).user_failure_data
        ]
        alert(context, "run_failed", f"failed: {context.failure_event.message}", errors)
        return None

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{prefix}check_alert",
        description="Alerts about failed checks that did not fail their run.",
        default_status=STATUS,
    )
    def failed_check(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        if is_foreign(context.dagster_run):
            return NOT_OURS
        if failed := failed_checks(context.instance, context.dagster_run.run_id):
            message = f"succeeded, but {counted(len(failed), 'check')} failed"
            alert(context, "check_failed", message, failed)
        return None

    return failed_run, failed_check


failure_alert, check_alert = alert_sensors()


def _belongs(run: dg.DagsterRun, transfers: Collection[Transfer]) -> bool:
    """Whether a run is of a job of the transfers, or selects their assets or checks."""
    names = [transfer.transfer for transfer in transfers]
    if run.job_name in {job(name) for name in names for job in (move_job_name, check_job_name)}:
        return True
    selected = set(run.asset_selection or ())
    selected |= {key.asset_key for key in run.asset_check_selection or ()}
    return any(asset_key(hop.to) in selected for transfer in transfers for hop in transfer.hops)


def _without_passwords(alert: Alert, bound: Servers | None) -> Alert:
    for endpoint in bound.endpoints.values() if bound else ():
        try:
            redact = endpoint.settings().redact
        except InputError:
            continue
        errors = ["\n".join(map(redact, str(error).splitlines())) for error in alert.errors]
        alert = replace(alert, text=redact(alert.text), errors=errors)
    return alert
