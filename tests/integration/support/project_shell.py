"""A shell in somebody's Dagster project, whose own environment has the programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.guide import blocks
from tests.integration.support import venvs
from tests.integration.support.guide_shell import Shell

PROGRAMS = Path(__file__).with_name("forked_programs")
FORKED = re.compile(r"(dg|dagster|dagster-daemon|ferry) [^|;<>&$`]*")


class Programs:
    """The programs of an environment, forked from one process that has imported all of it."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, PROGRAMS / "programs.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, command: str, shell: Shell, output: Path, *, background: bool = False) -> int:
        """Returns the exit code, or in the background the process's id."""
        program, *arguments = shlex.split(command.replace("\\\n", " "), comments=True)
        request = {
            "program": program,
            "arguments": arguments,
            "folder": str(shell.folder),
            "environment": {**shell.environment, "FORKED_OUTPUT": str(output)},
            "background": background,
        }
        assert self._process.stdin and self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"no answer to {command}"
        return int(answer)

    def close(self) -> None:
        """Ends with the programs that run."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(300)


@dataclass
class ProjectShell(Shell):
    """Runs the programs of the environment that is active in it."""

    _programs: dict[Path, Programs] = field(default_factory=dict, init=False)

    def type(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it prints."""
        code, printed = self._run(command)
        self.printed.append(f"$ {command}\n{printed}")
        return code, printed

    def run(self, command: str) -> str:
        """What a command prints that ends well."""
        code, printed = self.type(command)
        assert code == 0, f"{command}\n{printed}"
        return printed

    def follow(self, page: str, prepare: Callable[[], object]) -> None:
        """Do all that a page says; once it has made a project, this is prepared for the tests.

        Where the registry cannot be reached, the test is skipped.
        """
        for block in blocks(page):
            if problem := self.do(block):
                venvs.skip_without_registry(problem)
                pytest.fail(problem)
            if block.language == "console" and not (self.folder / "workspace.yaml").exists():
                prepare()

    @contextmanager
    def background(self, command: str, output: Path) -> Iterator[None]:
        """Have a program run, which is interrupted in the end, with what it says in a file."""
        process = self._active().start(command, self, output, background=True)
        try:
            yield
        finally:
            os.kill(process, signal.SIGINT)

    def _active(self) -> Programs:
        """The programs of the active environment."""
        python = Path(str(shutil.which("python", path=self.environment["PATH"])))
        if python not in self._programs:
            self._programs[python] = Programs(python)
        return self._programs[python]

    def _run(self, command: str) -> tuple[int, str]:
        if not FORKED.fullmatch(command):
            return self._bash(command)
        with tempfile.NamedTemporaryFile() as output:
            code = self._active().start(command, self, Path(output.name))
            return code, Path(output.name).read_text(encoding="utf-8")

    def close(self) -> None:
        """End all programs."""
        for programs in self._programs.values():
            programs.close()
