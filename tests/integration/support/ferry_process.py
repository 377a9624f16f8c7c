"""Processes that are forked, not started: `ferry`, and its own (see ferry_preload.py)."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FORKED_RUNS = {"PYTHONPATH": str(Path(__file__).with_name("forked_runs"))}
"""What a code server that is started, not forked, has in its environment, so that its runs are."""


class _Process(ForkServerProcess):
    """Has the environment of the process that asks for it, as one that is spawned."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._environment = {**os.environ}

    def run(self) -> None:
        _set_environment(self._environment)
        super().run()


class _Forking(ForkServerContext):
    Process = _Process


forking = _Forking()
# the first looks for garbage seldom while it imports, as `ferry` does
forking.set_forkserver_preload(
    ["tableferry.pipelines.cli", "tests.integration.support.ferry_preload"]
)


def main(arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
    """Be the command `ferry`, with what it says in a file."""
    from tableferry.pipelines.command import main

    become(["ferry", *arguments], environment, output)
    main.main()


def become(
    arguments: Sequence[str], environment: Mapping[str, str], output: Path | None = None
) -> None:
    """Have all that a program finds that is started in the checkout.

    What it would spawn is forked by the server that forked it.

    Args:
        arguments: the program's name, and its arguments.
        environment: all of it.
        output: the file that gets what it says; it is said where our own is, if not given.
    """
    if output is not None:
        with output.open("wb") as file:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(file.fileno(), stream.fileno())
    os.chdir(ROOT)
    _set_environment(environment)
    sys.argv = [*arguments]
    # the server runs, though this process has not started it
    same = multiprocessing.forkserver._forkserver
    setattr(same, "ensure_running", resource_tracker.ensure_running)  # noqa: B010
    usual = multiprocessing.get_context

    def get_context(method: str | None = None) -> BaseContext:
        return forking if method == "spawn" else usual(method)

    setattr(multiprocessing, "get_context", get_context)  # noqa: B010 (mypy: of another type)


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
