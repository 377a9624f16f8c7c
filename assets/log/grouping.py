"""Stores the events of a range in one transaction; Dagster commits each event by itself.

A single event is one transaction, too, where Dagster needs up to three. Ranges that end while
others are being stored share the next transaction (group commit), so that none waits longer than
it would alone.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

import dagster as dg
import sqlalchemy as sql
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.events import (
    ASSET_CHECK_EVENTS,
    ASSET_EVENTS,
    EVENT_TYPE_TO_PIPELINE_RUN_STATUS,
)
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._record import replace
from sqlalchemy.engine import Connection

from tableferry.resources.crash_points import reached

STORED_TWICE = ASSET_EVENTS | ASSET_CHECK_EVENTS | set(EVENT_TYPE_TO_PIPELINE_RUN_STATUS)
"""Events that Dagster writes to several tables or files."""

PENDING = AssetCheckEvaluationTargetMaterializationData(storage_id=-1, run_id="", timestamp=0.0)
"""Stands for the commit that is recorded in the same group as the verdict about it."""


@dataclass(eq=False)
class _Group:
    """Events that are stored all or none."""

    events: Sequence[dg.EventLogEntry]
    stored: bool = False
    doubtful: bool = False
    """Whether some files may have the events already: a commit failed, and with several files not
    before some of them had committed, or its acknowledgement was lost."""


class _Thread(threading.local):
    """The events that a thread has collected, and the transactions in which it stores a group."""

    collected: list[dg.EventLogEntry] | None = None
    doubtful: _Group | None = None
    """The group that is stored, if it is doubtful."""
    transactions: ExitStack | None = None
    open: dict[str, Connection]


class GroupedEvents(SqlEventLogStorage):
    """A mixin for Dagster's event log storages that stores events in groups.

    The storage implements `begin`, and opens its transactions by `in_transaction`.
    """

    def __init__(self) -> None:
        """Set up the groups; its own class initialises the rest."""
        self._thread = _Thread()
        self._waiting: list[_Group] = []
        self._storing = threading.RLock()

    def begin(self, file: str) -> AbstractContextManager[Connection]:
        """Begin a transaction, in the named file if the storage has several."""
        raise NotImplementedError

    @contextmanager
    def in_transaction(self, file: str) -> Iterator[Connection]:
        """Join the transaction of the group that this thread stores, or else begin one."""
        transactions = self._thread.transactions
        if transactions is None:
            with self.begin(file) as connection:
                yield connection
            return
        if file not in self._thread.open:
            self._thread.open[file] = connection = transactions.enter_context(self.begin(file))
            if self._thread.doubtful and _is_stored(connection, self._thread.doubtful):
                transactions.callback(connection.rollback)
        yield self._thread.open[file]

    @property
    def is_storing(self) -> bool:
        """Whether this thread is storing a group."""
        return self._thread.transactions is not None

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Collect the events that this thread logs in the block, and store them at its end.

        A block inside of another one adds to its group.
        """
        if self._thread.collected is not None:
            yield
            return
        self._thread.collected = []
        try:
            yield
        finally:
            events, self._thread.collected = self._thread.collected, None
            if events:
                self._store(_Group([without_repetition(event) for event in events]))

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, or add it to the group of its thread."""
        if self._thread.collected is not None:
            self._thread.collected.append(event)
        elif self._thread.transactions is None and event.dagster_event_type in STORED_TWICE:
            self._store(_Group([event]))
        else:
            self.insert(event)

    def insert(self, event: dg.EventLogEntry) -> None:
        """Insert an event into the tables."""
        super().store_event(event)

    def _store(self, group: _Group) -> None:
        """Store a group, and with it those that are waiting."""
        self._waiting.append(group)
        with self._storing:
            if group.stored:
                return
            self._waiting.remove(group)
            others = [] if group.doubtful else [each for each in self._waiting if not each.doubtful]
            try:
                self._commit([group, *others])
            except Exception:
                if not others:
                    raise
                # the fault may be in the events of the others
                for each in (group, *others):
                    each.doubtful = True
                self._commit([group])
                return
            for other in others:
                other.stored = True
                self._waiting.remove(other)

    def _commit(self, groups: Sequence[_Group]) -> None:
        with ExitStack() as transactions:
            self._thread.transactions, self._thread.open = transactions, {}
            self._thread.doubtful = groups[0] if groups[0].doubtful else None
            try:
                # opened first, the index is committed last
                with self.index_connection() as index:
                    for group in groups:
                        about = PENDING
                        for event in group.events:
                            self.store_event(resolved(event, about))
                            if (
                                event.dagster_event_type
                                is dg.DagsterEventType.ASSET_MATERIALIZATION
                            ):
                                transactions.callback(reached, "inside_event")
                                about = _stored_last(index, event)
            finally:
                self._thread.transactions = None


def _is_stored(connection: Connection, group: _Group) -> bool:
    """Whether a file has the events of a group, all or none; the index has those of assets only."""
    events = [event for event in group.events if event.dagster_event_type in STORED_TWICE]
    event, column = (events or group.events)[0], SqlEventLogStorageTable.c
    inner = event.dagster_event
    same = sql.select(column.id).where(
        column.run_id == event.run_id,
        column.timestamp == dt.datetime.fromtimestamp(event.timestamp, dt.UTC).replace(tzinfo=None),
        column.dagster_event_type == (inner and inner.event_type_value),
        column.partition == (inner and inner.partition),
    )
    return connection.execute(same.limit(1)).first() is not None


def _stored_last(
    index: Connection, event: dg.EventLogEntry
) -> AssetCheckEvaluationTargetMaterializationData:
    """Return the materialization stored last; no other process writes events of its run."""
    column, inner = SqlEventLogStorageTable.c, event.get_dagster_event()
    assert inner.asset_key is not None, "a materialization names its asset"
    newest = sql.select(sql.func.max(column.id)).where(
        column.asset_key == inner.asset_key.to_string(),
        column.dagster_event_type == inner.event_type_value,
        column.partition == inner.partition,
        column.run_id == event.run_id,
    )
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=index.execute(newest).scalar_one(),
        run_id=event.run_id,
        timestamp=event.timestamp,
    )


def resolved(
    event: dg.EventLogEntry, about: AssetCheckEvaluationTargetMaterializationData
) -> dg.EventLogEntry:
    """Replace `PENDING` in an event by the materialization that was stored before it."""
    inner = event.dagster_event
    if inner is None or inner.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return event
    evaluation = inner.asset_check_evaluation_data
    if evaluation.target_materialization_data != PENDING:
        return event
    evaluation = replace(evaluation, target_materialization_data=about)
    return event._replace(dagster_event=inner._replace(event_specific_data=evaluation))


def without_repetition(event: dg.EventLogEntry) -> dg.EventLogEntry:
    """Leave out of an event what it says twice, which is a third of a small one.

    Its step is named by its key, and its message is part of the Dagster event; that of a verdict
    repeats its fields. The tags were for the loggers, which have had the event already.
    """
    inner = event.dagster_event
    if inner is None or inner.step_key is None:
        return event
    inner = inner._replace(logging_tags={}, node_handle=None, step_handle=None)
    if inner.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        inner = inner._replace(message=None)
    return event._replace(dagster_event=inner, user_message="")


@contextmanager
def together(storage: object) -> Iterator[bool]:
    """Store the events that this thread logs in the block as one group.

    Yields:
        Whether the storage can; Dagster's own storages store each event as it comes.
    """
    if not isinstance(storage, GroupedEvents):
        yield False
        return
    with storage.grouped():
        yield True
