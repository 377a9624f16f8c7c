"""A running batch, as its statements see it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tableferry_local.sqlserver.tsql.execution.state import Frame, Sink, State, Variable


class Run(ABC):
    """A session, where its results go, and a way to run batches inside of this one."""

    def __init__(self, state: State, sink: Sink) -> None:
        self.state, self.sink = state, sink

    @abstractmethod
    def run_batch(self, text: str, frame: Frame) -> None:
        """Run a batch with its own variables."""

    def done(self, rowcount: int | None, command: str) -> None:
        """Report a statement's end."""
        self.sink.done(None if self.state.nocount else rowcount, command)


def run_text(run: Run, text: str, variables: dict[str, Variable] | None = None) -> None:
    """Run a batch inside of this one, with variables of its own."""
    run.run_batch(text, Frame(variables or {}, parent=run.state.frame))
