"""Looks at one batch of transfers after the other, for as long as a tick may take.

Its cursor keeps how often each range was retried.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from time import monotonic, thread_time

import dagster as dg

from tableferry.assets.declaring.dagster_rules import about
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import judge_ranges
from tableferry.assets.log.ranges import read_status
from tableferry.resources.connecting.waiting import bounded
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted
from tableferry.sensors.sending import Alert, send

INTERVAL_SECONDS = 60
TICK_SECONDS = 20.0
"""How long a tick may take before it leaves the rest to the next; Dagster's limit is a minute."""
LIMIT_SECONDS = 45.0
"""When the statements of a tick are ended: after Dagster's limit they would go on, beside those of
the next tick."""
TICK_CPU_SECONDS = 1.0
"""How much of a processor it may take: two such sensors use a 30th of a core, however many
transfers there are."""
BATCH = 250
"""Transfers that are surveyed together; between batches, and between transfers that need a look of
their own, a tick may end."""
MOST_REASONS = 10
"""Transfers that a tick's message names."""
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
) -> tuple[dict[str, Tries], set[str]]:
    """Find the failed ranges of a transfer that are due for a retry.

    An alert tells of those that are given up, once.

    Args:
        context: the tick's context.
        transfer: the transfer.
        failed: when each range failed, in seconds since the epoch; 0 for one that was never tried.
        earlier: the retries until now.
        now: the time.

    Returns:
        The retries of each, and the names that are due.
    """
    tries = {name: earlier.get(name, Tries()) for name in sorted(failed)}
    next_tries = {name: tries[name].next_due(failed[name]) for name in tries}
    due = {name for name, due_at in next_tries.items() if due_at is not None and due_at <= now}
    unreported = [
        name
        for name in tries
        if not tries[name].reported and tries[name].exhausted(failed[name], now)
    ]
    if unreported and _report_given_up(transfer, unreported, context):
        tries |= {name: replace(tries[name], reported=True) for name in unreported}
    return tries, due


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


@dataclass(frozen=True)
class Look:
    """What a sensor found out about a transfer."""

    reason: str = ""
    """Why no run is requested."""
    requests: list[dg.RunRequest] = field(default_factory=list)
    tries: Mapping[str, Tries] = field(default_factory=dict)
    """The retries to keep in the cursor."""


_looked_at = set[str]()
_lock = threading.Lock()


@contextmanager
def alone(transfer: str) -> Iterator[None]:
    """Look at a transfer, whose keys no other tick of this process reads meanwhile.

    Raises:
        TableferryError: another one does.
    """
    with _lock:
        if transfer in _looked_at:
            raise TableferryError("another tick reads its keys; the next one looks again")
        _looked_at.add(transfer)
    try:
        yield
    finally:
        with _lock:
            _looked_at.discard(transfer)


def in_turn(names: Iterable[str], last: str) -> list[str]:
    """Return the names in order, beginning after the last one of the tick before."""
    return sorted(names, key=lambda name: (name <= last, name))


@dataclass
class TickBudget:
    """What is left of a tick."""

    began: float = field(default_factory=monotonic)
    cpu: float = field(default_factory=lambda: thread_time() + TICK_CPU_SECONDS)

    @property
    def until(self) -> float:
        """When its statements are ended."""
        return self.began + LIMIT_SECONDS

    @property
    def spent(self) -> bool:
        """Whether the rest is left to the next tick."""
        return monotonic() > self.began + TICK_SECONDS or thread_time() > self.cpu


Survey = Callable[[Sequence[Transfer]], Mapping[str, Look | TableferryError]]
"""Settles what can be told of many transfers together; the others are looked at one by one."""


def look_round(
    context: dg.SensorEvaluationContext,
    transfers: Mapping[str, Transfer],
    look: Callable[[Transfer, Mapping[str, Tries]], Look],
    survey: Survey = lambda transfers: {},
) -> dg.SensorResult:
    """Look at the transfers in turn, beginning after the last one of the tick before.

    A transfer that cannot be looked at stops no other, and keeps its retries.

    Args:
        context: the tick's context, with a cursor that this function wrote.
        transfers: the transfers by name.
        look: looks at a transfer, given its retries until now.
        survey: looks at a batch of transfers.
    """
    last, kept = _parse(context.cursor)
    tries = {name: stored for name, stored in kept.items() if name in transfers}
    requests: list[dg.RunRequest] = []
    reasons: list[str] = []
    budget = TickBudget()
    for name, settled in _in_batches(context, transfers, in_turn(transfers, last), survey, budget):
        last = name
        try:
            if isinstance(settled, TableferryError):
                raise settled
            with bounded(budget.until):
                seen = settled or look(transfers[name], parse_tries(tries.get(name)))
        except TableferryError as error:
            reasons.append(about(name, str(error)))
        except Exception:
            context.log.exception(f"{name}: this transfer was left out")
            reasons.append(f"{name}: failed; see the log of this tick")
        else:
            tries[name] = stored_tries(seen.tries)
            requests += seen.requests
            if seen.reason:
                reasons.append(about(name, seen.reason))
    cursor = json.dumps(
        {"last": last, "tries": {name: item for name, item in tries.items() if item}}
    )
    if requests:
        return dg.SensorResult(run_requests=requests, cursor=cursor)
    more = len(reasons) - MOST_REASONS
    message = "; ".join(reasons[:MOST_REASONS]) + (
        f"; and {more} transfers more" if more > 0 else ""
    )
    return dg.SensorResult(skip_reason=dg.SkipReason(message), cursor=cursor)


def _in_batches(
    context: dg.SensorEvaluationContext,
    transfers: Mapping[str, Transfer],
    names: Sequence[str],
    survey: Survey,
    budget: TickBudget,
) -> Iterator[tuple[str, Look | TableferryError | None]]:
    """Yield names with what the survey of their batch has settled, until the budget is spent."""
    for start in range(0, len(names), BATCH):
        if budget.spent:
            return
        batch = names[start : start + BATCH]
        settled: Mapping[str, Look | TableferryError] = {}
        try:
            with bounded(budget.until):
                settled = survey([transfers[name] for name in batch])
        except TableferryError as error:
            context.log.info(f"transfers are looked at one by one: {error}")
        except Exception:
            context.log.exception("transfers are looked at one by one")
        for name in batch:
            if name not in settled and budget.spent:
                return
            yield name, settled.get(name)


def _parse(cursor: str | None) -> tuple[str, dict[str, object]]:
    """Read a cursor; one that another version wrote counts as empty."""
    try:
        stored = json.loads(cursor or "{}")
        return str(stored.get("last", "")), dict(stored.get("tries", {}))
    except (TypeError, ValueError, AttributeError):
        return "", {}
