"""Events of one range in one transaction: Dagster commits each of them by itself.

An event that comes alone is one transaction, too: of some, Dagster makes three. And ranges that
end while others are being stored are stored together in the next transaction: each waits for its
own events no longer than it would by itself.
"""

from __future__ import annotations

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
"""Events for which Dagster writes to more than one table, or file."""

PENDING = AssetCheckEvaluationTargetMaterializationData(storage_id=-1, run_id="", timestamp=0.0)
"""What a verdict is about that is recorded together with its range's commit."""


@dataclass(eq=False)
class _Group:
    """Events that are stored together or not at all."""

    events: Sequence[dg.EventLogEntry]
    stored: bool = False


class _Thread(threading.local):
    """What a thread is about to store, and the transactions in which it stores it."""

    gathered: list[dg.EventLogEntry] | None = None
    transactions: ExitStack | None = None
    open: dict[str, Connection]


class GroupedEvents(SqlEventLogStorage):
    """What an event log storage of Dagster's is extended by, to store events in groups.

    The storage opens its transactions by `in_transaction`, and says by `begin` how.
    """

    def __init__(self) -> None:
        """Make what the groups need; the storage itself is made by its own class."""
        self._thread = _Thread()
        self._waiting: list[_Group] = []
        self._storing = threading.RLock()

    def begin(self, file: str) -> AbstractContextManager[Connection]:
        """A new transaction; of a storage of several files, in one of them."""
        raise NotImplementedError

    @contextmanager
    def in_transaction(self, file: str) -> Iterator[Connection]:
        """The transaction of the group that this thread stores, or else a new one."""
        of_group = self._thread.transactions
        if of_group is None:
            with self.begin(file) as connection:
                yield connection
            return
        if file not in self._thread.open:
            self._thread.open[file] = of_group.enter_context(self.begin(file))
        yield self._thread.open[file]

    @property
    def is_storing(self) -> bool:
        """Whether this thread stores a group."""
        return self._thread.transactions is not None

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Keep the events that this thread logs in the block, and store all of them at its end."""
        self._thread.gathered = []
        try:
            yield
        finally:
            events, self._thread.gathered = self._thread.gathered, None
            if events:
                self._store(_Group(events))

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, or keep it for the group of its thread."""
        if self._thread.gathered is not None:
            self._thread.gathered.append(event)
        elif self._thread.transactions is None and event.dagster_event_type in STORED_TWICE:
            self._store(_Group([event]))
        else:
            super().store_event(event)

    def _store(self, mine: _Group) -> None:
        """Store a group, and with it those that wait for their turn."""
        self._waiting.append(mine)
        with self._storing:
            if mine.stored:
                return
            self._waiting.remove(mine)
            others = [*self._waiting]
            try:
                self._commit([mine, *others])
            except Exception:
                if not others:
                    raise
                # nobody fails for what is wrong with the events of others
                self._commit([mine])
                return
            for group in others:
                group.stored = True
                self._waiting.remove(group)

    def _commit(self, groups: Sequence[_Group]) -> None:
        with ExitStack() as transactions:
            self._thread.transactions, self._thread.open = transactions, {}
            try:
                # the index is opened first, so that it is committed last
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
                                about = _just_stored(index, event)
            finally:
                self._thread.transactions = None


def _just_stored(
    index: Connection, event: dg.EventLogEntry
) -> AssetCheckEvaluationTargetMaterializationData:
    """The materialization that this transaction has stored last; its run is no other process's."""
    column, inner = SqlEventLogStorageTable.c, event.get_dagster_event()
    assert inner.asset_key is not None, "a materialization is of an asset"
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
    """The event, with the materialization that was stored before it in the place of `PENDING`."""
    inner = event.dagster_event
    if inner is None or inner.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return event
    evaluation = inner.asset_check_evaluation_data
    if evaluation.target_materialization_data != PENDING:
        return event
    found = replace(evaluation, target_materialization_data=about)
    return event._replace(dagster_event=inner._replace(event_specific_data=found))


@contextmanager
def together(storage: object) -> Iterator[bool]:
    """Store the events that this thread logs in the block at once, if the storage can.

    Args:
        storage: an instance's event log storage.

    Yields:
        Whether it can. Dagster's own storages store each event as it comes.
    """
    if not isinstance(storage, GroupedEvents):
        yield False
        return
    with storage.grouped():
        yield True
