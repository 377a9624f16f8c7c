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

    def json(self) -> dict[str, Any]:
        """Return its part of the certificate."""
        return {"command": self.command, "exit_code": self.exit_code, "seconds": self.seconds}

    def states(self) -> list[str]:
        """The states of the ranges that it names."""
        return [str(range_["state"]) for range_ in self.document.get("ranges", ())]


@dataclass
class CommandLine:
    """Runs commands, and remembers them."""

    folder: Path
    ran: list[Ran] = field(default_factory=list)

    @property
    def transfers(self) -> Path:
        """The folder of transfers."""
        return self.folder / "transfers"

    def ferry(self, *arguments: str, **environment: str) -> Ran:
        """Run `ferry` with these arguments, and `--json`."""
        command = [sys.executable, "-m", "tableferry.pipelines.cli", *arguments, "--json"]
        given = {name: value for name, value in os.environ.items() if name != CRASH_AT}
        given |= {TRANSFERS: str(self.transfers), DAGSTER_HOME: str(self.folder / "dagster")}
        given |= environment
        began = time.monotonic()
        code: int | None
        try:
            ended = subprocess.run(
                command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            code, said, errors = ended.returncode, ended.stdout, ended.stderr
        except subprocess.TimeoutExpired as late:
            # its output is bytes, whatever was asked for
            code, said, errors = None, "", (late.stderr or b"").decode(errors="replace")
        seconds = round(time.monotonic() - began, 2)
        ran = Ran(" ".join(("ferry", *arguments)), code, seconds, said, errors)
        self.ran.append(ran)
        return ran
