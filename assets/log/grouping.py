"""Stores the events of a range in one transaction; Dagster commits each event by itself.

A single event is one transaction, too, where Dagster needs up to three.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import dagster as dg
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from tableferry.assets.log.dagster_internals import (
    AssetCheckEvaluationTargetMaterializationData,
    SqlEventLogStorage,
    copy,
)
from tableferry.resources.crash_points import reached

PENDING = AssetCheckEvaluationTargetMaterializationData(storage_id=-1, run_id="", timestamp=0.0)
"""Stands for the commit that is recorded in the same group as the verdict about it."""

_COMMITS_OF_RUN = (
    "SELECT e.id FROM event_logs e WHERE e.asset_key = :asset AND e.dagster_event_type = :type"
    " AND e.run_id = :run AND e.partition {of_range} ORDER BY e.id DESC LIMIT 1"
)


class _Thread(threading.local):
    """What a thread stores."""

    collected: list[dg.EventLogEntry] | None = None
    """The events of the group that it collects."""
    transaction: Connection | None = None
    """The transaction in which it stores a group."""


class GroupedEvents(SqlEventLogStorage):
    """A mixin for Dagster's event log storages that stores events in groups.

    The storage implements `begin`, and opens its connections by `joined`.
    """

    def __init__(self) -> None:
        """Set up the groups; its own class initialises the rest."""
        self._thread = _Thread()
        self._storing = threading.RLock()

    def begin(self) -> AbstractContextManager[Connection]:
        """Begin the transaction of a group."""
        raise NotImplementedError

    def joined(
        self, connect: Callable[[], AbstractContextManager[Connection]]
    ) -> AbstractContextManager[Connection]:
        """Join the transaction of the group that this thread stores, or else connect."""
        transaction = self._thread.transaction
        return connect() if transaction is None else nullcontext(transaction)

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Collect the events that this thread logs in the block, and store them at its end.

        A block inside of another one adds to its group. If it fails, nothing of it is stored: a
        commit without its verdicts would be half of what is said.
        """
        if self._thread.collected is not None:
            yield
            return
        self._thread.collected = events = list[dg.EventLogEntry]()
        try:
            yield
        finally:
            self._thread.collected = None
        if events:
            self._store([without_repetition(event) for event in events])

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, or add it to the group of its thread."""
        if self._thread.collected is not None:
            self._thread.collected.append(event)
        elif self._thread.transaction is None:
            self._store([event])
        else:
            self.insert(event)

    def insert(self, event: dg.EventLogEntry) -> None:
        """Insert an event into the tables."""
        super().store_event(event)

    def _store(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store all events, or none; one group at a time, so that their ids are in order."""
        with self._storing, self.begin() as transaction:
            self._thread.transaction = transaction
            try:
                about = PENDING
                for event in events:
                    self.insert(resolved(event, about))
                    if event.dagster_event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
                        about = _stored_last(transaction, event)
            finally:
                self._thread.transaction = None
            if about is not PENDING:
                reached("inside_event")


def _stored_last(
    transaction: Connection, event: dg.EventLogEntry
) -> AssetCheckEvaluationTargetMaterializationData:
    """Return the materialization stored last; no other process writes events of its run."""
    inner = event.get_dagster_event()
    assert inner.asset_key is not None, "a materialization names its asset"
    values = {"type": inner.event_type_value, "run": event.run_id}
    newest = _COMMITS_OF_RUN.format(of_range="IS NULL" if inner.partition is None else "= :range")
    if inner.partition is not None:
        values["range"] = inner.partition
    found = transaction.execute(sql.text(newest), {**values, "asset": inner.asset_key.to_string()})
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=found.scalar_one(), run_id=event.run_id, timestamp=event.timestamp
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
    evaluation = copy(evaluation, target_materialization_data=about)
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
