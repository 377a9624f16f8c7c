"""Which state of the source a run reads, and whether a range is still as its fingerprint says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from assets.declaring.manifest import Transfer
from assets.planning.resolve import Hop, Servers
from assets.planning.transfer_plan import TransferPlan, fingerprints_of
from resources.digest.measure import Taken
from resources.errors import PlacesLost, TableferryError
from resources.fingerprint import SourceFingerprint
from resources.keys.range import KeyRange
from resources.postgres.snapshots import SharedSnapshot
from resources.registry import system
from resources.tables import TableRef


class SourceMoved(TableferryError):
    """Rows of a range changed while they were copied; the range is copied again."""

    transient = True


class SourceUnreadable(TableferryError):
    """A range of the source cannot be read, while others can: a torn file."""


@dataclass(frozen=True)
class Reading:
    """What one attempt reads of a range, and under which snapshot.

    Only the first hop reads the transfer's source, which others write to. A later hop reads what
    the hop before it has committed: no snapshot is needed for that, and it does not move.
    """

    fingerprint: SourceFingerprint
    """Of the range in the transfer's source, whatever the hop."""
    snapshot: str | None = None
    of_source: bool = True
    """Whether it is the transfer's source that is read."""
    taken: Taken | None = None
    """The checksum of the rows that are read, where it is known already."""
    since: str | None = None
    """The condition on their watermarks, where not all rows are read."""

    @property
    def may_move(self) -> bool:
        """Whether the rows may change while they are read."""
        return self.of_source and self.snapshot is None

    @property
    def rows(self) -> int | None:
        """How many rows there must be; None where a write mode or a watermark decides it."""
        return self.fingerprint.rows if self.of_source and self.since is None else None

    @property
    def value(self) -> str | None:
        """The fingerprint of what is read; only sources have one."""
        return self.fingerprint.value if self.of_source else None


class SourceState:
    """The state of the source that a run copies.

    On PostgreSQL all ranges read one exported snapshot. If it is lost with its server, a new one
    takes its place, and the ranges that are read under it get their fingerprints from it.

    SQL Server has no snapshot that connections could share. There a range is fingerprinted again
    when it is copied, and copied again if it moved meanwhile.

    Args:
        plan: the transfer's, with the fingerprints that it was made from.
        servers: where the source is.
        shared: the run's snapshot; None where the source has none.
        snapshot: of `shared`, the one that the plan was made under.
    """

    def __init__(
        self,
        plan: TransferPlan,
        servers: Servers,
        shared: SharedSnapshot | None,
        snapshot: str | None,
    ) -> None:
        self._plan, self._servers, self._shared = plan, servers, shared
        self._lock = threading.Lock()
        self._latest = {
            name: Reading(fingerprint, snapshot, taken=fingerprint.taken)
            for name, fingerprint in plan.fingerprints.items()
        }
        self._committed: dict[tuple[TableRef, str], Taken] = {}
        self._apart: set[str] = set()
        """Ranges that are read as they are now, not under the snapshot."""

    @property
    def snapshot(self) -> str | None:
        """The one to read under now: a new one, should the run's have been lost with its server."""
        return self._shared.name() if self._shared else None

    def latest(self, name: str) -> Reading:
        """What a range of the source was read as most recently, or planned as."""
        with self._lock:
            return self._latest[name]

    def reading(self, hop: Hop, key_range: KeyRange) -> Reading:
        """What a hop is to read a range as now.

        Raises:
            ConnectionFailed: a new snapshot is needed, and the server is not back.
            PlacesLost: a new snapshot is needed, and of no use.
            SourceUnreadable: the source was found unreadable there.
        """
        latest = self.latest(key_range.name)
        if not hop.first:
            taken = self._committed.get((hop.plan.source, key_range.name))
            return Reading(latest.fingerprint, of_source=False, taken=taken)
        if latest.fingerprint.refused:
            raise SourceUnreadable(latest.fingerprint.refused)
        if self._shared is None or key_range.name in self._apart:
            return latest
        snapshot = self._shared.name()
        # not by name: a server that was restarted begins to count anew
        return latest if latest.snapshot is snapshot else self._read(key_range, snapshot)

    def rows(self, ranges: Sequence[KeyRange]) -> int | None:
        """How many rows these ranges have together under the snapshot that is read now; None where
        there is none, or where one of them was not read under it."""
        snapshot, rows = self.snapshot, 0
        if snapshot is None:
            return None
        with self._lock:
            for one in ranges:
                latest = self._latest.get(one.name)
                if latest is None or latest.snapshot is not snapshot:
                    return None
                rows += latest.fingerprint.rows
        return rows

    def committed(self, table: TableRef, key_range: KeyRange, taken: Taken) -> None:
        """Keep the checksum of what a hop commits to its target, for the hop that reads it next."""
        self._committed[table, key_range.name] = taken

    def require_unmoved(self, key_range: KeyRange, reading: Reading) -> None:
        """Make sure that a range is still what it was read as; a snapshot guarantees it.

        Raises:
            SourceMoved: it is not; the next `reading` knows what it is now.
            PlacesLost: it was read by the places of rows, which are others now.
        """
        if self._plan.transfer.placed and reading.of_source and self._shared is not None:
            self._shared.name()
        if not reading.may_move:
            return
        now = self._read(key_range, None).fingerprint
        if now != reading.fingerprint:
            raise SourceMoved(
                f"{self._plan.transfer.source} range {key_range.name} changed while it was "
                f"copied ({reading.fingerprint.rows} rows before, {now.rows} after)"
            )

    def read_again(self, key_range: KeyRange) -> None:
        """Have a range read as it is now: somebody else has published it from a later state of the
        source than the snapshot shows.

        Raises:
            PlacesLost: it is read by the places of rows, which have to be read in one state.
        """
        if self._plan.transfer.placed:
            raise PlacesLost(
                f"{self._plan.transfer.source} range {key_range.name}: another run has published "
                "it meanwhile, and ranges of blocks are read in one state; run it again"
            )
        self._apart.add(key_range.name)
        self._read(key_range, None)

    def _read(self, key_range: KeyRange, snapshot: str | None) -> Reading:
        found = fingerprints_of(
            self._plan.transfer,
            self._plan.hops[0],
            self._servers,
            [key_range],
            snapshot=snapshot,
        )[key_range.name]
        reading = Reading(found, snapshot, taken=found.taken)
        with self._lock:
            self._latest[key_range.name] = reading
        return reading


@contextmanager
def shared_snapshot(
    transfer: Transfer, servers: Servers, joined: str | None = None
) -> Iterator[SharedSnapshot | None]:
    """One consistent view of the source for a whole run, where it has one to share.

    Args:
        transfer: whose source.
        servers: where it is.
        joined: the name of the one that another process holds, to share that.
    """
    sending = system(transfer.source.system).as_source()
    placed = transfer.source if transfer.placed else None
    endpoint = servers.endpoint(transfer.source)
    with sending.shared_snapshot(endpoint, placed, joined) as shared:
        yield shared
