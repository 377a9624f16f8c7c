"""Events of one range in one transaction: Dagster commits each of them by itself, to two files.

An event that comes alone is one transaction per file, too: of some, Dagster makes three. And what
a new run plans, an event for each asset and each check, is recorded at once.

Ranges that end while others are being stored are stored together in the next transaction: each
waits for its own events no longer than it would by itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

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
from dagster._core.instance.runs.run_domain import RunDomain
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._record import replace
from sqlalchemy.engine import Connection

from tableferry.resources.crash_points import reached

Storage = sqlite_event_log.SqliteEventLogStorage

IN_THE_INDEX = ASSET_EVENTS | ASSET_CHECK_EVENTS | set(EVENT_TYPE_TO_PIPELINE_RUN_STATUS)
"""Events that Dagster stores in the index, too."""

COMING = AssetCheckEvaluationTargetMaterializationData(storage_id=-1, run_id="", timestamp=0.0)
"""What a verdict is about that is recorded together with its range's commit."""


@dataclass(eq=False)
class _Block:
    """The events of one range."""

    events: Sequence[dg.EventLogEntry]
    stored: bool = False


class _Thread(threading.local):
    """What this thread is about to store, and the transactions in which it stores it."""

    events: list[dg.EventLogEntry] | None = None
    files: ExitStack | None = None
    open: dict[str, Connection]


_thread = _Thread()


@contextmanager
def together(storage: object) -> Iterator[bool]:
    """Keep the events that this thread logs in the block, and commit all of them at its end.

    The file of the run is committed first and the index, which the ledger reads, last: each of
    them has all of the events, or none. Dagster does so for the two copies of one event.

    Args:
        storage: an instance's event log storage.

    Yields:
        Whether it is so. Storages that are no files store each event as it comes, and so does a
        process that has not opened the instance by `assets.log.instance`.
    """
    if not isinstance(storage, Storage) or not hasattr(storage, "_ferry_waiting"):
        yield False
        return
    _thread.events = []
    try:
        yield True
    finally:
        events, _thread.events = _thread.events, None
        if events:
            _store(storage, _Block(events))


@functools.cache
def store_together() -> None:
    """Let Dagster's SQLite event logs of this process take part in `together`."""
    make, store, connect = Storage.__init__, Storage.store_event, Storage._connect
    plan = RunDomain._log_asset_planned_events

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        # the two files of a block are open at a time, in one thread
        self._db_lock = threading.RLock()
        self._ferry_waiting = list[_Block]()

    def stored(self: Any, event: dg.EventLogEntry) -> None:
        if _thread.events is not None:
            _thread.events.append(event)
        elif _thread.files is None and event.dagster_event_type in IN_THE_INDEX:
            _store(self, _Block([event]))
        else:
            store(self, event)

    def planned(self: Any, *arguments: Any) -> None:
        with together(self._instance.event_log_storage):
            plan(self, *arguments)

    Storage.__init__ = made  # type: ignore[method-assign]
    Storage.store_event = stored  # type: ignore[method-assign]
    Storage._connect = _kept(connect)  # type: ignore[method-assign, assignment]
    RunDomain._log_asset_planned_events = planned  # type: ignore[assignment, method-assign]


def _kept(
    connect: Callable[[Any, str], AbstractContextManager[Connection]],
) -> Callable[[Any, str], AbstractContextManager[Connection]]:
    """A storage's way to connect that goes on with a transaction of this thread."""

    @contextmanager
    def connected(self: Any, shard: str) -> Iterator[Connection]:
        if _thread.files is None:
            with connect(self, shard) as connection:
                yield connection
            return
        if shard not in _thread.open:
            _thread.open[shard] = _thread.files.enter_context(connect(self, shard))
        yield _thread.open[shard]

    return connected


def _store(storage: Any, mine: _Block) -> None:
    """Store a block, and with it those that wait for their turn."""
    waiting: list[_Block] = storage._ferry_waiting
    waiting.append(mine)
    with storage._db_lock:
        if mine.stored:
            return
        waiting.remove(mine)
        others = [*waiting]
        try:
            _commit(storage, [mine, *others])
        except Exception:
            if not others:
                raise
            # nobody fails for what is wrong with the events of others
            _commit(storage, [mine])
            return
        for one in others:
            one.stored = True
            waiting.remove(one)


def _commit(storage: Storage, blocks: Sequence[_Block]) -> None:
    with ExitStack() as files:
        _thread.files, _thread.open = files, {}
        try:
            # what is opened first is committed last
            with storage.index_connection() as index:
                for block in blocks:
                    about = COMING
                    for event in block.events:
                        storage.store_event(_meant(event, about))
                        if event.dagster_event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
                            # nobody else writes to the file before this transaction ends
                            files.callback(reached, "inside_event")
                            newest = sql.select(sql.func.max(SqlEventLogStorageTable.c.id))
                            about = AssetCheckEvaluationTargetMaterializationData(
                                storage_id=index.execute(newest).scalar_one(),
                                run_id=event.run_id,
                                timestamp=event.timestamp,
                            )
        finally:
            _thread.files = None


def _meant(
    event: dg.EventLogEntry, about: AssetCheckEvaluationTargetMaterializationData
) -> dg.EventLogEntry:
    """The event, with the materialization that was stored before it in the place of `COMING`."""
    inner = event.dagster_event
    if inner is None or inner.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        return event
    evaluation = inner.asset_check_evaluation_data
    if evaluation.target_materialization_data != COMING:
        return event
    found = replace(evaluation, target_materialization_data=about)
    return event._replace(dagster_event=inner._replace(event_specific_data=found))
