"""Which errors are transient, how to try again after them, and how long to wait for a server.

All threads share what is known of servers that cannot be reached, so that the process waits for a
server once, not once per range.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import tenacity

from tableferry.resources.connecting import passwords, waiting
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    TableferryError,
    causes,
    describe,
)
from tableferry.resources.registry import systems

logger = logging.getLogger(__name__)
outages = logging.getLogger(f"{__name__}.outages")
"""Says of each server that cannot be reached, once, how long it is waited for."""

Arguments = ParamSpec("Arguments")
Connection = TypeVar("Connection")

ATTEMPTS = 7
"""With `backoff` these take half a minute, in which a database server restarts."""

FIRST_SECONDS, MOST_SECONDS = 0.5, 30.0

_GIVEN_UP = "_tableferry_given_up"
"""The attribute that marks an error for which a loop has given up."""

PATIENCE = "TABLEFERRY_PATIENCE_SECONDS"
"""The environment variable for the seconds that a server may be away."""

DEFAULT_PATIENCE = 30.0
"""Long enough for a database server to restart."""

RECENT_SECONDS = 5.0
"""How long a failure to connect predicts the outcome of the next attempt."""

FORGOTTEN_SECONDS = 90.0
"""A failure to connect this long after the last one begins another outage."""


@dataclass
class _Outage:
    since: float
    last: float
    reason: str
    told: bool = False
    """Whether it was said that the server is waited for."""


_outages: dict[str, _Outage] = {}
_lock = threading.Lock()


def patience() -> float:
    """The seconds that a server may be away before the work that needs it fails.

    Raises:
        InputError: the environment variable is not a number of seconds.
    """
    if not waiting.may_wait():
        return 0.0
    text = os.environ.get(PATIENCE)
    try:
        seconds = float(text) if text else DEFAULT_PATIENCE
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise InputError(f"{PATIENCE} should be a number of seconds; it is {text!r}")
    return seconds


def note_failure(error: ConnectionFailed) -> float | None:
    """Note that a server could not be reached, and return for how many seconds it has been away.

    None if the error names no server.
    """
    if error.address is None:
        return None
    now = time.monotonic()
    with _lock:
        outage = _outages.get(error.address)
        if outage is None or now - outage.last > FORGOTTEN_SECONDS:
            outage = _outages[error.address] = _Outage(now, now, str(error))
        outage.last, outage.reason = now, str(error)
        return now - outage.since


def forget_outages() -> None:
    """Forget all outages: those before a run say nothing about it."""
    with _lock:
        _outages.clear()


def note_reached(address: str) -> None:
    """Note that a server was reached."""
    with _lock:
        _outages.pop(address, None)


def require_reachable(address: str) -> None:
    """Raise `ConnectionFailed` if waiting for the server at an address has just been given up."""
    now = time.monotonic()
    with _lock:
        outage = _outages.get(address)
    if outage is None or now - outage.last > RECENT_SECONDS:
        return
    away = outage.last - outage.since
    if away >= patience():
        raise ConnectionFailed(_away_for(outage.reason, away))


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the network, a restart, a deadlock, an overloaded server.

    Our own errors know; a driver's errors are classified by its system; any other error is as
    transient as the first of its causes that is one of these.
    """
    return next((verdict for verdict in map(_verdict, causes(error)) if verdict is not None), False)


def backoff(attempt: int) -> float:
    """Seconds to wait after the given attempt, counted from 1: doubled each time, with jitter.

    The jitter keeps ranges that failed together from trying again together.
    """
    seconds = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (attempt - 1))
    return seconds * random.uniform(1.0, 1.5)


def retrying() -> tenacity.Retrying:
    """A loop that repeats its block after transient errors, at most `ATTEMPTS` times.

    A server that cannot be reached is tried for `patience` seconds instead, counted from
    the first failure of any loop of the process. The last error, or the first one that is not
    transient, is raised unchanged. An error for which an inner loop has given up is not tried again
    by an outer one.

    Examples:
        >>> for attempt in retrying():
        ...     with attempt:
        ...         move()
    """
    return _loop(_worth_another_attempt)


