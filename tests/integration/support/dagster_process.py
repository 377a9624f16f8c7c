"""Dagster's commands and services, forked, with all that they start: code servers, runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from dagster._daemon import sensor
from dagster._grpc import server

from tests.integration.support.ferry_process import become, forking

TICK_SECONDS = 2
"""How often the daemon asks its sensors, instead of each in its own interval of up to a minute."""


class Forked:
    """What Dagster uses of `subprocess.Popen`.

    Args:
        main: what the process does.
        given: its arguments.
    """

    def __init__(self, main: Callable[..., object], *given: object) -> None:
        self._process = forking.Process(target=main, args=given)
        self._process.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        if self.poll() is None:
            os.kill(self._process.pid, number)


def fork_code_servers(patch: pytest.MonkeyPatch) -> list[Forked]:
    """Fork the code servers that this process starts; returns those that it has started."""
    started: list[Forked] = []

    def start(arguments: Sequence[str], **options: Any) -> Forked:
        # after the interpreter and -m dagster
        started.append(Forked(dagster, arguments[3:], options["env"]))
        return started[-1]

    patch.setattr(server, "open_ipc_subprocess", start)
    return started


def dagster(
    arguments: Sequence[str], environment: Mapping[str, str], output: Path | None = None
) -> None:
    """Be the command `dagster`, with what it says in a file, if one is given."""
    from dagster._cli import main

    become(["dagster", *arguments], environment, output)
    fork_code_servers(pytest.MonkeyPatch())
    main()


def daemon(arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
    """Be `dagster-daemon`, which asks its sensors often, with what it says in a file."""
    from dagster._daemon.cli import main

    become(["dagster-daemon", *arguments], environment, output)
    patch = pytest.MonkeyPatch()
    fork_code_servers(patch)
    patch.setattr(sensor, "MIN_INTERVAL_LOOP_TIME", TICK_SECONDS)
    patch.setattr(sensor, "is_under_min_interval", lambda *_: False)
    main()
