"""What the attempts of a run share, and their outcomes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from tableferry.assets.log.ledger import latest_record
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.log.written_columns import WrittenColumn
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.source_state import SourceState
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.progress import OnProgress, Progress, ignore_progress
from tableferry.checks.levels import Level
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Published
from tableferry.resources.contract.target import Target
from tableferry.resources.digest.fields import observed, with_columns
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import TableMissing
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

ASKED_OF = 50
"""The server is asked as well about one in this many of the ranges that are digested as sent."""


@dataclass(frozen=True)
class RangeOutcome:
    """The outcome of one range in one hop."""

    hop: Hop
    record: RangeRecord
    reason: Reason
    verdicts: tuple[Verdict, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the range is in the target, or gathered for a swap."""
        return self.record.state.in_target or self.record.state is State.SHADOWED

    @property
    def rows_there(self) -> int | None:
        """The rows that the target has in the range, if they were counted."""
        return int(self.verdicts[0].target[ROWS]) if self.verdicts else None


@dataclass(frozen=True)
class Earlier:
    """What earlier runs have recorded of values in a hop's target that are not the source's."""

    records: Mapping[str, RangeRecord] = field(default_factory=dict)
    """Records by range."""
    kept: tuple[WrittenColumn, ...] = ()
    """Columns that earlier runs filled, and that rows are moved without now."""


@dataclass
class Work:
    """What the attempts of a run share.

    `exports` and `loads` limit how many ranges are read and written at a time. A range takes its
    export slot first and then waits for a load slot; it never waits for an export slot while it
    holds a load slot, so the two cannot deadlock.
    """

    plan: TransferPlan
    servers: Servers
    log: Log
    source: SourceState
    levels: tuple[Level, ...]
    workers: int
    run_id: str = ""
    """Empty if nothing is written or recorded, which the fields from here on are for."""
    owner: str = ""
    """The name that the run writes into its locks."""
    home: str = ""
    """The name of the event log that the run writes into markers."""
    alive: Callable[[str], bool] = bool
    batch_rows: int = 0
    writers: Mapping[int, Writer] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    """Servers and their versions by connection, for records."""
    shadows: Mapping[int, str | None] = field(default_factory=dict)
    """Identities of the shadow tables, by hop number."""
    refused: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """Why a hop cannot take a range, by hop number and range."""
    on_progress: OnProgress = ignore_progress
    exports: threading.BoundedSemaphore = field(default_factory=threading.BoundedSemaphore)
    loads: threading.BoundedSemaphore = field(default_factory=threading.BoundedSemaphore)
    loaders: Mapping[int, Target] = field(default_factory=dict)
    """The targets, prepared, by hop number."""
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    """Earlier records by hop number."""
    showed_columns: set[int] = field(default_factory=set)
    """Hops of which a range has been recorded with its columns, by number."""
    ended: list[str] = field(default_factory=list)
    """The ranges that have been through all hops, or have failed."""
    stop: threading.Event = field(default_factory=threading.Event)
    _sent: Iterator[int] = field(default_factory=count)
    _published: dict[tuple[int, str], Published | None] = field(default_factory=dict)
    _observed: dict[tuple[int, TableRef | None], CopyPlan] = field(default_factory=dict)
    _observing: dict[tuple[int, TableRef | None], threading.Lock] = field(default_factory=dict)
    """Held while the catalog is asked of one of these; others go on."""

    @cached_property
    def last_ranges(self) -> frozenset[str]:
        """As many ranges as there are workers: one of them is recorded last."""
        return frozenset([*self.plan.ranges][-self.workers :])

    def asks_too(self) -> bool:
        """Whether the server is asked for the digest of the next range that was digested as it was
        sent: of the run's first one, and of some others by chance."""
        return next(self._sent) == 0 or random.random() * ASKED_OF < 1

    @property
    def near_end(self) -> bool:
        """Whether no range waits for a worker any more: one of those under way is recorded last."""
        return len(self.plan.ranges) - len(self.ended) <= self.workers

    def hop_before(self, hop: Hop) -> Hop:
        """Return the hop that writes the source of a later hop."""
        return self.plan.hops[hop.number - 2]

    def recorded_before(self, hop: Hop, name: str) -> RangeRecord | None:
        """Return what the hop before has recorded of a range last."""
        return latest_record(self.log, self.hop_before(hop).spec.to, name)

    def published(self, hop: Hop, name: str) -> Published | None:
        """Return the markers that apply to a range."""
        return self._published.get((hop.number, name), self.plan.published.get(hop.number))

    def refresh(self, hop: Hop, key_range: KeyRange) -> None:
        """Read the markers, and after them the source: another writer has published the range."""
        published = self.loaders[hop.number].published(hop.plan, hop.options)
        planned = self.plan.published.get(hop.number)
        if published is not None and planned is not None:
            published = replace(published, transfer_ranges=planned.transfer_ranges)
        self._published[hop.number, key_range.name] = published
        self.source.read_again(key_range)

    def was_refreshed(self, hop: Hop, name: str) -> bool:
        """Whether another writer has published the range since it was planned."""
        return (hop.number, name) in self._published

    def observed(self, hop: Hop, table: TableRef) -> CopyPlan:
        """Return the hop's plan with the columns of a table that it writes to, by the catalog.

        The staging tables of a run have the same columns, so that only the first is read.
        """
        staged = table not in (hop.plan.target, hop.written_plan.target)
        key = hop.number, None if staged else table
        with self._observing.setdefault(key, threading.Lock()):
            if key not in self._observed:
                if not staged:
                    in_place = table == hop.plan.target
                    plan = hop.found_plan if in_place else replace(hop.plan, target=table)
                    try:
                        self._observed[key] = observed(plan, self.servers.endpoint(table))
                    except TableMissing:
                        return replace(plan, observed=True)  # a folder before its first file
                else:
                    columns = self.loaders[hop.number].staged_columns(hop.plan, table)
                    self._observed[key] = with_columns(replace(hop.plan, target=table), columns)
            # only the target has the column that marks rows
            target_where = None if staged else hop.plan.target_where
            return replace(
                self._observed[key],
                target=table,
                where=hop.plan.where,
                target_where=target_where,
            )

    def tell(self, hop: Hop, name: str, phase: str, rows: int = 0) -> None:
        """Report that a phase of a range begins, or has processed more rows."""
        transfer, target = self.plan.transfer.transfer, str(hop.plan.target)
        self.on_progress(Progress(transfer, target, name, phase, rows))

    def message(self, hop: Hop, name: str, problem: str) -> str:
        """Prefix a problem with transfer, target and range."""
        return f"{self.plan.transfer.transfer}: {hop.plan.target} range {name}: {problem}"
