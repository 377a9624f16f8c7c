"""Has a loader send its statements to a recording instead of the server, to show them.

What is shown is what a run sends, because the loader itself says it. Its queries go to the server,
but for those about what has only been recorded: their answers are given beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target import Target
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

Row = tuple[Any, ...]

VERSION, RUN, HOME = "<data version>", "<run>", "<home>"
"""Stand for what only a run has."""


@dataclass(frozen=True)
class Preview:
    """The statements of a run into one target."""

    preparation: Sequence[str]
    """Those before the first range; lines that begin with `--` describe steps between them."""
    publish: Callable[[KeyRange, TargetOptions, int | None], list[str]]
    """Returns those that stage a range and publish it, by its number of rows if that is known."""


class Recording:
    """The statements that a loader would send.

    Args:
        effects: texts of queries that have an effect, with their answers: they are recorded.
    """

    def __init__(self, effects: Mapping[str, Row] | None = None) -> None:
        self._effects = effects or {}
        self._statements: list[str] = []
        self._answers: list[tuple[str, Sequence[Row]]] = []
        self._actions: dict[str, Callable[[], None]] = {}
        self.columns: dict[TableRef, Sequence[Column]] = {}
        """Those of tables that the statements create."""

    def record(self, statement: str) -> None:
        """Record a statement, or a comment about what is sent otherwise."""
        self._statements.append(statement)
        for text in [text for text in self._actions if text in statement]:
            self._actions.pop(text)()

    def upon(self, text: str, action: Callable[[], None]) -> None:
        """Do something once the first statement is recorded that holds a text."""
        self._actions[text] = action

    def taken(self) -> list[str]:
        """Return what has been recorded since the last time."""
        statements, self._statements = self._statements, []
        return statements

    def answer(self, text: str, *rows: Row) -> None:
        """Answer queries that hold a text by these rows, before all answers that were given."""
        self._answers.insert(0, (text, rows))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Forget the answers of the block at its end."""
        before = [*self._answers]
        try:
            yield
        finally:
            self._answers = before

    def published(
        self,
        target: Target,
        plan: CopyPlan,
        key_range: KeyRange,
        options: TargetOptions,
        load: Callable[[Any], str],
    ) -> list[str]:
        """Have a recorded target publish a range, and return the statements.

        Args:
            target: the target.
            plan: the hop.
            key_range: the range.
            options: how it writes.
            load: loads the rows of an attempt, and returns what is another in each attempt: part of
                the names of its tables, for which a placeholder is put.
        """
        known = target.published(plan, options)
        publication = Publication(plan, key_range, VERSION, RUN, HOME, known)
        with target.attempt(publication, options) as attempt:
            own = load(attempt)
            attempt.audited_table()
            attempt.finalise()
        return [statement.replace(own, "<attempt>") for statement in self.taken()]

    def asked(self, sql: str, ask: Callable[[str], list[Row]]) -> list[Row]:
        """Answer a query, or pass it on."""
        for text, row in self._effects.items():
            if text in sql:
                self.record(sql)
                return [row]
        for text, rows in self._answers:
            if text in sql:
                return [*rows]
        return ask(sql)


class RecordingServer:
    """Looks like a server: records what it is told to do, and passes questions on."""

    def __init__(self, server: Any, recording: Recording) -> None:
        self._server, self._recording = server, recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def query(self, sql: str, *, snapshot: str | None = None) -> list[Row]:
        """See `Endpoint.query`."""
        return self._recording.asked(sql, self._server.query)

    def columns(self, table: TableRef) -> Sequence[Column]:
        """See `Endpoint.columns`."""
        made = self._recording.columns.get(table)
        return self._server.columns(table) if made is None else made

    def execute(self, sql: str, settings: Mapping[str, str | int] | None = None) -> None:
        """See `Endpoint.execute`."""
        self._recording.record(sql)
