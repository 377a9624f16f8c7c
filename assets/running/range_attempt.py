"""One attempt to take a key range through a hop."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.changes.drift import column_lineage, column_schema
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.planning.source_state import Reading
from tableferry.assets.running.work import Earlier, Work
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import TableSide
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import Target
from tableferry.resources.digest.measure import CHANGED
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class RangeAttempt:
    """One key range on its way through one hop."""

    work: Work
    hop: Hop
    key_range: KeyRange
    reading: Reading
    """What the attempt reads of the hop's source."""
    decision: Decision
    """What was decided about the range."""
    number: int = 1
    """Number of the attempt on this range and hop in the run, from 1."""
    proven: Proven | None = None
    """`incremental`: the proven state that was recorded of the range, or will be."""
    whole_because: str | None = None
    """Why moving the newer rows, or those that differ, did not suffice."""
    waited: dict[str, float] = field(default_factory=dict)
    """The seconds that were waited for signals of the source."""

    @property
    def name(self) -> str:
        """The range's partition key."""
        return self.key_range.name

    @property
    def is_as_planned(self) -> bool:
        """Whether the source is as it was when the range was decided about."""
        return self.reading.fingerprint == self.work.plan.fingerprints[self.name]

    @property
    def data_version(self) -> str:
        """The data version that the range is committed with."""
        return str(self.work.plan.version(self.hop, self.reading.fingerprint))

    @property
    def source(self) -> Endpoint:
        """The endpoint that the hop reads from."""
        return self.work.servers.endpoint(self.hop.plan.source)

    @property
    def target(self) -> Endpoint:
        """The endpoint that the hop writes to."""
        return self.work.servers.endpoint(self.hop.plan.target)

    def comparison(self, table: TableRef) -> Comparison:
        """Both sides of the range: its source as it was read, and the rows of a table.

        Args:
            table: the staging table, the shadow table or the target.
        """
        figures = self.reading.source_figures
        # they are of all rows: rejected ones may be mended, and become others
        known = {} if figures is None or self.hop.plan.fitting else {self.name: figures}
        return Comparison(
            self.work.observed(self.hop, table),
            self.source,
            self.target,
            [self.key_range],
            self.reading.snapshot,
            known,
        )

    @property
    def source_side(self) -> TableSide:
        """The table that the hop reads from, as it was read."""
        return TableSide(self.hop.plan, "source", self.source, self.reading.snapshot)

    def lost(self) -> dict[str, int]:
        """Count the values of which a declared cast loses part, by column."""
        columns = self.hop.plan.columns
        return self._counted({each.target.name: each.lossy for each in columns if each.lossy})

    def changed(self) -> dict[str, Any]:
        """Return the fields of a record that say what all of the range's values lose, or are
        changed by `on_overflow`, as the source's SQL counts it."""
        changed = self.comparison(self.hop.plan.target).changed
        return {"counts": self._counted(changed), "cast": self.lost()}

    def _counted(self, conditions: Mapping[str, str]) -> dict[str, int]:
        if not conditions:
            return {}
        source = self.source_side
        figures = source.total(source.rows_in([self.key_range]), conditions)
        return {name: number for name, number in figures.get(CHANGED, {}).items() if number}

    @property
    def loader(self) -> Target:
        """The target that loads and publishes rows there."""
        return self.work.loaders[self.hop.number]

    @property
    def writer(self) -> Writer:
        """The writer of the hop's records."""
        return self.work.writers[self.hop.number]

    @property
    def shadow(self) -> str | None:
        """With `swap`, the identity of the shadow table."""
        return self.work.shadows[self.hop.number]

    @property
    def asked(self) -> RangeAttempt:
        """The attempt with the digest that the source's server computes of its rows."""
        reading = self.work.source.asked(self.key_range, self.reading)
        return replace(self, reading=reading)

    def tell(self, phase: str, rows: int = 0) -> None:
        """Report that a phase begins, or has processed more rows."""
        self.work.tell(self.hop, self.name, phase, rows)

    def message(self, problem: str) -> str:
        """Prefix a problem with transfer, target and range."""
        return self.work.message(self.hop, self.name, problem)

    @property
    def publication(self) -> Publication:
        """How the target publishes the range."""
        known, work = self.work.published(self.hop, self.name), self.work
        version = self.data_version
        return Publication(self.hop.plan, self.key_range, version, work.owner, work.home, known)

    @property
    def marked_by_moving(self) -> bool:
        """Whether only a move can write the marker of the range's data version.

        Rows that another run has announced may come after they were compared: a move takes the
        range from it.
        """
        known = self.work.published(self.hop, self.name)
        marker = known.of_target.get(self.name) if known is not None else None
        announced = marker is not None and marker.announced
        return announced or (self._markers_in_files and not self._marked)

    @property
    def _markers_in_files(self) -> bool:
        return self.hop.plan.target.system.by_path is not None

    @property
    def _marked(self) -> bool:
        """Whether the range's marker has the data version already, or the target has no markers."""
        known = self.work.published(self.hop, self.name)
        if known is None:
            return True
        marker = known.of_target.get(self.name)
        return marker is not None and marker.version == self.data_version

    def marking(self, *, always: bool = False) -> AbstractContextManager[None]:
        """Lock the range while it is recorded without a move, and update its marker.

        With `always`, also if the marker has the data version already, where markers are not part
        of the rows.
        """
        known = self.work.published(self.hop, self.name)
        if known is None or (self._marked and (self._markers_in_files or not always)):
            return nullcontext()
        return self.loader.marking(self.publication, self.hop.options, self.work.alive)

    def pause(self) -> None:
        """Wait while a signal of the source is above its bound, in the middle of its rows."""
        if not self.hop.first:
            return
        for name, seconds in self.source.guarded(self.tell_waiting, beside=True).items():
            self.waited[name] = self.waited.get(name, 0.0) + seconds

    def tell_waiting(self, sentence: str) -> None:
        """Report that the attempt waits; '' says nothing new."""
        if sentence:
            self.tell(sentence)

    def of_source(self, copied: float = 0.0, statement: float = 0.0) -> dict[str, Any]:
        """Return the fields of a record that say what reading the range cost the source.

        Args:
            copied: the seconds in which the source sent the rows.
            statement: how long its statement was under way.
        """
        seen, first = self.reading.fingerprint, self.hop.first
        return {
            "source_seconds": copied + (seen.source_seconds if first else 0.0),
            "longest_statement": max(statement, seen.statement_seconds if first else 0.0),
            "snapshot_seconds": self.work.source.snapshot_seconds if first else None,
            "waited": {**self.waited},
        }

    def require_source_unchanged(self) -> None:
        """Raise `SourceMoved` if the source has changed since it was read."""
        self.work.source.require_source_unchanged(self.key_range, self.reading)

    def require_snapshot(self) -> None:
        """Raise `SourceMoved` if the snapshot is no longer valid: before rows become visible."""
        self.work.source.require_snapshot(self.reading)

    def record(self, state: State, **more: Any) -> RangeRecord:
        """Return the record of the range; `more` are fields of it."""
        return RangeRecord(
            range=self.name,
            state=state,
            data_version=self.data_version,
            run_id=self.work.run_id,
            source_snapshot=self.work.source.state if self._proves_state else None,
            **{**self._origin, **more},
        )

    def record_of_move(self, state: State, **more: Any) -> RangeRecord:
        """Return the record of a move, with servers, and columns where they are shown or new."""
        return self.record(
            state,
            fingerprint=self.reading.value,
            row_versions=self.reading.row_versions,
            segments=self.reading.fingerprint.segments,
            source_position=self.reading.position,
            **self._servers,
            attempts=self.number,
            since=self.reading.since,
            whole_because=self.whole_because,
            **(self._columns if self._shows_columns else {}),
            **{**self.of_source(), **more},
        )

    @property
    def recorded(self) -> RangeRecord | None:
        """What earlier runs have recorded of the rows that are there; None if nothing of them may
        be otherwise than in the source."""
        return self._earlier.records.get(self.name)

    def record_of_skip(self) -> RangeRecord:
        """Return the record of a range that was not moved."""
        before = self.recorded
        return self.record(
            State.SKIPPED_UNCHANGED,
            rows=before.rows if before and self._rejects else self.reading.fingerprint.rows,
            quarantined=before.quarantined if before else None,
            fingerprint=self.reading.value if self.reading.row_versions else None,
            row_versions=self.reading.row_versions,
            segments=self.reading.fingerprint.segments,
            unchanged_by=self.reading.found_by,
            **self.of_source(),
            source_position=self.reading.position,
            proven=self.proven,
            counts=before.counts if before else {},
            cast=before.cast if before else {},
            not_filled=before.not_filled if before else (),
            **self._origin_before,
            **(self._columns | self._servers if self.work.near_end else {}),
        )

    def with_unfilled(self, record: RangeRecord) -> RangeRecord:
        """Return the record of a move with the columns that are not filled in some of its rows."""
        kept, before = self._earlier.kept, self.recorded
        if not kept or not record.rows:
            return record
        earlier, new = before.not_filled if before else (), self._wrote_new(record)
        names = tuple(column.name for column in kept if new or column.name in earlier)
        return replace(record, not_filled=names)

    def _wrote_new(self, record: RangeRecord) -> bool:
        """Whether a move has written rows that got only the plan's columns."""
        before = self.recorded
        in_place = loader_of(self.hop.plan.target.system).updates_in_place
        if record.inserted is not None:
            return bool(record.inserted or (record.updated and not in_place))
        if self.hop.options.replaces(self.hop.plan) or not (in_place and before):
            return bool(record.rows_of_move)
        return (record.rows or 0) > (before.rows or 0)

    @property
    def _origin(self) -> dict[str, str | None]:
        """Who has written the range's rows, and those that they were taken from, in a chain."""
        before, last = self.reading.before, self.hop.number == len(self.work.plan.hops)
        return {
            "written_by": None if last else self.work.run_id,
            "taken_from": before.written_by if before else None,
        }

    @property
    def _origin_before(self) -> dict[str, str | None]:
        """The same of rows that stay, which may have been compared with their source again."""
        if self.decision.reason is Reason.TARGET_MOVED:
            return {}  # somebody else has written them
        before = self.reading.before
        taken_from = self._origin["taken_from"] if before else self.decision.taken_from
        return {"written_by": self.decision.written_by, "taken_from": taken_from}

    @property
    def _rejects(self) -> bool:
        """Whether a target may be without some rows of the source."""
        return self.work.plan.transfer.on_reject == "quarantine"

    @property
    def _proves_state(self) -> bool:
        """Whether the range is proven as of the source's present state.

        A fingerprint that does not see every change proves nothing about rows that stay.
        """
        if self.work.plan.transfer.sees_all_changes:
            return True
        return not self.decision.reason.needs_no_move and self.reading.since is None

    @property
    def _earlier(self) -> Earlier:
        return self.work.earlier.get(self.hop.number, Earlier())

    @property
    def _shows_columns(self) -> bool:
        """Whether the record of a move has the columns; in all records they would fill the log.

        Dagster shows those of an asset's newest materialization: one of a run's last ranges. The
        run's first commit has them as well, as the run may not get to its last ranges.
        """
        return self.name in self.work.last_ranges or self.hop.number not in self.work.showed_columns

    @property
    def columns_at_end(self) -> dict[str, Any]:
        """The columns, for a commit that may be the run's last, whose columns Dagster shows."""
        return self._columns if self.work.near_end else {}

    @property
    def _servers(self) -> dict[str, Any]:
        plan, identities = self.hop.plan, self.work.identities
        return {
            "source_server": identities[plan.source.connection],
            "target_server": identities[plan.target.connection],
        }

    @property
    def _columns(self) -> dict[str, Any]:
        plan, kept, transfer = self.hop.plan, self._earlier.kept, self.work.plan.transfer
        computed = {
            transfer.target_name(name, self.hop.number)
            for name, spec in transfer.columns.items()
            if spec.expression
        }
        return {
            "schema": column_schema(plan, self.key_range.kind, computed, kept),
            "lineage": column_lineage(plan, kept),
        }
