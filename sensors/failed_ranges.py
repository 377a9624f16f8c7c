"""Tries failed ranges again, a few times and ever more seldom."""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from time import time

import dagster as dg

from assets.asset_keys import asset_key
from assets.declaring.manifest import Transfer
from assets.declaring.names import move_job_name
from assets.log.ledger import records, verdicts
from assets.log.records import State, digest
from assets.planning.resolve import checks_of
from assets.running.runs import run_requests, run_under_way
from resources.errors import TableferryError
from sensors.channels import Alert, send

MOST_TRIES = 3
FIRST_PAUSE = 300.0
"""Seconds before the first new try; each further one waits twice as long."""


@dataclass(frozen=True)
class Tries:
    """What the sensor did about a failed range so far."""

    number: int = 0
    last: float = 0.0
    """When it asked for the latest of them, in seconds since the epoch."""
    told: bool = False
    """That it was given up was told to whoever is to know."""

    def due(self, failed: float) -> float | None:
        """When the next one is due, of a range that failed then; None if there is none."""
        if self.number >= MOST_TRIES:
            return None
        return max(failed, self.last) + FIRST_PAUSE * 2**self.number

    def given_up(self, failed: float, now: float) -> bool:
        """Whether the last try, too, has failed by now, or left no trace."""
        late = now >= self.last + FIRST_PAUSE * 2**MOST_TRIES
        return self.number >= MOST_TRIES and (failed > self.last or late)


def failed_ranges_sensor(transfer: Transfer) -> dg.SensorDefinition:
    """The sensor that runs only the failed ranges of one transfer again."""

    @dg.sensor(
        name=f"{transfer.transfer}_failed_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Moves failed ranges of {transfer.transfer} again, up to {MOST_TRIES} times.",
    )
    def failed_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        failed = _failed(transfer, context.instance)
        known = _read(context.cursor)
        tries = {name: known.get(name, Tries()) for name in failed}
        now = time()
        due = {
            name
            for name, when in failed.items()
            if (at := tries[name].due(when)) is not None and at <= now
        }
        given_up = sorted(name for name, one in tries.items() if one.number >= MOST_TRIES)
        lost = [
            name
            for name in given_up
            if not tries[name].told and tries[name].given_up(failed[name], now)
        ]
        if lost and _told(transfer, lost, context):
            tries |= {name: replace(tries[name], told=True) for name in lost}
        if not due:
            why = f"{len(failed)} failed ranges, none due for a new try"
            if given_up:
                why += f"; given up after {MOST_TRIES} tries: {', '.join(given_up[:5])}"
                why += f" and {len(given_up) - 5} more" if len(given_up) > 5 else ""
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=_written(tries))
        if running := run_under_way(context.instance, transfer):
            why = f"{len(due)} failed ranges wait for the end of run {running}"
            return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=_written(tries))
        tries |= {name: Tries(tries[name].number + 1, now) for name in due}
        # the same for a tick that is repeated, another for each further try
        key = digest(sorted((name, failed[name], tries[name].number) for name in due))
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        return dg.SensorResult(
            run_requests=run_requests(transfer, order, due, key=f"failed:{key}"),
            cursor=_written(tries),
        )

    return failed_ranges


def _told(transfer: Transfer, names: list[str], context: dg.SensorEvaluationContext) -> bool:
    """Send the alert; one that nobody took is tried again at the next tick."""
    text = f"{transfer.transfer}: {len(names)} ranges given up after {MOST_TRIES} tries"
    errors = {
        name: f"{hop.to} {name}: {record.error}"
        for hop in transfer.hops
        for name, record in records(context.instance, asset_key(hop.to), names).items()
        if record.error
    }
    lines = [errors.get(name, name) for name in names]
    context.log.error(text)
    try:
        send(Alert("ranges_given_up", text, move_job_name(transfer.transfer), errors=lines))
    except TableferryError as error:
        context.log.warning(str(error))
        return False
    return True


def _failed(transfer: Transfer, instance: dg.DagsterInstance) -> dict[str, float]:
    """The ranges that did not get through a hop, or whose last check failed; with the time."""
    order = instance.get_dynamic_partitions(transfer.partitions_name)
    failed: dict[str, float] = {}
    for hop in transfer.hops:
        asset = asset_key(hop.to)
        checks = verdicts(instance, asset, checks_of(transfer))
        for name, record in records(instance, asset, order).items():
            settled = record.state in (State.COMMITTED, State.SKIPPED_UNCHANGED)
            unfinished = not settled and record.state is not State.FAILED
            if unfinished and not _ended(instance, record.run_id):
                continue
            if not settled or not all(checks.get(name, {}).values()):
                failed[name] = max(failed.get(name, 0.0), record.timestamp or 0.0)
    return failed


def _ended(instance: dg.DagsterInstance, run_id: str | None) -> bool:
    run = instance.get_run_by_id(run_id) if run_id else None
    return run is None or run.is_finished


def _read(cursor: str | None) -> dict[str, Tries]:
    """The tries so far; none of a cursor that another version wrote."""
    try:
        return {name: Tries(*one) for name, one in json.loads(cursor or "{}").items()}
    except (TypeError, ValueError, AttributeError):
        return {}


def _written(tries: Mapping[str, Tries]) -> str:
    return json.dumps({name: [*astuple(one)] for name, one in tries.items() if one.number})
