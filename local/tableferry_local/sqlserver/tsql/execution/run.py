"""A running batch, as its statements see it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.state import Frame, Sink, State, Variable


class Run(ABC):
    """A session, where its results go, and a way to run batches inside of this one."""

    def __init__(self, state: State, sink: Sink) -> None:
        self.state, self.sink = state, sink

    @abstractmethod
    def run_batch(self, text: str, frame: Frame) -> None:
        """Run a batch with its own variables."""

    def done(self, rowcount: int | None, command: str) -> None:
        """Report a statement's end, and remember @@ROWCOUNT."""
        self.state.rowcount = rowcount or 0
        self.sink.done(None if self.state.nocount else rowcount, command)


def run_text(run: Run, text: str, variables: dict[str, Variable]) -> None:
    """Run a batch inside of this one, with variables of its own."""
    if run.state.frame.depth >= 31:
        raise SqlError(
            217,
            16,
            "Maximum stored procedure, function, trigger, or view nesting level exceeded "
            "(limit 32).",
        )
    run.run_batch(text, Frame(variables, parent=run.state.frame))
