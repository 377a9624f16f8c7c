"""The number of times a sensor has retried a range, and when the next retry is due.

A sensor keeps this in its cursor, by transfer.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import judge_ranges
from tableferry.assets.log.ranges import read_status
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted
from tableferry.sensors.sending import Alert, send

MOST_TRIES = 3
FIRST_PAUSE = 300.0
"""Seconds before the first retry; each further pause is twice as long."""


@dataclass(frozen=True)
class Tries:
    """A sensor's retries of one range."""

    count: int = 0
    latest: float = 0.0
    """When the sensor requested the latest retry, in seconds since the epoch."""
    reported: bool = False
    """Whether an alert said that the range was given up."""

    def next_due(self, failed: float) -> float | None:
        """When to retry a range that failed at the given time; None: never again."""
        if self.count >= MOST_TRIES:
            return None
        return max(failed, self.latest) + FIRST_PAUSE * 2**self.count

    def exhausted(self, failed: float, now: float) -> bool:
        """Whether the last retry has failed too, or has left no trace for too long."""
        late = now >= self.latest + FIRST_PAUSE * 2**MOST_TRIES
        return self.count >= MOST_TRIES and (failed > self.latest or late)


def parse_tries(stored: object) -> dict[str, Tries]:
    """Read the retries by range; what another version wrote counts as none."""
    try:
        return {name: Tries(*fields) for name, fields in stored.items()}  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError):
        return {}


def stored_tries(tries: Mapping[str, Tries]) -> dict[str, list[object]]:
    """Return the retries by range as a cursor keeps them."""
    return {name: [*astuple(item)] for name, item in tries.items() if item.count}


def due_retries(
    context: dg.SensorEvaluationContext,
    transfer: Transfer,
    failed: Mapping[str, float],
    earlier: Mapping[str, Tries],
    now: float,
) -> tuple[dict[str, Tries], set[str], list[str]]:
    """Find the failed ranges of a transfer that are due for a retry.

    An alert tells of those that are given up, once.

    Args:
        context: the tick's context.
        transfer: the transfer.
        failed: when each range failed, in seconds since the epoch; 0 for one that was never tried.
        earlier: the retries until now.
        now: the time.

    Returns:
        The retries of each, the names that are due, and those that are given up.
    """
    tries = {name: earlier.get(name, Tries()) for name in sorted(failed)}
    next_tries = {name: tries[name].next_due(failed[name]) for name in tries}
    due = {name for name, due_at in next_tries.items() if due_at is not None and due_at <= now}
    given_up = [name for name, due_at in next_tries.items() if due_at is None]
    unreported = [
        name
        for name in given_up
        if not tries[name].reported and tries[name].exhausted(failed[name], now)
    ]
    if unreported and _report_given_up(transfer, unreported, context):
        tries |= {name: replace(tries[name], reported=True) for name in unreported}
    return tries, due, given_up


def _report_given_up(
    transfer: Transfer, names: list[str], context: dg.SensorEvaluationContext
) -> bool:
    """Send an alert that ranges are given up; return whether it was delivered."""
    text = f"{transfer.transfer}: {counted(len(names), 'range')} given up after {MOST_TRIES} tries"
    errors: dict[str, str] = {}
    statuses = read_status(context.instance, [transfer], only=names)
    for target in statuses:
        for name, judged in judge_ranges(transfer, target, statuses).items():
            if not judged.good:
                # the later hops wait for the first that is not
                errors.setdefault(name, f"{target} {name}: {'; '.join(judged.problems)}")
    lines = [errors.get(name, name) for name in names]
    context.log.error(text)
    try:
        send(Alert("ranges_given_up", text, transfer.transfer, errors=lines))
    except TableferryError as error:
        context.log.warning(str(error))
        return False
    return True


def given_up_reason(names: list[str]) -> str:
    """Name the ranges that were given up, for a tick's skip reason; '' if none was."""
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"; given up after {MOST_TRIES} tries: {', '.join(names[:5])}{more}"
