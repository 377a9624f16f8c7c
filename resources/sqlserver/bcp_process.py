"""A run of bcp or freebcp: its password, its silence and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tableferry.resources.child_processes import ending_with_us
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.sqlserver.bcp_tool import BcpTool, ToolResult
from tableferry.resources.sqlserver.errors import LOGIN_REFUSED, why_refused
from tableferry.resources.sqlserver.login import Login

TERM_SECONDS = 5
"""Seconds between SIGTERM and SIGKILL."""

TIMEOUT = "TABLEFERRY_BCP_TIMEOUT"
"""Environment variable: how many seconds a tool may be silent."""

SILENT_SECONDS = 600.0
"""Longer than a server takes to find a range's first row without an index, or to wake up."""

POLL_SECONDS = 0.1
"""Seconds between two looks at a silent tool."""

PROMPT_SECONDS = 3
"""Seconds after which the password is sent even if no prompt was seen."""

ENVIRONMENT = (
    *("PATH", "LD_LIBRARY_PATH", "ODBCSYSINI", "ODBCINI"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that a tool inherits."""


def silent_seconds() -> float:
    """How many seconds a tool may be silent before it is considered hung.

    Raises:
        InputError: the environment variable is no number of seconds.
    """
    text = os.environ.get(TIMEOUT)
    if not text:
        return SILENT_SECONDS
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise InputError(f"{TIMEOUT} should be a number of seconds; found {text!r}")


@dataclass
class BcpProcess:
    """A running tool."""

    process: subprocess.Popen[bytes]
    tool: BcpTool
    login: Login
    task: str
    """Table and range, for messages."""
    timeout: float
    output: list[bytes] = field(default_factory=list)
    errors: list[bytes] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)
    last_activity: float = field(default_factory=time.monotonic)

    def touch(self) -> None:
        """Note activity: output or data has come."""
        self.last_activity = time.monotonic()

    def require_active(self) -> None:
        """Raise `StatementFailed`, a transient one, if the tool has been silent for too long."""
        if time.monotonic() - self.last_activity > self.timeout:
            raise StatementFailed(
                "sqlserver",
                f"{self.tool.name}: {self.task}: no sign of life for {self.timeout:g} s, "
                f"so it was ended; {TIMEOUT} sets the limit",
                transient=True,
            )

    def wait(self) -> ToolResult:
        """Wait for the end while the tool is active; return its output without the password.

        Raises:
            StatementFailed: it was silent for too long.
            ConnectionFailed: the login was refused, and the next one has another password.
        """
        while self.is_running():
            self.require_active()
        output, errors = self._decoded(self.output), self._decoded(self.errors)
        if why_refused(f"{output} {errors}") == LOGIN_REFUSED:
            refused = self.login.settings.failed(f"{self.tool.name}: login refused", refused=True)
            if refused.outdated_password:
                raise refused
        return ToolResult(self.process.returncode, output, errors)

    def is_running(self) -> bool:
        """Whether the tool, or a process that it started, still runs; waits for a moment."""
        try:
            self.process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        for reader in self.readers:
            reader.join(POLL_SECONDS)
        return any(reader.is_alive() for reader in self.readers)

    def drain(self, stream: IO[bytes], pieces: list[bytes]) -> None:
        """Read a stream to its end in a thread, so that it never blocks; keep its last part."""

        def read() -> None:
            with stream:
                while piece := stream.read1(1 << 16):  # type: ignore[attr-defined]
                    self.touch()
                    pieces.append(piece)
                    del pieces[:-8]

        self.readers.append(threading.Thread(target=read, daemon=True))
        self.readers[-1].start()

    def answer_prompt(self, terminal: int, secret: bytes) -> None:
        """Type the password when the tool prompts for it: earlier input may be discarded.

        Closing the terminal at the end hangs up whatever still runs on it.
        """
        poll = select.poll()
        poll.register(terminal, select.POLLIN)
        deadline = time.monotonic() + PROMPT_SECONDS
        answered = False
        try:
            while self.process.poll() is None:
                prompted = bool(poll.poll(50))
                if prompted:
                    os.read(terminal, 1024)
                prompted |= any(b"assword" in piece for piece in (*self.output, *self.errors))
                if not answered and (prompted or time.monotonic() > deadline):
                    os.write(terminal, secret)
                    answered = True
        except OSError:
            pass  # the tool has closed its end
        finally:
            self.process.wait()
            os.close(terminal)

    def end(self) -> None:
        """End the tool and every process that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            # a process that holds the pipes is in the group, whose id is thus not reused
            if not self.is_running():
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TERM_SECONDS)

    def _decoded(self, pieces: list[bytes]) -> str:
        lines = b"".join(pieces).decode(errors="replace").splitlines()
        # a message's text begins with a tab, unlike the lines that follow it
        return "\n".join(
            "\t" * line.startswith("\t") + self.login.settings.redact(line) for line in lines
        )


@contextmanager
def running(
    tool: BcpTool,
    command: Sequence[str],
    login: Login,
    folder: Path,
    *,
    task: str,
    timeout: float = SILENT_SECONDS,
) -> Iterator[BcpProcess]:
    """Start a tool and give it the password; end it at the end.

    The folder is private, and has freetds.conf for freebcp. `task` names table and range in
    messages; the tool may be silent for `timeout` seconds.
    """
    secret = f"{login.settings.password or ''}\n".encode() if login.by_password else b""
    terminal, stdin = os.openpty() if tool.kind == "bcp" else (None, subprocess.PIPE)
    try:
        process = subprocess.Popen(
            [*ending_with_us("KILL"), *command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # in another locale freebcp writes question marks and returns 0
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
            | {"LC_ALL": "C.UTF-8", "HOME": str(folder), "FREETDSCONF": f"{folder}/freetds.conf"},
            cwd=folder,
            # setsid(1) makes bcp's own: within ours it would fork, and we would end it, not bcp
            start_new_session=tool.kind == "freebcp",
        )
    except OSError as error:
        if terminal is not None:
            os.close(terminal)
        why = (error.strerror or "").lower()
        raise InputError(f"{task}: {tool} cannot be run: {why}") from None
    finally:
        if terminal is not None:
            os.close(stdin)
    work = BcpProcess(process, tool, login, task, timeout)
    streams: Any = process.stdout, process.stderr
    for stream, pieces in zip(streams, (work.output, work.errors), strict=True):
        work.drain(stream, pieces)
    if terminal is not None:
        threading.Thread(target=work.answer_prompt, args=(terminal, secret), daemon=True).start()
    try:
        if process.stdin is not None:
            # if the tool is gone already, its output says why
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(secret)
                process.stdin.close()
        yield work
    finally:
        work.end()
