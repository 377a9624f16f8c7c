"""Processes that a command starts to move tables, and that end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import dagster as dg

SECONDS_TO_END = 60.0
"""How long a process that is told to end may take to bring its ranges to a safe state."""


@dataclass(frozen=True)
class Ended:
    """The last that is heard of a process."""

    exit_code: int


@dataclass(frozen=True)
class Parent:
    """The process that started this one, which may be told something by several threads."""

    _pipe: Connection
    _sending: threading.Lock

    def send(self, message: object) -> None:
        """Tell it something, unless it is gone."""
        with self._sending, suppress(OSError):
            self._pipe.send(message)

    def receive(self) -> Any:
        """Wait for what it says.

        Raises:
            EOFError, ConnectionResetError: it has nothing more to say.
        """
        return self._pipe.recv()


@dataclass(eq=False)
class Child:
    """A process that was started."""

    _process: BaseProcess
    _pipe: Connection

    def send(self, message: object) -> None:
        """Tell it something; if it is gone, `Children.messages` says so."""
        with suppress(BrokenPipeError):
            self._pipe.send(message)


class Children:
    """The processes that a command starts, all of which end with the block.

    At the end of the block they have nothing more to do, and end by themselves; after an error they
    are interrupted. The runs of those that died are marked as failed.

    Args:
        open_instance: opens the event log that they write to.
    """

    def __init__(self, open_instance: Callable[[], dg.DagsterInstance]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._open_instance = open_instance
        self._open: dict[Connection, Child] = {}
        self._processes: list[BaseProcess] = []

    def start(self, work: Callable[..., None], *arguments: object) -> Child:
        """Start a process that does some work.

        Args:
            work: a function of a module, which is given the `Parent`.
            arguments: more of its arguments.
        """
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, work, arguments))
        process.start()
        # only the child keeps its end, so that its death closes the pipe
        theirs.close()
        child = Child(process, ours)
        self._open[ours] = child
        self._processes.append(process)
        return child

    def __len__(self) -> int:
        """Return the number of processes that have not ended."""
        return len(self._open)

    def messages(
        self, seconds: float | None = None, also: Connection | None = None
    ) -> Iterator[tuple[Child | None, Any]]:
        """Wait until there is something to hear, and yield it with who says it.

        Args:
            seconds: how long to wait.
            also: another pipe to hear, for which None says it.

        Yields:
            A process and what it says, at last `Ended`.
        """
        for pipe in wait([*self._open, *([also] if also else [])], seconds):
            assert isinstance(pipe, Connection)
            if pipe is also:
                yield None, pipe.recv()
                continue
            child = self._open[pipe]
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                del self._open[pipe]
                pipe.close()
                child._process.join()
                message = Ended(child._process.exitcode or 0)
            yield child, message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type_: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in self._open:
            pipe.close()
        for process in self._processes:
            if type_ is None:
                process.join(SECONDS_TO_END)
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(SECONDS_TO_END)
            process.kill()
        if any(process.exitcode for process in self._processes):
            # the run of a process that died would hold its transfer's slot
            from tableferry.sensors.reaper import reap

            reap(self._open_instance())


def _work(pipe: Connection, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Do some work in a process that ends with its parent, and is interrupted by nobody else."""
    # Ctrl-C on the terminal reaches the parent only, which then ends its children
    os.setsid()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(Parent(pipe, threading.Lock()), *arguments)
    except KeyboardInterrupt:
        sys.exit(1)


def _end_with_parent() -> None:
    """Interrupt this process when its parent dies, so that it does not move rows unattended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
