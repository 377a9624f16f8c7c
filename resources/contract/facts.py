"""What this process has learned of its connections, so that no server is asked twice.

Server objects come and go: a session has its own, and Dagster makes them anew for every run. So a
fact belongs to the connection, that is to the address, database, user and options that lead there.

A fact holds for as long as the process lives; one that was learned of a certain version of
something, such as a file, until that has another. An error is not kept: it is asked again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")


@dataclass
class _Fact:
    lock: threading.Lock = field(default_factory=threading.Lock)
    version: Hashable = None
    answers: tuple[Any, ...] = ()
    """The answer; empty before there is one."""


class Facts:
    """The facts of one connection, by subject. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[Hashable, _Fact] = {}

    def known(
        self, subject: Hashable, ask: Callable[[], Answer], version: Hashable = None
    ) -> Answer:
        """What is known of a subject; asked for once, while others who want it wait.

        Args:
            subject: what the fact is about, unique among all that is learned of the connection.
            ask: finds the answer.
            version: of what the fact is about; an answer for another version does not count.
        """
        fact = self._fact(subject)
        with fact.lock:
            if not fact.answers or fact.version != version:
                fact.answers, fact.version = (ask(),), version
            return cast(Answer, fact.answers[0])

    def latest(self, subject: Hashable, usual: Answer) -> Answer:
        """What was noted of a subject last; `usual` if nothing was."""
        fact = self._fact(subject)
        return cast(Answer, fact.answers[0]) if fact.answers else usual

    def note(self, subject: Hashable, answer: object) -> None:
        """Replace what is known of a subject, for `latest`."""
        self._fact(subject).answers = (answer,)

    def _fact(self, subject: Hashable) -> _Fact:
        with self._lock:
            return self._facts.setdefault(subject, _Fact())


_connections: dict[Hashable, Facts] = {}
_lock = threading.Lock()


def facts_of(connection: Hashable) -> Facts:
    """The facts of a connection.

    Args:
        connection: what leads there, without secrets; see `ConnectionSettings.facts`.
    """
    with _lock:
        return _connections.setdefault(connection, Facts())
