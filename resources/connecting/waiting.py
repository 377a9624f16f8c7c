"""What bounds a statement, and what it waits for: told after ten seconds, and ended by a limit.

One thread of the process looks which statements have been under way for long. Only then is the
server asked, by a connection of its own, whether they wait, and for whom.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tableferry.resources.errors import InputError, StatementFailed, TableferryError, describe


@dataclass(frozen=True)
class _Bounds:
    until: float = math.inf
    """When all is ended, by `time.monotonic`."""
    seconds: float = math.inf
    """How long a statement may take."""
    waits: bool = True
    writes: bool = True


_FREE = _Bounds()
_bounds: ContextVar[_Bounds] = ContextVar("bounds", default=_FREE)


class TooSlow(TableferryError):
    """The work took longer than it may; its statement was ended."""


@contextmanager
def bounded(until: float = math.inf) -> Iterator[None]:
    """Wait in this thread's block for no server that is away, and end its statements at a moment.

    It is for work that nobody waits for afterwards, or that comes again, as a tick of Dagster's,
    and for who asks whether a server is there.

    Raises:
        TooSlow: the moment has passed before the block has ended.
    """
    token = _bounds.set(_Bounds(until, waits=False))
    try:
        yield
    except TableferryError as error:
        if passed():
            raise TooSlow(
                "its statements take longer than a tick may, and were ended; a run has no limit"
            ) from error
        raise
    finally:
        _bounds.reset(token)


@contextmanager
def only_reading(seconds: float) -> Iterator[None]:
    """Have the server refuse, or take back, what a user's query writes, and end it after a time.

    Raises:
        TooSlow: the query took longer.
    """
    began = time.monotonic()
    token = _bounds.set(replace(_bounds.get(), seconds=seconds, writes=False))
    try:
        yield
    except StatementFailed as error:
        if time.monotonic() - began >= seconds:
            raise TooSlow(f"it has not answered within {seconds:g} s: {error}") from error
        raise
    finally:
        _bounds.reset(token)


def passed(within: float = 0.0) -> bool:
    """Whether the block has to end, now or within some seconds."""
    return time.monotonic() + within >= _bounds.get().until


def seconds_left() -> int | None:
    """Return the seconds that a statement may take, at least 1; None without a bound.

    Raises:
        TooSlow: there are none left.
    """
    if passed():
        raise TooSlow("there is no time left")
    bounds = _bounds.get()
    seconds = min(bounds.until - time.monotonic(), bounds.seconds)
    return None if seconds == math.inf else max(1, math.ceil(seconds))


def may_wait() -> bool:
    """Whether a server that is away is waited for."""
    return _bounds.get().waits


def may_write() -> bool:
    """Whether statements may write."""
    return _bounds.get().writes


logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

LIMIT = "TABLEFERRY_WAIT_SECONDS"
"""The environment variable for the seconds to wait for a lock, a mutation, or a free connection."""

DEFAULT_LIMIT = 600.0
"""Longer than most transactions that hold a lock, and short of a night."""

ASKED_SECONDS = 8.0
"""The age of a statement at which its server is asked whether it waits."""

TOLD_SECONDS = 10.0
"""The age of a statement at which its server is said not to answer, if it has not by then."""

AGAIN_SECONDS = 60.0
"""How long what was told is not told again."""

LONGEST_QUESTION = 20.0
"""Seconds that a question may keep the process from ending; a login has 15."""

TICK_SECONDS = 1.0

_LOCK_TIMEOUT = re.compile(r"lock (?:request )?time ?out", re.IGNORECASE)
"""What PostgreSQL, SQL Server and Babelfish say when a lock was not to be had in time."""

Ask = Callable[[], Sequence[str]]
"""Says which statements of this login wait, one sentence each."""


def limit() -> float:
    """The seconds to wait for what others have, at most; infinite for 0.

    Raises:
        InputError: the environment variable is not a number of seconds.
    """
    text = os.environ.get(LIMIT)
    try:
        seconds = float(text) if text else DEFAULT_LIMIT
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1_000_000:
        raise InputError(f"{LIMIT} should be a number of seconds, 0 for no limit; it is {text!r}")
    return seconds or math.inf


def lock_milliseconds(unlimited: str) -> str:
    """Write the limit as servers take it: a number of milliseconds, or their word for none."""
    seconds = limit()
    return unlimited if seconds == math.inf else str(max(1, round(seconds * 1000)))


@dataclass
class _Server:
    """What is under way on a server, and what was told about it."""

    under_way: dict[int, tuple[float, Ask]] = field(default_factory=dict)
    """When each statement under way began, and how its login asks the server; oldest first."""
    asked: float = 0.0
    asking: threading.Thread | None = None
    told: dict[str, float] = field(default_factory=dict)
    """When each sentence was logged last."""
    heard: dict[str, float] = field(default_factory=dict)
    """When each sentence held last; newest first."""


_servers: dict[str, _Server] = {}
_lock = threading.Lock()
_watchers: list[threading.Thread] = []
"""The thread that looks, once there is something to look at."""


@contextmanager
def watched(address: str, ask: Ask) -> Iterator[None]:
    """Tell if a statement on a server waits for long, and for whom.

    A lock that was not to be had within the limit is no transient error: the range has waited.

    Args:
        address: of the server.
        ask: asks it, by a connection of its own that is not watched.
    """
    began, mark = time.monotonic(), object()
    with _lock:
        server = _servers.setdefault(address, _Server())
        server.under_way[id(mark)] = (began, ask)
        _start()
    try:
        yield
    except StatementFailed as error:
        waited = time.monotonic() - began
        if waited >= 0.95 * limit() and _LOCK_TIMEOUT.search(str(error)):
            error.transient = False
            error.args = (_given_up(str(error), began, server),)
        raise
    finally:
        with _lock:
            del server.under_way[id(mark)]


def within(address: str, what: str, call: Callable[[], Answer]) -> Answer:
    """Call what may wait on a server that has no such limit itself; give up at the limit.

    The call goes on in its thread until the server answers.

    Raises:
        StatementFailed: the limit has passed.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    seconds, began = limit(), time.monotonic()
    thread = threading.Thread(target=run, name="statement", daemon=True)
    thread.start()
    thread.join(None if seconds == math.inf else seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise StatementFailed(
            address.partition(" ")[0], _given_up(what, began, _servers.get(address))
        )
    return answers[0]


def _given_up(text: str, began: float, server: _Server | None) -> str:
    heard = server.heard if server else {}
    waited = time.monotonic() - began
    causes = "".join(f"; {sentence}" for sentence, at in heard.items() if at >= began)
    return f"{text}: given up after {waited:.0f} s, as {LIMIT} says{causes}"


def _start() -> None:
    """Start the thread that looks; called under the lock."""
    if not _watchers:
        _watchers.append(threading.Thread(target=_watch, name="waiting", daemon=True))
        _watchers[0].start()


def _watch() -> None:
    while True:
        time.sleep(TICK_SECONDS)
        now = time.monotonic()
        with _lock:
            oldest = [
                (address, server, *next(iter(server.under_way.values())))
                for address, server in _servers.items()
                if server.under_way
            ]
        for address, server, began, ask in oldest:
            age = now - began
            if age < ASKED_SECONDS:
                continue
            if server.asking is not None and server.asking.is_alive():
                if now - server.asked >= TOLD_SECONDS - ASKED_SECONDS:
                    _tell(
                        address,
                        server,
                        "no answer, neither to a statement nor to a second connection: the server "
                        "may hang, or a pooler before it have no free connection",
                    )
            # more seldom the longer it takes
            elif now - server.asked >= max(ASKED_SECONDS, age / 2):
                server.asked = now
                server.asking = threading.Thread(
                    target=_ask, args=(address, server, ask), name="waits for whom", daemon=True
                )
                server.asking.start()


def _ask(address: str, server: _Server, ask: Ask) -> None:
    try:
        with bounded(time.monotonic() + LONGEST_QUESTION):
            sentences = list(ask())
    except Exception as error:
        sentences = [
            "a statement is under way for long, and may wait for a lock: the server does not tell "
            f"({describe(error)})"
        ]
    for sentence in sentences:
        _tell(address, server, sentence)


def _tell(address: str, server: _Server, sentence: str) -> None:
    now = time.monotonic()
    server.heard = {sentence: now, **{s: at for s, at in server.heard.items() if s != sentence}}
    if now - server.told.get(sentence, -math.inf) >= AGAIN_SECONDS:
        server.told[sentence] = now
        logger.warning("%s: %s", address, sentence)


@atexit.register
def _let_end() -> None:
    """Let the questions under way end: a driver that a process leaves in mid-call aborts it."""
    for server in [*_servers.values()]:
        if server.asking is not None:
            server.asking.join(LONGEST_QUESTION)


def _forget() -> None:
    """Make a forked child forget what its parent waits for."""
    _watchers.clear()
    _servers.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)
