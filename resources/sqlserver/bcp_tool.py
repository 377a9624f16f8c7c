"""Microsoft's bcp and FreeTDS's freebcp: finding them, running them, checking their reports."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from tableferry.resources.child_processes import ending_with_us
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed
from tableferry.resources.sqlserver.errors import LOGIN_REFUSED
from tableferry.resources.sqlserver.login import Login
from tableferry.resources.sqlserver.settings import SESSION, statements

TOOL = "TABLEFERRY_BCP"
"""Environment variable: the path of bcp or freebcp."""

NAMES = ("bcp", "freebcp")
FOLDERS = ("/opt/mssql-tools18/bin",)
"""Where Microsoft's package installs its tools, without adding the folder to PATH."""

COPIED = re.compile(r"^(\d+) rows copied", re.MULTILINE)
NOISE = re.compile(r"^\s*(?:Password:\s*)?$")
COMPLAINT = re.compile(r"(SQLState|Error) ?=")
INFORMATION = re.compile(
    r"^Msg -?\d+, Level (?:\d|10), State -?\d+$\n(?:Server '.*\n)?(?:\t.*(?:\n|\Z))?"
    r"|^SQLState = 01000, NativeError = \d+\nWarning = .*(?:\n|\Z)",
    re.MULTILINE,
)
"""Informational messages of a server: those of level 10 or less, and of SQLSTATE 01000 in ODBC.
freebcp's own errors have such levels too, but no state.
https://learn.microsoft.com/sql/relational-databases/errors-events/database-engine-error-severities"""
SECTION = "tableferry"
TOKEN_FILE = "token"
"""In the folder of the tool's file; bcp reads a token from the file that -P names beside -G.
https://learn.microsoft.com/sql/tools/bcp-utility"""

MESSAGE_LENGTH = 1000
"""Characters of a tool's message that an error repeats."""

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

ARGUMENT_BYTES = 128 << 10
"""Linux's limit of an argument, with the byte that ends it.
https://man7.org/linux/man-pages/man2/execve.2.html"""

TOO_LONG = (
    f"the query is longer than the {ARGUMENT_BYTES >> 10} KiB that a command line can hand to bcp; "
    "use 'wire: arrow', or exclude columns"
)

