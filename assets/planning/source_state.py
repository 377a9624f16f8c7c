"""The state of the source that a run reads, and whether ranges still match their fingerprints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import SnapshotAge
from tableferry.assets.planning.transfer_plan import TransferPlan, fingerprints_of
from tableferry.resources import errors
from tableferry.resources.connecting.guard import going_on
from tableferry.resources.contract.fingerprint import KnownFigures, SourceFingerprint
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.digest.fingerprinting import with_content
from tableferry.resources.keys.range import KeyRange

POLL_SECONDS = 0.2
"""Between two looks at whether the run was stopped."""


class SourceUnreadable(errors.TableferryError):
    """A range of the source cannot be read while others can, e.g. a truncated file."""


@dataclass(frozen=True)
class Reading:
    """What an attempt reads of a range, and under which snapshot.

    Only the first hop reads the transfer's source, which others write to. A later hop reads what
    the previous hop has committed, which needs no snapshot: it has to be what that hop has proved.
    """

    fingerprint: SourceFingerprint
    """Fingerprint of the range in the transfer's source, whatever the hop."""
    snapshot: Snapshot | None = None
    of_source: bool = True
    """Whether the transfer's source is read."""
    source_figures: KnownFigures | None = None
    """The checksum of the rows that are read, if it is already known."""
    since: str | None = None
    """The condition on watermarks, if not all rows are read."""
    before: RangeRecord | None = None
    """What the hop before has recorded of the range last, if that is known."""

    @property
    def position(self) -> str | None:
        """The position in the source's history of writes."""
        return self.snapshot.position if self.snapshot is not None and self.of_source else None

    @property
    def is_live(self) -> bool:
        """Whether the rows may change while they are read."""
        return self.of_source and self.snapshot is None

    @property
    def rows(self) -> int | None:
        """The number of rows expected; None if a write mode or a watermark decides it."""
        return self.fingerprint.rows if self.of_source and self.since is None else None

    @property
    def value(self) -> str | None:
        """The fingerprint, if the transfer's source is read."""
        return self.fingerprint.value if self.of_source else None

    @property
    def row_versions(self) -> str | None:
        """The row versions that stand for this fingerprint, where they are known."""
        return self.fingerprint.row_versions or None if self.of_source else None

    @property
    def found_by(self) -> str | None:
        """What the fingerprint was found by; only sources have one."""
        return self.fingerprint.found_by if self.of_source else None


