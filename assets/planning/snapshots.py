"""The snapshots that a run reads its source under, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers, require_servers
from tableferry.resources.contract.snapshots import HeldSnapshot, SharedSnapshot, Snapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import SourceMoved, TableferryError

Found = TypeVar("Found")

logger = logging.getLogger(__name__)

MOST_READINGS = 5
"""Maximum readings of a source that keeps being altered."""


class SnapshotTooOld(TableferryError):
    """A snapshot has passed its declared age, and ranges have to be read in one state."""


class SnapshotAge:
    """Tells when the snapshot of a run is older than the limits of its source allow, and ends it.

    Args:
        transfer: the transfer.
        first: its first hop.
        servers: the servers of its tables.
        shared: the snapshots of the run, if there are any.
    """

    def __init__(
        self, transfer: Transfer, first: Hop, servers: Servers, shared: SharedSnapshot | None
    ) -> None:
        self._transfer, self._first, self._shared = transfer, first, shared
        self._limits = servers.endpoint(transfer.source).limits
        self._told = False

    @property
    def oldest(self) -> float | None:
        """How many seconds old a snapshot may get; None if there is none, or it has to be kept."""
        if self._limits is None or self._shared is None or self._one_state is not None:
            return None
        return self._limits.oldest_snapshot

    @property
    def passed(self) -> bool:
        """Whether the snapshot is too old, and ranges may be read in different states.

        Raises:
            SnapshotTooOld: they have to be read in one, and a declared age was passed.
        """
        oldest = self._limits.oldest_snapshot if self._limits else None
        if oldest is None or self._shared is None or self._shared.age <= oldest:
            return False
        if (why := self._one_state) is None:
            return True
        too_old = (
            f"{self._transfer.source}: the snapshot is {self._shared.age:.0f} s old, more "
            f"than the oldest_snapshot of {oldest:g} s, and {why}"
        )
        if self._limits and "oldest_snapshot" in self._limits.declared:
            raise SnapshotTooOld(f"{too_old}; what is committed stays: raise the limit")
        if not self._told:
            self._told = True
            logger.warning("%s: it is kept until the run ends", too_old)
        return False

    def renew(self) -> None:
        """End the snapshot, under which nobody reads; a later state is read from now on."""
        assert self._shared is not None
        logger.info(
            "%s: the snapshot is %.0f s old and ends; what is read from now on is a later state",
            self._transfer.source,
            self._shared.age,
        )
        self._shared.renew()

    @property
    def _one_state(self) -> str | None:
        """Say why all ranges are read in one state of the source; None if they need not be."""
        transfer, key = self._transfer, self._first.plan.key.source
        if self._shared is not None and self._shared.state is not None:
            return "the tables of a set are read in one state"
        moving = f"rows may change range with {key.name!r}, which is not of the primary key"
        return transfer.read_in_one_state or (None if key.primary_key else moving)


@contextmanager
def shared_snapshot(
    transfer: Transfer, servers: Servers, joined: HeldSnapshot | None = None
) -> Iterator[SharedSnapshot | None]:
    """Hold one consistent view of the source for a run, if the source has one to share.

    Args:
        transfer: the transfer.
        servers: the servers of its tables.
        joined: a snapshot that another process holds, to share it.
    """
    require_servers(transfer, servers)
    source = transfer.source
    sending = source_of(source.system)
    sending.reach(servers.endpoint(source))
    endpoint = servers.endpoint(source)
    with sending.shared_snapshot(endpoint, source, joined, by_place=transfer.by_place) as shared:
        yield shared


def read_under(shared: SharedSnapshot | None, read: Callable[[Snapshot | None], Found]) -> Found:
    """Read under a snapshot that is still valid when the reading ends.

    Columns and types come from the current catalog, and must be those of the snapshot's tables.
    So `read` is repeated if tables were truncated, altered or replaced meanwhile.

    Raises:
        SourceMoved: the tables changed during each reading.
    """
    if shared is None:
        return read(None)
    for _ in range(MOST_READINGS):
        snapshot, losses = shared.name(), shared.losses
        try:
            result = read(snapshot)
        except TableferryError:
            shared.name()
            if shared.losses == losses:
                raise
        else:
            shared.name()
            if shared.losses == losses:
                return result
    raise SourceMoved("the source was truncated, altered or replaced each time it was read")
