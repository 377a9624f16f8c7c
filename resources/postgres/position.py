"""Where in a cluster's history a state of it is: which cluster, which timeline, how far."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tableferry.resources.errors import StatementFailed

POSITION_SQL = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
    CASE WHEN pg_is_in_recovery() THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()),
        (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_insert_lsn() END - '0/0')::text
"""
"""A primary knows its timeline at once, a standby once it has replayed the switch to it."""


@dataclass(frozen=True)
class Position:
    """A point in the history of a cluster. A promoted standby begins a timeline of its own."""

    cluster: str
    timeline: int
    lsn: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.timeline}/{self.lsn:X}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        cluster, timeline, lsn = text.split("/")
        return cls(cluster, int(timeline), int(lsn, 16))

    @property
    def history(self) -> str:
        """Which history it is in, in eight characters. Only within one do row versions and
        watermarks that are the same belong to the same rows."""
        name = f"{self.cluster}/{self.timeline}".encode()
        return base64.urlsafe_b64encode(hashlib.blake2b(name, digest_size=6).digest()).decode()

    def compared_with(self, before: Position) -> str | None:
        """What to say of a source that was at `before` when its rows were committed; None if it has
        only gone on since."""
        if self.cluster != before.cluster:
            return (
                f"it is the cluster {self.cluster}, and what was committed last was read from "
                f"{before.cluster}"
            )
        if self.timeline != before.timeline:
            return (
                f"it is on timeline {self.timeline}, and what was committed last was read from "
                f"timeline {before.timeline}: a standby was promoted, or a backup restored, and "
                "changes may be missing"
            )
        if self.lsn < before.lsn:
            return (
                f"it is at {_lsn(self.lsn)}, and what was committed last was read at "
                f"{_lsn(before.lsn)}: a standby that is {before.lsn - self.lsn:,} bytes behind"
            )
        return None


def position(ask: Callable[[str], list[tuple[Any, ...]]]) -> Position | None:
    """Where a server is now; None where it does not tell the login."""
    try:
        ((cluster, timeline, lsn),) = ask(POSITION_SQL)
    except StatementFailed as error:
        if error.transient:
            raise
        return None
    return Position(str(cluster), int(timeline), int(lsn))


def _lsn(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