class SourceState:
    """The state of the source that a run copies.

    On PostgreSQL all ranges read one exported snapshot. If its server is lost, or the table is
    rewritten, a new one replaces it, under which the remaining ranges are fingerprinted again.

    SQL Server has no snapshot that connections could share. There a range is fingerprinted again
    when it is copied, and copied again if it changed meanwhile.

    Args:
        plan: the transfer's plan with its fingerprints, and the snapshots of the run.
        servers: the servers of its tables.
    """

    def __init__(self, plan: TransferPlan, servers: Servers) -> None:
        self._plan, self._servers = plan, servers
        self._shared = plan.shared
        self._lock = threading.Lock()
        self._latest = {
            name: Reading(
                fingerprint, plan.read_under.get(name), source_figures=fingerprint.source_figures
            )
            for name, fingerprint in plan.fingerprints.items()
        }
        self._apart: set[str] = set()
        """Ranges that are read in their current state, not under the snapshot."""
        self._alike = plan.snapshot
        """The newest snapshot under which the source has the planned columns."""
        self._moves = plan.shared.moves if plan.shared else 0
        self._age = SnapshotAge(plan.transfer, plan.hops[0], servers, self._shared)
        self._turn = threading.Condition()
        self._readers = 0
        """The ranges that are read under the snapshot now."""

    @property
    def shared(self) -> SharedSnapshot | None:
        """The run's snapshots."""
        return self._shared

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot to read under now: a new one if the run's was lost with its server."""
        return self._shared.name() if self._shared else None

    @property
    def state(self) -> str | None:
        """The state in which all tables of the run's set are read; None if it is of no set."""
        return self._shared.state if self._shared else None

    @property
    def snapshot_seconds(self) -> float | None:
        """How old the snapshot is that is read under now."""
        return self._shared.age if self._shared else None

    @contextmanager
    def turn(self, hop: Hop, waiting: Callable[[str], None]) -> Iterator[dict[str, float]]:
        """Hold the right to read a range: its snapshot stays as long.

        Before, wait for the source's guard; and end a snapshot that has passed its age, once nobody
        reads under it, so that a later state is read from now on.

        Yields:
            The seconds that were waited for the guard, by signal.

        Raises:
            SourceBusy: a signal of the source stayed above its bound.
            SnapshotTooOld: ranges have to be read in one state, and a declared age was passed.
        """
        if not hop.first:
            yield {}
            return

        def meanwhile(sentence: str) -> None:
            if sentence:
                waiting(sentence)
            with self._turn:
                if not self._readers and self._age.passed:
                    self._age.renew()

        waited = self._servers.endpoint(self._plan.transfer.source).guarded(meanwhile)
        require_going_on = going_on(self._plan.transfer.source.connection)
        with self._turn:
            while self._age.passed and self._readers:
                self._turn.wait(POLL_SECONDS)
                require_going_on()
            if self._age.passed:
                self._age.renew()
            self._readers += 1
        try:
            yield waited
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def latest(self, name: str) -> Reading:
        """Return the latest reading of a range of the source, or the planned one."""
        with self._lock:
            return self._latest[name]

    def reading(self, hop: Hop, key_range: KeyRange) -> Reading:
        """Return what a hop reads of a range now.

        Raises:
            ConnectionFailed: a new snapshot is needed, and the server is not back.
            PlacesLost: a new snapshot is needed, and of no use.
            SchemaDrift: the source's columns are not those that were planned any more.
            SourceMoved: the source was stored otherwise while the range was fingerprinted anew.
            SourceUnreadable: the source was found unreadable there.
        """
        latest = self.latest(key_range.name)
        if not hop.first:
            return Reading(latest.fingerprint, of_source=False)
        if latest.fingerprint.refused:
            raise SourceUnreadable(latest.fingerprint.refused)
        if self._shared is None or key_range.name in self._apart:
            return latest
        snapshot = self._shared.name()
        # not by name: a server that was restarted begins to count anew
        if latest.snapshot is snapshot:
            return latest
        self._require_same_columns(snapshot)
        latest = self._read(key_range, snapshot, as_sent=latest.fingerprint.unsent)
        snapshot.require_source_unchanged()
        return latest

    def asked(self, key_range: KeyRange, reading: Reading) -> Reading:
        """Return a reading with the digest that the source computes, which was yet to be sent."""
        return self._read(key_range, reading.snapshot)

    def sent(self, name: str, reading: Reading, used: str, figures: KnownFigures) -> Reading:
        """Return a reading with the figures of its rows, as these were sent.

        Args:
            name: the range.
            reading: what an attempt has read of it.
            used: the definition of the digest.
            figures: the number of rows, and the sum of their digests.
        """
        sent = replace(reading, source_figures=figures)
        if reading.fingerprint.unsent:
            sent = replace(sent, fingerprint=with_content(reading.fingerprint, used, figures))
            with self._lock:
                self._latest[name] = sent
        return sent

    def rows(self, ranges: Sequence[KeyRange]) -> int | None:
        """Return the rows of ranges under the current snapshot; None if one was read otherwise."""
        snapshot, rows = self.snapshot, 0
        if snapshot is None:
            return None
        with self._lock:
            for key_range in ranges:
                latest = self._latest.get(key_range.name)
                if latest is None or latest.snapshot is not snapshot:
                    return None
                rows += latest.fingerprint.rows
        return rows

    def require_source_unchanged(self, key_range: KeyRange, reading: Reading) -> None:
        """Verify that a range has not changed since it was read, or that its snapshot is valid.

        Raises:
            SourceMoved: the range has changed; the next `reading` has its new fingerprint.
            PlacesLost: the range was read by the places of rows, which have changed.
        """
        self.require_snapshot(reading)
        if not reading.is_live:
            return
        now = self._read(key_range, None).fingerprint
        if now != reading.fingerprint:
            raise errors.SourceMoved(
                f"{self._plan.transfer.source} range {key_range.name} changed while it was "
                f"copied ({reading.fingerprint.rows} rows before, {now.rows} after)"
            )

    def read_again(self, key_range: KeyRange) -> None:
        """Read a range in its current state: another writer has published it from a later state.

        Raises:
            PlacesLost: ranges are read by the places of rows, which requires one state for all.
            SetLost: the table is read in the state of its set.
        """
        if self.state is not None:
            raise errors.SetLost(
                f"{self._plan.transfer.source} range {key_range.name}: another run has published "
                "it meanwhile, perhaps from a later state than that of the set; run the set again"
            )
        if self._plan.transfer.by_place:
            raise errors.PlacesLost(
                f"{self._plan.transfer.source} range {key_range.name}: another run has published "
                "it meanwhile, and ranges of blocks are read in one state; run it again"
            )
        self._apart.add(key_range.name)
        self._read(key_range, None)

    def require_snapshot(self, reading: Reading) -> None:
        """Verify that the snapshot was valid while rows were read under it.

        Raises:
            SourceMoved: the table was rewritten or replaced.
            PlacesLost: rows were read by their places, which have changed.
        """
        if reading.snapshot is None or not reading.of_source:
            return
        if self._plan.transfer.by_place and self._shared is not None:
            self._shared.name()
        else:
            reading.snapshot.require_source_unchanged()

    def require_one_state(self) -> None:
        """Verify that all ranges since the last call were read in one state of the source.

        Raises:
            SourceMoved: the table was rewritten or replaced meanwhile.
        """
        if self.snapshot is None or self._shared is None:
            return
        before, self._moves = self._moves, self._shared.moves
        if before < self._moves:
            raise errors.SourceMoved(
                f"{self._plan.transfer.source} was truncated, rewritten, altered or replaced while "
                "its ranges were gathered"
            )

    def _require_same_columns(self, snapshot: Snapshot) -> None:
        if self._alike is snapshot:
            return
        source = self._plan.transfer.source
        now = {column.name: column for column in self._servers.endpoint(source).columns(source)}
        declared = self._plan.transfer.columns
        computed = {name for name, spec in declared.items() if spec.expression or spec.cast}
        columns = [column.source for column in self._plan.hops[0].plan.columns]
        planned = [column for column in columns if column.name not in computed]
        changed = [
            column.name
            for column in planned
            if (present := now.get(column.name)) != column or present.own_type != column.own_type
        ]
        if changed:
            raise errors.SchemaDrift(
                f"{source}: {', '.join(map(repr, changed))} {'is' if len(changed) == 1 else 'are'} "
                "not as planned any more: the table was altered or replaced meanwhile; run it again"
            )
        snapshot.require_source_unchanged()
        self._alike = snapshot

    def _read(
        self, key_range: KeyRange, snapshot: Snapshot | None, *, as_sent: bool = False
    ) -> Reading:
        fingerprint = fingerprints_of(
            self._plan.transfer,
            self._plan.hops[0],
            self._servers,
            [key_range],
            {**self._plan.recorded, key_range.name: self.latest(key_range.name).fingerprint},
            snapshot=snapshot,
            as_sent=(key_range.name,) if as_sent else (),
        )[key_range.name]
        if snapshot is None and self._shared is not None:
            # contents and versions were not read in one state
            fingerprint = replace(fingerprint, row_versions="")
        reading = Reading(fingerprint, snapshot, source_figures=fingerprint.source_figures)
        with self._lock:
            self._latest[key_range.name] = reading
        return reading
