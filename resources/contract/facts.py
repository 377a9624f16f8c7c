"""What this process has learned about its connections, so that no server is asked twice.

A fact belongs to the connection, that is to its address, database, user and options: server objects
are short-lived, as each session and each Dagster run makes its own. A fact holds for as long as the
process lives, or for one version of its subject, such as a file. Errors are not kept.
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
    """The only element is the answer; empty until there is one."""


class Facts:
    """The facts of one connection, by subject. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[Hashable, _Fact] = {}

    def known(
        self, subject: Hashable, ask: Callable[[], Answer], version: Hashable = None
    ) -> Answer:
        """Return the answer about a subject. One thread asks for it while the others wait.

        Args:
            subject: what the fact is about, unique within the connection.
            ask: finds the answer.
            version: the subject's version; an answer about another version does not count.
        """
        fact = self._fact(subject)
        with fact.lock:
            if not fact.answers or fact.version != version:
                fact.answers, fact.version = (ask(),), version
            return cast(Answer, fact.answers[0])

    def latest(self, subject: Hashable, default: Answer) -> Answer:
        """Return what was last noted about a subject, or the default."""
        fact = self._fact(subject)
        return cast(Answer, fact.answers[0]) if fact.answers else default

    def note(self, subject: Hashable, answer: object) -> None:
        """Replace what `latest` returns for a subject."""
        self._fact(subject).answers = (answer,)

    def _fact(self, subject: Hashable) -> _Fact:
        with self._lock:
            return self._facts.setdefault(subject, _Fact())


_connections: dict[Hashable, Facts] = {}
_lock = threading.Lock()


def facts_of(connection: Hashable) -> Facts:
    """The facts of a connection, which `ConnectionSettings.facts` identifies without secrets."""
    with _lock:
        return _connections.setdefault(connection, Facts())
