"""The sensors that alert about failed runs, and about failed checks in successful runs."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.history import failed_checks
from tableferry.assets.planning.servers import Servers
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted
from tableferry.sensors.sending import Alert, Kind, is_configured, send

NOT_OURS = dg.SkipReason("a run of other assets")


def alert_sensors(
    prefix: str = "",
    transfers: Collection[Transfer] = (),
    bound: Servers | None = None,
    *,
    all_runs: bool = False,
) -> tuple[dg.SensorDefinition, dg.SensorDefinition]:
    """Build the sensor of failed runs, and the sensor of failed checks in successful runs.

    Args:
        prefix: a prefix of the sensors' names.
        transfers: the transfers whose runs to watch.
        bound: servers whose passwords to redact, besides those that the environment names.
        all_runs: watch all other runs of the code location, too.
    """

    # naming a service switches the sensors on; the UI can switch them off
    running = is_configured()
    status = dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED
    names = {asset_key(hop.to): item.transfer for item in transfers for hop in item.hops}

    def is_foreign(run: dg.DagsterRun) -> bool:
        return not all_runs and not _transfers_of(run, names)

    def alert(
        context: dg.RunStatusSensorContext, kind: Kind, message: str, errors: list[str]
    ) -> None:
        run = context.dagster_run
        subject = ", ".join(_transfers_of(run, names)) or run.job_name
        unsafe = Alert(
            kind,
            f"{subject} {message}",
            subject,
            run.run_id,
            errors,
        )
        safe = _without_passwords(unsafe, bound)
        context.log.error(safe.text)
        send(safe)

    @dg.run_failure_sensor(
        name=f"{prefix}failure_alert",
        description="Logs every failed run, and alerts the configured services.",
        default_status=status,
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
        default_status=status,
    )
    def failed_check(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        if is_foreign(context.dagster_run):
            return NOT_OURS
        if failed := failed_checks(context.instance, context.dagster_run.run_id):
            message = f"succeeded, but {counted(len(failed), 'check')} failed"
            alert(context, "check_failed", message, failed)
        return None

    return failed_run, failed_check


def _transfers_of(run: dg.DagsterRun, names: Mapping[dg.AssetKey, str]) -> list[str]:
    """Return the transfers whose assets or checks a run selects.

    Args:
        run: any run.
        names: the transfer of each target.
    """
    selected = {*(run.asset_selection or ())}
    selected |= {key.asset_key for key in run.asset_check_selection or ()}
    return sorted({names[key] for key in selected if key in names})


def _without_passwords(alert: Alert, bound: Servers | None) -> Alert:
    for endpoint in bound.endpoints.values() if bound else ():
        try:
            redact = endpoint.settings().redact
        except InputError:
            continue
        errors = ["\n".join(map(redact, str(error).splitlines())) for error in alert.errors]
        alert = replace(alert, text=redact(alert.text), errors=errors)
    return alert
