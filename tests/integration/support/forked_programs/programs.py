"""The programs of another environment, forked from a process of its Python that has imported them.

Each line of standard input is a request, as JSON: a `program` and its `arguments`, the `folder` to
start it in, and its whole `environment`, in which `OUTPUT` names the file for what it prints. The
answer is a line with the process's id, if it is to run in the `background`, or with its exit code.
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from typing import Any

OUTPUT = "FORKED_OUTPUT"
"""Variable: the file with what a process prints, and what those print that it starts."""

DAEMON_SECONDS = 1
"""How often the daemon looks after its sensors."""


class _Process(ForkServerProcess):
    """Has the environment of the process that asks for it, as a spawned one has."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._environment = {**os.environ}

    def run(self) -> None:
        _become(self._environment)
        super().run()


class _Forking(ForkServerContext):
    Process = _Process


forking = _Forking()
_usual_context = multiprocessing.get_context


class Forked(_Process):
    """A program, with what Dagster uses of `subprocess.Popen`."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        super().__init__(target=_run, args=(request,))
        self.start()

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return self.exitcode

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)


def _run(request: Mapping[str, Any]) -> None:
    """Be the program of a request."""
    _become(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["program"], *request["arguments"]]
    (script,) = entry_points(group="console_scripts", name=request["program"])
    sys.exit(script.load()())


def _become(environment: Mapping[str, str]) -> None:
    """Take over an environment, and have the same server fork what this process starts.

    Dagster starts code servers, runs and steps.
    """
    from dagster._daemon import asset_daemon, sensor
    from dagster._grpc import server

    os.environ.clear()
    os.environ.update(environment)
    if output := environment.get(OUTPUT):
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file, stream.fileno())
    # the server runs, though this process has not started it
    same = multiprocessing.forkserver._forkserver
    setattr(same, "ensure_running", resource_tracker.ensure_running)  # noqa: B010

    def get_context(method: str | None = None) -> BaseContext:
        return forking if method == "spawn" else _usual_context(method)

    setattr(multiprocessing, "get_context", get_context)  # noqa: B010
    server.open_ipc_subprocess = _start_code_server
    asset_daemon.MIN_INTERVAL_LOOP_SECONDS = sensor.MIN_INTERVAL_LOOP_TIME = DAEMON_SECONDS


def _start_code_server(
    command: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None
) -> Forked:
    return Forked(
        {
            "program": "dagster",
            "arguments": [*command[3:]],  # after the interpreter and -m dagster
            "folder": cwd or os.getcwd(),
            "environment": {**(env or os.environ)},
        }
    )


def main() -> None:
    """Answer requests until there are no more."""
    forking.set_forkserver_preload(["preload"])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # what forked processes print before they have files of their own
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        request = json.loads(line)
        started = Forked(request)
        answer = started.pid if request["background"] else started.wait()
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
