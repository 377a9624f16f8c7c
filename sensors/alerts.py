"""The sensors that alert about failed runs, and about failed checks in successful runs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time
from typing import Any

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.history import error_of, failed_checks
from tableferry.assets.log.runs import TRANSFER
from tableferry.assets.planning.servers import Servers
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted
from tableferry.sensors.missed import missed_sensor
from tableferry.sensors.sending import Alert, is_configured, redacted, send, tell

INTERVAL_SECONDS = 60
"""Runs that fail for one reason within a minute are told together."""
QUIET_SECONDS = 600
"""A reason that was told is not told again so soon: the runs that fail by it are told together."""
MOST_RUNS = 100
"""Runs that a tick looks at, and runs of one reason that wait to be told."""

NOT_OURS = dg.SkipReason("a run of other assets")


@dataclass(frozen=True)
class Watched:
    """Whose runs are watched, and how what is said of them is made safe."""

    transfers: Mapping[dg.AssetKey, str]
    """The transfer of each target."""
    bound: Servers | None
    """Servers whose passwords to strike out, besides those that the environment names."""
    all_runs: bool
    """Whether all other runs of the code location are watched, too."""

    def subject(self, run: dg.DagsterRun) -> str | None:
        """Return the transfers of a run, or else its job; None if it is not watched."""
        selected = {*(run.asset_selection or ())}
        selected |= {key.asset_key for key in run.asset_check_selection or ()}
        names = {self.transfers[key] for key in selected if key in self.transfers}
        tagged = run.tags.get(TRANSFER)
        if not names and tagged and (self.all_runs or tagged in self.transfers.values()):
            names = {tagged}
        return ", ".join(sorted(names)) or (run.job_name if self.all_runs else None)

    def safe(self, text: str) -> str:
        """Return a text without the passwords of the servers."""
        lines = text.splitlines()
        for endpoint in self.bound.endpoints.values() if self.bound else ():
            with suppress(InputError):
                lines = [*map(endpoint.settings().redact, lines)]
        return "\n".join(map(redacted, lines))


def alert_sensors(
    prefix: str = "",
    transfers: Collection[Transfer] = (),
    bound: Servers | None = None,
    *,
    all_runs: bool = False,
) -> tuple[dg.SensorDefinition, ...]:
    """Build the sensors of failed runs, of failed checks in successful runs, and of what is missed.

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
    watched = Watched(names, bound, all_runs)

    @dg.sensor(
        name=f"{prefix}failure_alert",
        minimum_interval_seconds=INTERVAL_SECONDS,
        description="Alerts about failed runs, those of one reason and minute together.",
        default_status=status,
    )
    def failed_run(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        after, waiting = _parse(context.cursor)
        if after is None:
            # what failed before is not news
            newest = _failures(context.instance, None, ascending=False, limit=1)
            cursor = _stored(newest[0].storage_id if newest else 0, {})
            return dg.SensorResult(skip_reason=dg.SkipReason("begins now"), cursor=cursor)
        events = _failures(context.instance, after, ascending=True, limit=MOST_RUNS)
        for event in events:
            after, run = event.storage_id, context.instance.get_run_by_id(event.run_id)
            if run is None or not _is_of_location(context, run):
                continue
            if (subject := watched.subject(run)) is not None:
                error = error_of(context.instance, run.run_id) or "no reason is recorded"
                reason = waiting.setdefault(_reason(error, run), Waiting())
                reason.runs[run.run_id] = [subject, watched.safe(error)]
        said = _tell(context, waiting)
        return dg.SensorResult(skip_reason=dg.SkipReason(said), cursor=_stored(after, waiting))

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{prefix}check_alert",
        description="Alerts about failed checks that did not fail their run.",
        default_status=status,
    )
    def failed_check(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        subject = watched.subject(run)
        if subject is None:
            return NOT_OURS
        if failed := failed_checks(context.instance, run.run_id):
            text = f"{subject} succeeded, but {counted(len(failed), 'check')} failed: {failed[0]}"
            alert = Alert(
                "check_failed",
                watched.safe(text),
                subject,
                run.run_id,
                [*map(watched.safe, failed)],
            )
            context.log.error(alert.text)
            send(alert)
        return None

    missed = missed_sensor(prefix, transfers, watched.safe, status)
    return failed_run, failed_check, missed


@dataclass
class Waiting:
    """Runs that failed for one reason, and are not told yet."""

    told: float = 0.0
    """When the reason was told last."""
    runs: dict[str, list[str]] = field(default_factory=dict)
    """What each is of, and why it failed, by run id."""


def _tell(context: dg.SensorEvaluationContext, waiting: dict[str, Waiting]) -> str:
    """Tell of the runs that wait, by reason, unless it was told a while ago; say what was done."""
    said = []
    for reason in list(waiting.values()):
        if not reason.runs or time() - reason.told < QUIET_SECONDS:
            continue
        text, again = tell(context, _alert(reason.runs))
        said.append(text)
        if not again:
            reason.told, reason.runs = time(), {}
    return "; ".join(said) or "no run has failed since"


def _alert(runs: Mapping[str, list[str]]) -> Alert:
    (run_id, (subject, error)), *more = runs.items()
    first = error.splitlines()[0]
    if not more:
        return Alert("run_failed", f"{subject} failed: {first}", subject, run_id, [error])
    lines = [f"{name}: {why.splitlines()[0]} (run {run[:8]})" for run, (name, why) in runs.items()]
    subjects = ", ".join(sorted({name for name, _ in runs.values()}))
    return Alert(
        "run_failed", f"{counted(len(runs), 'run')} failed: {first}", subjects, None, lines
    )


def _reason(error: str, run: dg.DagsterRun) -> str:
    """Return what errors of one reason share: no names of tables, no ranges and no numbers."""
    text = error.splitlines()[0]
    for key in sorted(run.asset_selection or (), key=lambda key: -len(key.path[-1])):
        text = text.replace(key.path[-1], "")
    text = text.replace(run.tags.get(TRANSFER, "\0"), "")
    return re.sub(r"\w+://\S+|range \S+|\d+", "", text)[:200]


def _failures(
    instance: dg.DagsterInstance, after: int | None, *, ascending: bool, limit: int
) -> Sequence[dg.EventLogRecord]:
    failed = dg.RunStatusChangeRecordsFilter(
        dg.DagsterEventType.RUN_FAILURE, after_storage_id=after
    )
    return instance.fetch_run_status_changes(failed, ascending=ascending, limit=limit).records


def _is_of_location(context: dg.SensorEvaluationContext, run: dg.DagsterRun) -> bool:
    """Whether a run is of the code location of the sensor, as Dagster's own sensors ask."""
    origin = run.remote_job_origin.repository_origin if run.remote_job_origin else None
    here = context.code_location_origin
    location = origin.code_location_origin.location_name if origin else None
    return location == (here.location_name if here else None) and (
        context.repository_name == (origin.repository_name if origin else None)
    )


def _parse(cursor: str | None) -> tuple[int | None, dict[str, Waiting]]:
    """Read a cursor; one that another version wrote counts as none."""
    try:
        stored: Any = json.loads(cursor or "")
        waiting = {reason: Waiting(*fields) for reason, fields in stored["waiting"].items()}
        return int(stored["after"]), waiting
    except (TypeError, ValueError, KeyError, AttributeError):
        return None, {}


def _stored(after: int, waiting: Mapping[str, Waiting]) -> str:
    kept = {
        reason: [each.told, dict([*each.runs.items()][:MOST_RUNS])]
        for reason, each in waiting.items()
        if each.runs or time() - each.told < QUIET_SECONDS
    }
    return json.dumps({"after": after, "waiting": kept})
