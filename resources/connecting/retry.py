"""Which errors pass by themselves, and how to try again."""

from __future__ import annotations

import logging
import random

import tenacity

from tableferry.resources.connecting import outages
from tableferry.resources.errors import ConnectionFailed, TableferryError, causes, describe
from tableferry.resources.registry import systems

logger = logging.getLogger(__name__)

ATTEMPTS = 7
"""With `backoff`, these last half a minute: a database server's restart."""

FIRST_SECONDS, MOST_SECONDS = 0.5, 30.0

_GIVEN_UP = "_tableferry_given_up"
"""Attribute of an error after which a loop has given up."""


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the network, a restart, a deadlock, an overloaded server.

    Our own errors know it from their translation. Of a driver's, its system decides; of
    any other, the first of its causes that is one of these.
    """
    return next((verdict for verdict in map(_verdict, causes(error)) if verdict is not None), False)


def backoff(attempt: int) -> float:
    """Seconds to wait after the given attempt, counted from 1: doubled each time, with jitter.

    The jitter keeps ranges that failed together from coming back together.
    """
    seconds = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (attempt - 1))
    return seconds * random.uniform(1.0, 1.5)


def retrying(attempts: int = ATTEMPTS) -> tenacity.Retrying:
    """A loop that repeats its block after transient errors.

    A server that cannot be reached is tried for as long as `outages.patience` says, counted from
    the first failure of any loop of the process; all else, so many times. The last error is raised
    as it was, and so is, at once, one that is not transient. Loops do not multiply: what an inner
    one has given up is not tried again by an outer one.

    Examples:
        >>> for attempt in retrying():
        ...     with attempt:
        ...         move()
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_worth_another_attempt),
        stop=lambda state: _was_last(state, attempts),
        wait=lambda state: backoff(state.attempt_number),
        before_sleep=_say,
        retry_error_callback=_give_up,
    )


def _worth_another_attempt(error: BaseException) -> bool:
    return is_transient(error) and not any(hasattr(one, _GIVEN_UP) for one in causes(error))


def _was_last(state: tenacity.RetryCallState, attempts: int) -> bool:
    """Whether what has failed is to be given up."""
    error = state.outcome.exception() if state.outcome else None
    for cause in causes(error) if error is not None else ():
        if isinstance(cause, ConnectionFailed):
            away = outages.seconds_away(cause)
            if away is not None:
                return away >= outages.patience()
    return state.attempt_number >= attempts


def _give_up(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None
    setattr(error, _GIVEN_UP, True)
    raise error


def _say(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    seconds = state.next_action.sleep if state.next_action else 0.0
    logger.warning(
        "attempt %d failed, again in %.1f s: %s",
        state.attempt_number,
        seconds,
        describe(error) if error else "no result",
    )


def _verdict(error: BaseException) -> bool | None:
    """Whether an error is transient; None if it says nothing of that."""
    if isinstance(error, TableferryError):
        return getattr(error, "transient", None)
    verdicts = (system.is_transient(error) for system in systems())
    found = next((verdict for verdict in verdicts if verdict is not None), None)
    return True if found is None and isinstance(error, ConnectionError | TimeoutError) else found