def _loop(again: Callable[[BaseException], bool]) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(again),
        stop=_was_last,
        wait=_pause,
        before_sleep=_log,
        retry_error_callback=_give_up,
    )


def patiently(connect: Callable[Arguments, Connection]) -> Callable[Arguments, Connection]:
    """Let a function that connects wait for a server that cannot be reached, see `retrying`, and
    ask for another password where the one that it had is outdated.

    What has not reached a server can be repeated, whatever it is.
    """
    connect = passwords.asking_again(connect)

    @wraps(connect)
    def connected(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Connection:
        missed: set[str] = set()

        def is_away(error: BaseException) -> bool:
            if not (isinstance(error, ConnectionFailed) and error.transient and error.address):
                return False
            missed.add(error.address)
            return True

        for attempt in _loop(is_away):
            with attempt:
                connection = connect(*args, **kwargs)
        for address in missed:
            note_reached(address)
        return connection

    return connected


def _worth_another_attempt(error: BaseException) -> bool:
    return is_transient(error) and not any(hasattr(cause, _GIVEN_UP) for cause in causes(error))


def _error(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None, "only errors are tried again"
    return error


def _missed(error: BaseException) -> ConnectionFailed | None:
    """The cause of an error that names a server which could not be reached."""
    failed = (cause for cause in causes(error) if isinstance(cause, ConnectionFailed))
    return next((cause for cause in failed if cause.address is not None), None)


def _patience_left(error: BaseException) -> float | None:
    """The seconds for which a server that cannot be reached is still waited for; None if it is no
    such error."""
    missed = _missed(error)
    seconds_away = note_failure(missed) if missed else None
    return None if seconds_away is None else patience() - seconds_away


def _away_for(reason: str, seconds: float) -> str:
    return (
        f"{reason}; it has been away for {seconds:.0f} s, longer than {PATIENCE} allows: "
        "`ferry doctor` examines it"
    )


def _pause(state: tenacity.RetryCallState) -> float:
    seconds, left = backoff(state.attempt_number), _patience_left(_error(state))
    return seconds if left is None else min(seconds, max(left, 0.0))


def _was_last(state: tenacity.RetryCallState) -> bool:
    if waiting.passed(state.upcoming_sleep):
        return True
    left = _patience_left(_error(state))
    return state.attempt_number >= ATTEMPTS if left is None else left <= 0


def _give_up(state: tenacity.RetryCallState) -> None:
    error = _error(state)
    setattr(error, _GIVEN_UP, True)
    missed = _missed(error)
    if missed and waiting.may_wait():
        missed.args = (_away_for(str(missed), note_failure(missed) or 0.0),)
    raise error


def _log(state: tenacity.RetryCallState) -> None:
    error = _error(state)
    missed = _missed(error)
    if missed and missed.address:
        _tell(missed.address)
        return
    seconds = state.next_action.sleep if state.next_action else 0.0
    logger.warning(
        "attempt %d failed, next in %.1f s: %s", state.attempt_number, seconds, describe(error)
    )


def _tell(address: str) -> None:
    """Say that a server is waited for, unless that was said."""
    with _lock:
        outage = _outages.get(address)
        if outage is None or outage.told:
            return
        outage.told = True
    left = patience() - (time.monotonic() - outage.since)
    outages.warning("%s; waiting up to %.0f s for it (%s)", outage.reason, left, PATIENCE)


def _verdict(error: BaseException) -> bool | None:
    """Whether an error itself is transient; None if that depends on its causes."""
    if isinstance(error, TableferryError):
        return getattr(error, "transient", None)
    verdicts = (system.is_transient(error) for system in systems())
    verdict = next((verdict for verdict in verdicts if verdict is not None), None)
    if verdict is None and isinstance(error, ConnectionError | TimeoutError):
        return True
    return verdict
