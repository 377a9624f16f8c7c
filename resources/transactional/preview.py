"""Shows the statements of a load into a transactional target, by a load that only records them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import having
from tableferry.resources.contract.markers import markers_of
from tableferry.resources.contract.recording import Preview, Recording, RecordingServer
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions, written_to
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.transactional.load import TransactionalLoad
from tableferry.resources.transactional.markers import HEAD
from tableferry.resources.transactional.statements import TargetSession
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.column import Column

Lend = Callable[[], AbstractContextManager[Any]]
NEW_ID = "<object id of {}>"


class RecordingSession:
    """Looks like a session: records what it is told to do, and passes questions on."""

    failed = False

    def __init__(self, session: TargetSession, recording: Recording) -> None:
        self._session, self._recording = session, recording

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """See `TargetSession.query`."""
        return self._recording.asked(sql, self._session.query)

    def execute(self, sql: str) -> int:
        """Record a statement, which has changed no row."""
        self._recording.record(sql)
        return 0

    def copy_in(self, sql: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Record a COPY of no rows."""
        self._recording.record(sql)
        return 0, 0

    def close(self) -> None:
        """Leave the real session open, which whoever has lent it closes."""


class RecordingSessions(RecordingServer):
    """Looks like a server that lends sessions."""

    def __init__(self, server: Any, recording: Recording, lend: Lend) -> None:
        super().__init__(server, recording)
        self._lend = lend

    @contextmanager
    def session(self) -> Iterator[RecordingSession]:
        """Lend a session that records."""
        with self._lend() as session:
            yield RecordingSession(session, self._recording)

    pooled_connection = session


def preview(
    real: TransactionalTarget[Any],
    plan: CopyPlan,
    options: TargetOptions,
    columns: Sequence[Column] | None,
) -> Preview:
    """Prepare a target and load ranges of no rows into it, all of which is only recorded."""
    sql, ask = real.sql, real.resource.query
    target, shadow, markers = plan.target, shadow_of(plan.target), markers_of(plan.target)
    recording = Recording(sql.effects)
    recorder = type(real)(RecordingSessions(real.resource, recording, real._session))
    missing = [table for table in (target, shadow, markers) if not ask(sql.table_exists(table))]
    if markers in missing:
        recording.answer(f" FROM {qualified(markers)} WHERE ")
    for table, names in (
        (target, [target.name, shadow.name]),
        (target, [target.name]),
        (shadow, [shadow.name]),
    ):
        if table in missing:
            identity = NEW_ID.format(table.name)
            recording.answer(sql.object_ids(target.schema, names), (table.name, identity))
    recorder.prepare(plan, options, columns)

    def publish(key_range: KeyRange, options: TargetOptions, rows: int | None) -> list[str]:
        table = written_to(plan, options)

        def load(attempt: TransactionalLoad[Any]) -> str:
            destroys = having(options.hazards, "destroys")
            rows_there = sql.any_row(table, plan.target_range(key_range))
            there = recorder.resource.query(rows_there) if destroys else []
            # a range of no rows is as expected wherever it is counted, or its digests are summed
            for own in (table, attempt.staging):
                recording.answer(qualified(own), (0, 0))
            if destroys:
                recording.answer(rows_there, *there)
            if counts := sql.change_counts(table):
                recording.answer(counts, (0, 0, 0))
            head = (attempt.identity, HEAD, 1, str(target), *[""] * 5)
            recording.answer(f" FROM {qualified(markers)} WHERE ", head)
            recorder.preview_rows(attempt, recording)
            return attempt.staging.name.removeprefix(attempt.lock + "_")

        with recording.answering():
            if table in missing:
                recording.answer(qualified(table))
            return recording.published(recorder, plan, key_range, options, load)

    return Preview(recording.taken(), publish)
