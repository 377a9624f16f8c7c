"""One attempt to take one key range through one hop, with all that it needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tableferry.assets.log.records import Proven, RangeRecord, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.drift import column_lineage, column_schema
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.source_state import (
    Reading,
)
from tableferry.assets.running.work import Earlier, Work
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import Target
from tableferry.resources.keys.range import KeyRange


@dataclass(frozen=True)
class RangeAttempt:
    """One key range on its way through one hop."""

    work: Work
    hop: Hop
    key_range: KeyRange
    reading: Reading
    """What it reads of the hop's source."""
    number: int = 1
    """Which attempt of the run on this range and hop it is, from 1."""
    proven: Proven | None = None
    """`incremental`: what was recorded of the range, or is to be."""
    whole_because: str | None = None
    """`incremental`: why its newer rows were not enough."""

    @property
    def name(self) -> str:
        """Of the range: its partition key."""
        return self.key_range.name

    @property
    def data_version(self) -> str:
        """What the range is committed as."""
        return str(self.work.plan.version(self.hop, self.reading.fingerprint))

    @property
    def source(self) -> Endpoint:
        """Where the hop reads."""
        return self.work.servers.endpoint(self.hop.plan.source)

    @property
    def target(self) -> Endpoint:
        """Where the hop writes."""
        return self.work.servers.endpoint(self.hop.plan.target)

    @property
    def loader(self) -> Target:
        """What writes there."""
        return self.work.loaders[self.hop.number]

    @property
    def writer(self) -> Writer:
        """What records the hop's ranges."""
        return self.work.writers[self.hop.number]

    @property
    def shadow(self) -> str | None:
        """With `swap`, the identity of the table that the hop gathers ranges in."""
        return self.work.shadows[self.hop.number]

    def tell(self, phase: str, rows: int = 0) -> None:
        """Say that a phase begins, or how many more rows of it have gone."""
        self.work.tell(self.hop, self.name, phase, rows)

    def message(self, problem: str) -> str:
        """A problem, with where it is."""
        return self.work.message(self.hop, self.name, problem)

    @property
    def publication(self) -> Publication:
        """What the target is to publish the range as."""
        known, work = self.work.published(self.hop, self.name), self.work
        version = self.data_version
        return Publication(self.hop.plan, self.key_range, version, work.owner, work.home, known)

    @property
    def marked_by_moving(self) -> bool:
        """Whether nothing but a move can have its marker say what is to be recorded."""
        known = self.work.published(self.hop, self.name)
        return known is not None and known.with_rows and not self._marked

    @property
    def _marked(self) -> bool:
        """Whether the marker, if the target has any, says so already."""
        known = self.work.published(self.hop, self.name)
        if known is None:
            return True
        marker = known.of_target.get(self.name)
        return marker is not None and marker.version == self.data_version

    def marking(self) -> AbstractContextManager[None]:
        """Hold the range while it is recorded without a move, and have its marker say so, too."""
        if self._marked:
            return nullcontext()
        return self.loader.marking(self.publication, self.hop.options, self.work.alive)

    def require_unmoved(self) -> None:
        """Raise `SourceMoved` if what was read is not there any more: a difference may be that."""
        self.work.source.require_unmoved(self.key_range, self.reading)

    def require_standing(self) -> None:
        """Raise `SourceMoved` if what was read need not be what the snapshot shows: before what was
        read becomes visible, or counts."""
        self.work.source.require_standing(self.reading)

    def record(self, state: State, **more: Any) -> RangeRecord:
        """What the event log is to say of it; `more` are fields of the record."""
        return RangeRecord(
            range=self.name,
            state=state,
            data_version=self.data_version,
            run_id=self.work.run_id,
            **more,
        )

    def record_of_move(self, state: State, **more: Any) -> RangeRecord:
        """The same of rows that were moved: also from where to where, and which columns."""
        plan = self.hop.plan
        return self.record(
            state,
            fingerprint=self.reading.value,
            source_position=self.reading.position,
            source_server=self.work.identities[plan.source.connection],
            target_server=self.work.identities[plan.target.connection],
            attempts=self.number,
            since=self.reading.since,
            whole_because=self.whole_because,
            not_filled=self._earlier.not_filled,
            **self._columns,
            **more,
        )

    def record_of_skip(self) -> RangeRecord:
        """The same of rows that stay as they are.

        Of columns, Dagster shows what an asset's newest materialization says. So the last ranges
        of a run say it; all would fill the event log.
        """
        before = self._earlier.records.get(self.name)
        return self.record(
            State.SKIPPED_UNCHANGED,
            rows=self.reading.fingerprint.rows,
            source_position=self.reading.position,
            proven=self.proven,
            counts=before.counts if before else {},
            not_filled=before.not_filled if before else (),
            **(self._columns if self.name in self.work.last_ranges else {}),
        )

    @property
    def _earlier(self) -> Earlier:
        return self.work.earlier.get(self.hop.number, Earlier())

    @property
    def _columns(self) -> dict[str, Any]:
        plan = self.hop.plan
        return {"schema": column_schema(plan), "lineage": column_lineage(plan)}
