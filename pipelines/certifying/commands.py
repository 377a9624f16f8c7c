"""The product's own commands, as processes, on transfers in a folder that goes at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tableferry.pipelines.event_log import DAGSTER_HOME
from tableferry.pipelines.settings import TRANSFERS
from tableferry.resources.crash_points import CRASH_AT

PATIENCE = 1800.0
"""Seconds that a command may take."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    command: str
    exit_code: int | None
    """As `subprocess` has it; None of one that was stopped because it took too long."""
    seconds: float
    said: str = field(repr=False, default="")
    errors: str = field(repr=False, default="")

    @cached_property
    def document(self) -> dict[str, Any]:
        """What it has printed as JSON."""
        with suppress(ValueError):
            return dict(json.loads(self.said))
        return {}

    @property
    def why(self) -> str:
        """How it ended, with its last words."""
        lines = self.errors.strip().splitlines()
        return f"`{self.command}` ended with {self.exit_code}: {lines[-1] if lines else '-'}"

    def states(self) -> list[str]:
        """The states of the ranges that it names."""
        return [str(range_["state"]) for range_ in self.document.get("ranges", ())]


@dataclass(frozen=True)
class Started:
    """A command that runs."""

    arguments: tuple[str, ...]
    process: subprocess.Popen[str]
    began: float


@dataclass
class CommandLine:
    """Runs commands, and remembers them."""

    folder: Path
    ran: list[Ran] = field(default_factory=list)

    @property
    def transfers(self) -> Path:
        """The folder of transfers."""
        return self.folder / "transfers"

    def start(self, *arguments: str, **environment: str) -> Started:
        """Start `ferry` with these arguments, and `--json`."""
        command = [sys.executable, "-m", "tableferry.pipelines.cli", *arguments, "--json"]
        given = {
            **{name: value for name, value in os.environ.items() if name != CRASH_AT},
            TRANSFERS: str(self.transfers),
            DAGSTER_HOME: str(self.folder / "dagster"),
            **environment,
        }
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=given, stdout=pipe, stderr=pipe, text=True)
        return Started(arguments, process, time.monotonic())

    def end(self, started: Started) -> Ran:
        """Wait for the end of a command."""
        process = started.process
        try:
            said, errors = process.communicate(timeout=PATIENCE)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            (said, errors), code = process.communicate(), None
        except BaseException:
            process.kill()
            process.communicate()
            raise
        command, seconds = " ".join(("ferry", *started.arguments)), time.monotonic() - started.began
        self.ran.append(Ran(command, code, round(seconds, 2), said, errors))
        return self.ran[-1]

    def ferry(self, *arguments: str, **environment: str) -> Ran:
        """Run `ferry` with these arguments."""
        return self.end(self.start(*arguments, **environment))
