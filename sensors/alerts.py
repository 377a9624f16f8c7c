"""Alerts of failed runs, and of checks that failed in runs that did not."""

import dagster as dg

from tableferry.assets.log.history import failed_checks
from tableferry.assets.running.runs import RANGE_END, RANGE_START
from tableferry.resources.words import counted
from tableferry.sensors.channels import Alert, Kind, channels, send

STATUS = dg.DefaultSensorStatus.RUNNING if channels() else dg.DefaultSensorStatus.STOPPED
"""Naming a channel is enough to get alerts; the UI can switch them off."""


@dg.run_failure_sensor(
    name="failure_alert",
    description="Logs every failed run, and tells of it where the environment says.",
    default_status=STATUS,
)
def failure_alert(context: dg.RunFailureSensorContext) -> None:
    run = context.dagster_run
    errors = [
        data.user_failure_data.description or ""
        for event in context.get_step_failure_events()
        if (data := event.step_failure_data).user_failure_data
    ]
    alert = _alert(run, "run_failed", f"failed: {context.failure_event.message}", errors)
    context.log.error(alert.text)
    send(alert)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    name="check_alert",
    description="Tells of checks that failed without failing their run: they do not block.",
    default_status=STATUS,
)
def check_alert(context: dg.RunStatusSensorContext) -> None:
    run = context.dagster_run
    failed = failed_checks(context.instance, run.run_id)
    if failed:
        alert = _alert(
            run, "check_failed", f"succeeded, but {counted(len(failed), 'check')} failed", failed
        )
        context.log.error(alert.text)
        send(alert)


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
