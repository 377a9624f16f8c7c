"""Which state of the source a run reads, and whether a range is still as its fingerprint says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop, Servers, require_servers
from tableferry.assets.planning.transfer_plan import TransferPlan, fingerprints_of
from tableferry.resources.contract.fingerprint import KnownFigures, SourceFingerprint
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import PlacesLost, SchemaDrift, SourceMoved, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

Found = TypeVar("Found")

MOST_READINGS = 5
"""Of a source that is altered again and again."""


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
    snapshot: Snapshot | None = None
    of_source: bool = True
    """Whether it is the transfer's source that is read."""
    source_figures: KnownFigures | None = None
    """The checksum of the rows that are read, where it is known already."""
    since: str | None = None
    """The condition on their watermarks, where not all rows are read."""

    @property
    def position(self) -> str | None:
        """Where in its history the source was."""
        return self.snapshot.position if self.snapshot is not None and self.of_source else None

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

    On PostgreSQL all ranges read one exported snapshot. If it is lost with its server, or the table
    is stored otherwise, a new one takes its place, and the ranges that are read under it get their
    fingerprints from it.

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
        snapshot: Snapshot | None,
    ) -> None:
        self._plan, self._servers, self._shared = plan, servers, shared
        self._lock = threading.Lock()
        self._latest = {
            name: Reading(fingerprint, snapshot, source_figures=fingerprint.source_figures)
            for name, fingerprint in plan.fingerprints.items()
        }
        self._committed: dict[tuple[TableRef, str], KnownFigures] = {}
        self._apart: set[str] = set()
        """Ranges that are read as they are now, not under the snapshot."""
        self._alike = snapshot
        """The newest snapshot under which the source has the columns that were planned."""
        self._moves = shared.moves if shared else 0

    @property
    def shared(self) -> SharedSnapshot | None:
        """What hands out the snapshot."""
        return self._shared

    @property
    def snapshot(self) -> Snapshot | None:
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
            SchemaDrift: the source's columns are not those that were planned any more.
            SourceMoved: the source was stored otherwise while the range was fingerprinted anew.
            SourceUnreadable: the source was found unreadable there.
        """
        latest = self.latest(key_range.name)
        if not hop.first:
            figures = self._committed.get((hop.plan.source, key_range.name))
            return Reading(latest.fingerprint, of_source=False, source_figures=figures)
        if latest.fingerprint.refused:
            raise SourceUnreadable(latest.fingerprint.refused)
        if self._shared is None or key_range.name in self._apart:
            return latest
        snapshot = self._shared.name()
        # not by name: a server that was restarted begins to count anew
        if latest.snapshot is snapshot:
            return latest
        self._require_same_columns(snapshot)
        latest = self._read(key_range, snapshot)
        snapshot.require_unmoved()
        return latest

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

    def committed(self, table: TableRef, key_range: KeyRange, figures: KnownFigures) -> None:
        """Keep the checksum of what a hop commits to its target, for the hop that reads it next."""
        self._committed[table, key_range.name] = figures

    def require_unmoved(self, key_range: KeyRange, reading: Reading) -> None:
        """Make sure that a range is still what it was read as, or what its snapshot shows.

        Raises:
            SourceMoved: it is not; the next `reading` knows what it is now.
            PlacesLost: it was read by the places of rows, which are others now.
        """
        self.require_standing(reading)
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

    def require_standing(self, reading: Reading) -> None:
        """Make sure that what was read under a snapshot until now is what it shows.

        Raises:
            SourceMoved: the source is stored otherwise.
            PlacesLost: it was read by the places of rows, which are others now.
        """
        if reading.snapshot is None or not reading.of_source:
            return
        if self._plan.transfer.placed and self._shared is not None:
            self._shared.name()
        else:
            reading.snapshot.require_unmoved()

    def require_one_state(self) -> None:
        """Make sure that all ranges since the last call were read in one state of the source.

        Raises:
            SourceMoved: it was stored otherwise meanwhile.
        """
        if self.snapshot is None or self._shared is None:
            return
        before, self._moves = self._moves, self._shared.moves
        if before < self._moves:
            raise SourceMoved(
                f"{self._plan.transfer.source} was truncated, rewritten, altered or replaced while "
                "its ranges were gathered"
            )

    def _require_same_columns(self, snapshot: Snapshot) -> None:
        if self._alike is snapshot:
            return
        source = self._plan.transfer.source
        now = {one.name: one for one in self._servers.endpoint(source).columns(source)}
        planned = [one.source for one in self._plan.hops[0].plan.columns]
        changed = [
            column.name
            for column in planned
            if (found := now.get(column.name)) != column or found.own_type != column.own_type
        ]
        if changed:
            raise SchemaDrift(
                f"{source}: {', '.join(map(repr, changed))} {'is' if len(changed) == 1 else 'are'} "
                "not as planned any more: the table was altered or replaced meanwhile; run it again"
            )
        snapshot.require_unmoved()
        self._alike = snapshot

    def _read(self, key_range: KeyRange, snapshot: Snapshot | None) -> Reading:
        found = fingerprints_of(
            self._plan.transfer,
            self._plan.hops[0],
            self._servers,
            [key_range],
            snapshot=snapshot,
        )[key_range.name]
        reading = Reading(found, snapshot, source_figures=found.source_figures)
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
    require_servers(transfer, servers)
    source = transfer.source
    sending, endpoint = source_of(source.system), servers.endpoint(source)
    with sending.shared_snapshot(endpoint, source, joined, placed=transfer.placed) as shared:
        yield shared


def read_under(shared: SharedSnapshot | None, read: Callable[[Snapshot | None], Found]) -> Found:
    """What is found under a snapshot that still stands when that is done.

    Columns and types are of the catalog as it is when it is asked: they have to be those of the
    tables that the snapshot shows.

    Args:
        shared: hands out the snapshot.
        read: done again if tables were truncated, altered or replaced meanwhile.

    Raises:
        SourceMoved: they are, each time.
    """
    if shared is None:
        return read(None)
    for _ in range(MOST_READINGS):
        snapshot = shared.name()
        try:
            found = read(snapshot)
        except TableferryError:
            if shared.name() is snapshot:
                raise
        else:
            if shared.name() is snapshot:
                return found
    raise SourceMoved("the source was truncated, altered or replaced each time it was read")
