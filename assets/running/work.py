"""What the attempts of one run share, and what becomes of each range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tableferry.assets.log.records import RangeRecord, Reason, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.decisions import Decision
from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.assets.planning.source_state import (
    SourceState,
)
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.progress import OnProgress, Progress
from tableferry.checks.verdict import Level, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Published
from tableferry.resources.contract.target import Target
from tableferry.resources.digest.fields import observed, with_columns
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Outcome:
    """What became of one range in one hop."""

    hop: Hop
    record: RangeRecord
    reason: Reason
    verdicts: tuple[Verdict, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the range is committed, was and is, or waits for its swap."""
        return self.record.state.in_target or self.record.state is State.SHADOWED


@dataclass(frozen=True)
class Earlier:
    """What earlier runs have left in a hop's target, as far as those records say which tell of
    values that are not the source's."""

    records: Mapping[str, RangeRecord] = field(default_factory=dict)
    """By range."""
    not_filled: tuple[str, ...] = ()
    """Columns that were filled once, and that rows are moved without now."""


@dataclass
class Work:
    """All that the attempts of one run share.

    `exports` and `loads` bound how many ranges are read and written at a time. A range takes its
    export slot first, reads a little ahead, and then waits for a load slot; it never waits for an
    export slot while it holds a load slot, so the two cannot deadlock.
    """

    plan: TransferPlan
    servers: Servers
    run_id: str
    owner: str
    """The run as its locks name it."""
    home: str
    """The event log, as markers name it."""
    alive: Callable[[str], bool]
    source: SourceState
    levels: tuple[Level, ...]
    batch_rows: int
    workers: int
    writers: Mapping[int, Writer]
    identities: Mapping[str, str]
    """The servers that the run works with, for its records."""
    shadows: Mapping[int, str | None]
    """Identities of the tables that a swap gathers ranges in, by hop."""
    decided: Mapping[int, Mapping[str, Decision]]
    """What was planned of each range, by number of the hop and name."""
    refused: Mapping[tuple[int, str], str]
    """Why a range cannot go through a hop, by number of the hop and name."""
    on_progress: OnProgress
    exports: threading.BoundedSemaphore
    loads: threading.BoundedSemaphore
    loaders: Mapping[int, Target]
    """What writes to the targets, which it has prepared, by number of the hop."""
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    """What earlier runs have left, by number of the hop."""
    stop: threading.Event = field(default_factory=threading.Event)
    _published: dict[tuple[int, str], Published | None] = field(default_factory=dict)
    _observed: dict[tuple[int, TableRef | None], CopyPlan] = field(default_factory=dict)
    _observing: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def last_ranges(self) -> frozenset[str]:
        """As many as there are workers: one of them is the last to end."""
        return frozenset([*self.plan.ranges][-self.workers :])

    def published(self, hop: Hop, name: str) -> Published | None:
        """The markers that a range goes by."""
        return self._published.get((hop.number, name), self.plan.published.get(hop.number))

    def look_again(self, hop: Hop, key_range: KeyRange) -> None:
        """Read the markers anew, and after them the source: somebody else has published a range."""
        found = self.loaders[hop.number].published(hop.plan, hop.options)
        before = self.plan.published.get(hop.number)
        if found is not None and before is not None:
            found = replace(found, transfer_ranges=before.transfer_ranges)
        self._published[hop.number, key_range.name] = found
        self.source.read_again(key_range)

    def looked_again(self, hop: Hop, name: str) -> bool:
        """Whether somebody else has published the range since it was planned."""
        return (hop.number, name) in self._published

    def observed(self, hop: Hop, table: TableRef) -> CopyPlan:
        """The hop's plan with the columns of a table that it writes to, as its catalog has them.

        The staging tables of a run are alike, so that only the first is looked at.
        """
        own = table in (hop.plan.target, hop.written_plan.target)
        key = hop.number, table if own else None
        with self._observing:
            if key not in self._observed:
                if own:
                    here = table == hop.plan.target
                    plan = hop.found_plan if here else replace(hop.plan, target=table)
                    self._observed[key] = observed(plan, self.servers.endpoint(table))
                else:
                    columns = self.loaders[hop.number].staged_columns(hop.plan, table)
                    self._observed[key] = with_columns(replace(hop.plan, target=table), columns)
            return replace(self._observed[key], target=table, where=hop.plan.where)

    def tell(self, hop: Hop, name: str, phase: str, rows: int = 0) -> None:
        """Say that a phase of a range begins, or how many more rows of it have gone."""
        transfer, target = self.plan.transfer.transfer, str(hop.plan.target)
        self.on_progress(Progress(transfer, target, name, phase, rows))

    def message(self, hop: Hop, name: str, problem: str) -> str:
        """A problem of one range, with where it is."""
        return f"{self.plan.transfer.transfer}: {hop.plan.target} range {name}: {problem}"
