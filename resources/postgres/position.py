"""Positions in the history of a cluster: its id, the timeline, and how far."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Self

from tableferry.resources.digest.same_rows import Ask
from tableferry.resources.errors import StatementFailed

POSITION_SQL = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
    CASE WHEN pg_is_in_recovery() THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()),
        (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_insert_lsn() END - '0/0')::text
"""
"""A standby knows a new timeline only after it has replayed the switch."""


@dataclass(frozen=True)
class Position:
    """A point in a cluster's history. A promoted standby begins a new timeline."""

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
        """The cluster and timeline in eight characters. Within one history, equal row versions and
        watermarks mean equal rows."""
        name = f"{self.cluster}/{self.timeline}".encode()
        return base64.urlsafe_b64encode(hashlib.blake2b(name, digest_size=6).digest()).decode()

    def compared_with(self, before: Position) -> str | None:
        """Why the source may lack what was read at `before`; None if it has only advanced."""
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


def position(ask: Ask) -> Position | None:
    """The server's position now; None if the login may not read it."""
    try:
        ((cluster, timeline, lsn),) = ask(POSITION_SQL)
    except StatementFailed as error:
        if error.transient:
            raise
        return None
    return Position(str(cluster), int(timeline), int(lsn))


def _lsn(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