ENVIRONMENT = (
    *("PATH", "LD_LIBRARY_PATH", "ODBCSYSINI", "ODBCINI"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that a tool inherits."""


@dataclass(frozen=True)
class Encryption:
    """How the tool connects to the server, as the URL says."""

    encrypt: str = "yes"
    trust: bool = False
    certificate: str | None = None
    packet_size: int | None = None


@dataclass(frozen=True)
class ToolResult:
    """The exit code and the output of a finished tool."""

    exit_code: int
    output: str
    errors: str

    @property
    def rows(self) -> int | None:
        """Rows that the tool reports as copied; None if it reports no number."""
        counts = COPIED.findall(self.output)
        return int(counts[-1]) if counts else None

    def complaint(self) -> str | None:
        """All complaints of the tool on one line; None if there are none.

        An exit code of 0 proves nothing: freebcp returns it after failed batches and skipped rows.
        """
        errors, output = (INFORMATION.sub("", text) for text in (self.errors, self.output))
        lines = [line for line in errors.splitlines() if not NOISE.match(line)]
        # bcp writes its errors to standard output
        lines += [line for line in output.splitlines() if COMPLAINT.match(line)]
        if lines:
            return " ".join(" ".join(lines).split())[:MESSAGE_LENGTH]
        return f"exit code {self.exit_code}" if self.exit_code else None


@dataclass(frozen=True)
class BcpTool:
    """An installed bcp or freebcp."""

    path: str
    kind: Literal["bcp", "freebcp"]

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The program's name, for messages."""
        return Path(self.path).name

    def require_login(self, login: Login) -> None:
        """Require that the tool can log in like this.

        Raises:
            InputError: it cannot.
        """
        if self.kind == "freebcp" and not login.by_password:
            raise InputError(f"{self.path} can log in by a password only; use Microsoft's bcp")

    def command(
        self,
        what: str,
        direction: Literal["in", "queryout"],
        file: Path,
        framing: Framing | None,
        login: Login,
        encryption: Encryption,
    ) -> list[str]:
        """The command line that copies a table or a query (`what`), without the password.

        Without `framing`, the terminators are tab and newline.

        Raises:
            InputError: the tool cannot log in like this.
        """
        settings = login.settings
        command = [self.path, what, direction, str(file), "-c"]
        if login.by_password:
            command += ["-U", settings.user or ""]
        else:
            self.require_login(login)
            command += ["-T"] if login.kerberos else ["-G", "-P", str(file.parent / TOKEN_FILE)]
        if framing is not None:
            command += ["-t", framing.field, "-r", framing.row]
        if encryption.packet_size:
            command += ["-A" if self.kind == "freebcp" else "-a", str(encryption.packet_size)]
        if direction == "in":
            # stop at the first bad row
            command += ["-m", "1", "-h", "TABLOCK", "-e", f"{file}.errors"]
        if self.kind == "freebcp":
            command += ["-O", "; ".join(statements(SESSION))]
            # -: the password is the first line of standard input
            command += ["-S", SECTION, "-D", settings.database, "-P", "-"]
            return command + (["-T", str(2**31 - 1)] if direction == "queryout" else [])
        # bcp switches QUOTED_IDENTIFIER off unless told otherwise by -q
        command += ["-q", "-S", f"tcp:{settings.host},{settings.port}", "-d", settings.database]
        level = {"yes": "m", "strict": "s", "no": "o"}[encryption.encrypt]
        command += ["-C", "65001", f"-Y{level}", *(["-u"] if encryption.trust else [])]
        # without -P it prompts on its terminal, which is ours
        return ["setsid", "--ctty", "--wait", *command]

    def configuration(self, settings: ConnectionSettings, encryption: Encryption) -> str:
        """freetds.conf for freebcp.

        Raises:
            InputError: FreeTDS has no such encryption.
        """
        if encryption.encrypt == "strict":
            raise InputError(f"{self.path} knows no encrypt=strict; use Microsoft's bcp for it")
        lines = {
            "host": settings.host,
            "port": str(settings.port),
            "tds version": "7.4",
            "client charset": "UTF-8",
            "encryption": "require" if encryption.encrypt == "yes" else "off",
        }
        if encryption.encrypt == "yes" and not encryption.trust:
            # as the driver's OpenSSL does
            authority = os.environ.get("SSL_CERT_FILE")
            lines["ca file"] = encryption.certificate or authority or "system"
            lines["check certificate hostname"] = "yes"
        if any("\n" in value for value in lines.values()):
            raise InputError(f"{settings.address}: a line break in the settings")
        return f"[{SECTION}]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())


def find_tool(given: str | None = None) -> BcpTool:
    """Find the tool to use: the given one, that of `TABLEFERRY_BCP`, or bcp or freebcp on PATH.

    Raises:
        InputError: there is none; the message names the packages.
    """
    wanted = given or os.environ.get(TOOL)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *FOLDERS])
    for name in [wanted] if wanted else NAMES:
        program = shutil.which(name, path=path)
        if program:
            return BcpTool(program, "freebcp" if "freebcp" in Path(program).name else "bcp")
    missing = f"there is no program {wanted}" if wanted else "neither bcp nor freebcp is installed"
    raise InputError(
        f"the wire format text of sqlserver needs bcp, but {missing}: install Debian's package "
        f"freetds-bin or Microsoft's mssql-tools18, or set {TOOL} to the program's path"
    )


def require_rows(tool: BcpTool, result: ToolResult, rows: int, task: str) -> None:
    """Require that the tool copied this number of rows and complained of nothing.

    Raises:
        StatementFailed: it complained.
        ReceiptMismatch: it counted another number of rows.
    """
    complaint = result.complaint()
    if complaint:
        refused = refused_in_query(complaint)
        if refused is not None:
            raise refused
        raise StatementFailed("sqlserver", f"{tool.name}: {task}: {complaint}")
    if result.rows != rows:
        raise ReceiptMismatch(f"{task}: {rows} rows, but {tool.name} says {result.rows}")


def silent_seconds(given: float | None = None) -> float:
    """How long a tool may be silent: as given, else as the environment says.

    Raises:
        InputError: the environment variable is no number of seconds.
    """
    text = os.environ.get(TIMEOUT)
    if given is not None or not text:
        return SILENT_SECONDS if given is None else given
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
        if LOGIN_REFUSED in f"{output} {errors}".lower():
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
        if error.errno == errno.E2BIG:
            raise InputError(f"{task}: {TOO_LONG}") from None
        raise InputError(f"{tool} cannot be run: {(error.strerror or '').lower()}") from None
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
