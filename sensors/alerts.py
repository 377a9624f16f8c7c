"""Alerts of failed runs, and of checks that failed in runs that did not."""

from collections.abc import Collection
from dataclasses import replace

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, move_job_name
from tableferry.assets.log.history import failed_checks
from tableferry.assets.planning.resolve import Servers
from tableferry.assets.running.runs import RANGE_END, RANGE_START
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted
from tableferry.sensors.channels import Alert, Kind, channels, send

STATUS = dg.DefaultSensorStatus.RUNNING if channels() else dg.DefaultSensorStatus.STOPPED
"""Naming a channel is enough to get alerts; the UI can switch them off."""

NOT_OURS = "a run of other assets"


def alert_sensors(
    prefix: str = "",
    transfers: Collection[Transfer] | None = None,
    bound: Servers | None = None,
) -> tuple[dg.SensorDefinition, dg.SensorDefinition]:
    """Build the sensor of failed runs, and that of failed checks in other runs.

    Args:
        prefix: of their names.
        transfers: whose runs they tell of; all runs of the code location, if not given.
        bound: servers whose passwords no alert shows, besides those that the environment names.
    """

    @dg.run_failure_sensor(
        name=f"{prefix}failure_alert",
        description="Logs every failed run, and tells of it where the environment says.",
        default_status=STATUS,
    )
    def of_runs(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if transfers is not None and not _concerns(run, transfers):
            return dg.SkipReason(NOT_OURS)
        errors = [
            data.user_failure_data.description or ""
            for event in context.get_step_failure_events()
            if (data := event.step_failure_data).user_failure_data
        ]
        message = f"failed: {context.failure_event.message}"
        alert = _without_passwords(_alert(run, "run_failed", message, errors), bound)
        context.log.error(alert.text)
        send(alert)
        return None

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{prefix}check_alert",
        description="Tells of checks that failed without failing their run: they do not block.",
        default_status=STATUS,
    )
    def of_checks(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if transfers is not None and not _concerns(run, transfers):
            return dg.SkipReason(NOT_OURS)
        failed = failed_checks(context.instance, run.run_id)
        if failed:
            message = f"succeeded, but {counted(len(failed), 'check')} failed"
            alert = _without_passwords(_alert(run, "check_failed", message, failed), bound)
            context.log.error(alert.text)
            send(alert)
        return None

    return of_runs, of_checks


failure_alert, check_alert = alert_sensors()


def _concerns(run: dg.DagsterRun, transfers: Collection[Transfer]) -> bool:
    """Whether a run is of one of the transfers' own jobs, or of assets or checks of theirs."""
    names = [one.transfer for one in transfers]
    if run.job_name in {job(name) for name in names for job in (move_job_name, check_job_name)}:
        return True
    chosen = set(run.asset_selection or ())
    chosen |= {key.asset_key for key in run.asset_check_selection or ()}
    return any(asset_key(hop.to) in chosen for one in transfers for hop in one.hops)


def _without_passwords(alert: Alert, bound: Servers | None) -> Alert:
    for endpoint in bound.endpoints.values() if bound else ():
        try:
            redact = endpoint.settings().redact
        except InputError:
            continue
        errors = ["\n".join(map(redact, str(error).splitlines())) for error in alert.errors]
        alert = replace(alert, text=redact(alert.text), errors=errors)
    return alert


def _alert(run: dg.DagsterRun, kind: Kind, what: str, errors: list[str]) -> Alert:
    return Alert(
        kind,
        f"{run.job_name} {what}",
        run.job_name,
        run.run_id,
        run.tags.get(RANGE_START),
        run.tags.get(RANGE_END),
        errors,
    )
