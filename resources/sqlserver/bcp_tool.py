"""Microsoft's bcp and FreeTDS's freebcp: found, run, given the password, watched, not believed."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tableferry.resources.child_processes import ending_with_us
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed
from tableferry.resources.sqlserver.settings import SESSION, statements

TOOL = "TABLEFERRY_BCP"
"""Environment variable: the path of bcp or freebcp."""

NAMES = ("bcp", "freebcp")
PLACES = ("/opt/mssql-tools18/bin",)
"""Where Microsoft's package puts its tools; it leaves PATH to the user."""

COPIED = re.compile(r"^(\d+) rows copied", re.MULTILINE)
NOISE = re.compile(r"^\s*(?:Password:\s*)?$")
COMPLAINT = re.compile(r"(SQLState|Error) ?=")
INFORMATION = re.compile(
    r"^Msg -?\d+, Level (?:\d|10), State -?\d+$\n(?:Server '.*\n)?(?:\t.*(?:\n|\Z))?"
    r"|^SQLState = 01000, NativeError = \d+\nWarning = .*(?:\n|\Z)",
    re.MULTILINE,
)
"""What a server says besides: messages of a level of 10 or less, or of SQLSTATE 01000 to ODBC.
freebcp's own errors have such levels too, but no state.
https://learn.microsoft.com/sql/relational-databases/errors-events/database-engine-error-severities"""
SECTION = "tableferry"
SAY = 1000
"""Characters of a tool's message that an error repeats."""

TERM_SECONDS = 5
"""Seconds that a tool gets for ending by itself before it is killed."""

TIMEOUT = "TABLEFERRY_BCP_TIMEOUT"
"""Environment variable: how many seconds a tool may be silent."""

SILENT_SECONDS = 600.0
"""Longer than a server takes to find a range's first row without an index, or to wake up."""

LOOK_SECONDS = 0.1
"""How often to look whether a tool that says nothing is still there."""

PROMPT_SECONDS = 3
"""After these the password is given without having been asked for."""


@dataclass(frozen=True)
class Encryption:
    """How the tool should talk to the server; as in the URL."""

    encrypt: str = "yes"
    trust: bool = False
    certificate: str | None = None
    packet_size: int | None = None


@dataclass(frozen=True)
class Result:
    """What a finished tool left."""

    exit_code: int
    output: str
    errors: str

    @property
    def rows(self) -> int | None:
        """Rows that the tool says it copied; None if it does not say."""
        found = COPIED.findall(self.output)
        return int(found[-1]) if found else None

    def complaint(self) -> str | None:
        """All that the tool complained of, on one line; None if of nothing.

        An exit code of 0 means nothing: freebcp ends so after failed batches and skipped rows.
        """
        errors, output = (INFORMATION.sub("", text) for text in (self.errors, self.output))
        lines = [line for line in errors.splitlines() if not NOISE.match(line)]
        # bcp puts its errors among its output
        lines += [line for line in output.splitlines() if COMPLAINT.match(line)]
        if lines:
            return " ".join(" ".join(lines).split())[:SAY]
        return f"exit code {self.exit_code}" if self.exit_code else None


@dataclass(frozen=True)
class BcpTool:
    """One installed tool."""

    path: str
    kind: Literal["bcp", "freebcp"]

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The program's name, for messages."""
        return Path(self.path).name

    def command(
        self,
        what: str,
        direction: Literal["in", "queryout"],
        file: Path,
        framing: Framing | None,
        settings: ConnectionSettings,
        encryption: Encryption,
    ) -> list[str]:
        """The command line; the password is not part of it.

        Args:
            what: the table, or the query.
            direction: into the server or out of it.
            file: the data.
            framing: terminators; tab and newline without.
            settings: the server.
            encryption: for bcp only; freebcp reads it in `configuration`.
        """
        command = [self.path, what, direction, str(file), "-c", "-U", settings.user or ""]
        if framing is not None:
            command += ["-t", framing.field, "-r", framing.row]
        if encryption.packet_size:
            command += ["-A" if self.kind == "freebcp" else "-a", str(encryption.packet_size)]
        if direction == "in":
            # the first bad row is one too many
            command += ["-m", "1", "-h", "TABLOCK", "-e", f"{file}.errors"]
        # names are in quotation marks, which are names only then; bcp switches it off otherwise
        pinned = "; ".join(statements(SESSION))
        command += ["-O", pinned] if self.kind == "freebcp" else ["-q"]
        if self.kind == "freebcp":
            # -: the password is the first line of standard input
            command += ["-S", SECTION, "-D", settings.database, "-P", "-"]
            return command + (["-T", str(2**31 - 1)] if direction == "queryout" else [])
        host = settings.host
        level = {"yes": "m", "strict": "s", "no": "o"}[encryption.encrypt]
        command += ["-S", f"tcp:{host},{settings.port}", "-d", settings.database, "-C", "65001"]
        command += [f"-Y{level}", *(["-u"] if encryption.trust else [])]
        # without -P it asks on its terminal, which is ours
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
            own = os.environ.get("SSL_CERT_FILE")
            lines["ca file"] = encryption.certificate or own or "system"
            lines["check certificate hostname"] = "yes"
        if any("\n" in value for value in lines.values()):
            raise InputError(f"{settings.address}: a line break in the settings")
        return f"[{SECTION}]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())


def find_tool(given: str | None = None) -> BcpTool:
    """The tool to use: the given one, `TABLEFERRY_BCP`, bcp or else freebcp of PATH.

    Raises:
        InputError: there is none; the message names the packages.
    """
    wanted = given or os.environ.get(TOOL)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *PLACES])
    for name in [wanted] if wanted else NAMES:
        found = shutil.which(name, path=path)
        if found:
            return BcpTool(found, "freebcp" if "freebcp" in Path(found).name else "bcp")
    missing = f"{wanted} is no program" if wanted else "neither bcp nor freebcp is installed"
    raise InputError(
        f"the wire format text of sqlserver needs bcp, but {missing}: install Debian's package "
        f"freetds-bin or Microsoft's mssql-tools18, or set {TOOL} to the program's path"
    )


def require_rows(tool: BcpTool, result: Result, rows: int, task: str) -> None:
    """See that the tool copied so many rows and complained of nothing.

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


@dataclass
class Running:
    """A tool at work."""

    process: subprocess.Popen[bytes]
    tool: BcpTool
    task: str
    """For messages: table and range."""
    timeout: float
    output: list[bytes] = field(default_factory=list)
    errors: list[bytes] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    """When it last gave a sign of life."""

    def hear(self) -> None:
        """Note a sign of life: output, or data."""
        self.heard = time.monotonic()

    def require_alive(self) -> None:
        """Raise if it has been silent for too long.

        Raises:
            StatementFailed: it has; another attempt may help.
        """
        if time.monotonic() - self.heard > self.timeout:
            raise StatementFailed(
                "sqlserver",
                f"{self.tool.name}: {self.task}: no sign of life for {self.timeout:g} s, "
                f"so it was ended; {TIMEOUT} sets the limit",
                transient=True,
            )

    def wait(self, settings: ConnectionSettings) -> Result:
        """Its result, with the password blotted out, should it be in there.

        Raises:
            StatementFailed: see `require_alive`.
        """
        while self.at_work():
            self.require_alive()
        output, errors = (_text(part, settings) for part in (self.output, self.errors))
        return Result(self.process.returncode, output, errors)

    def at_work(self) -> bool:
        """Whether it, or something that it has started, still runs; looks for a moment."""
        try:
            self.process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        for reader in self.readers:
            reader.join(LOOK_SECONDS)
        return any(reader.is_alive() for reader in self.readers)


def silent_seconds(given: float | None = None) -> float:
    """How long a tool may be silent, as given or as the environment says.

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


@contextmanager
def running(
    tool: BcpTool,
    command: Sequence[str],
    settings: ConnectionSettings,
    conf: str,
    folder: Path,
    *,
    task: str,
    timeout: float = SILENT_SECONDS,
) -> Iterator[Running]:
    """Start the tool, give it the password, and see that it has ended at the end.

    Args:
        tool: what to run.
        command: of `BcpTool.command`.
        settings: whose password it is.
        conf: of `BcpTool.configuration`.
        folder: private; for the configuration.
        task: table and range, for messages.
        timeout: seconds for which it may be silent.
    """
    environment = _environment(folder)
    if tool.kind == "freebcp":
        (folder / "freetds.conf").write_text(conf, encoding="utf-8")
    secret = f"{settings.password or ''}\n".encode()
    terminal, stdin = os.openpty() if tool.kind == "bcp" else (None, subprocess.PIPE)
    try:
        process = subprocess.Popen(
            [*ending_with_us("KILL"), *command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
            # setsid(1) makes bcp's own: it would fork in one, and we would end it instead of bcp
            start_new_session=tool.kind == "freebcp",
        )
        if terminal is not None:
            os.close(stdin)
    except OSError as error:
        raise InputError(f"{tool} cannot be run: {(error.strerror or '').lower()}") from None
    work = Running(process, tool, task, timeout)
    for stream, into in ((process.stdout, work.output), (process.stderr, work.errors)):
        thread = threading.Thread(target=_drain, args=(stream, into, work.hear), daemon=True)
        thread.start()
        work.readers.append(thread)
    if terminal is not None:
        threading.Thread(target=_answer, args=(terminal, work, secret), daemon=True).start()
    try:
        if process.stdin is not None:
            # a tool that is gone already says why elsewhere
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(secret)
                process.stdin.close()
        yield work
    finally:
        _end(work)


def _environment(folder: Path) -> Mapping[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name
        in ("PATH", "LD_LIBRARY_PATH", "ODBCSYSINI", "ODBCINI", "SSL_CERT_FILE", "SSL_CERT_DIR")
    }
    # in another locale freebcp writes question marks and ends with 0
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "HOME": str(folder),
        "FREETDSCONF": str(folder / "freetds.conf"),
    }


def _text(pieces: list[bytes], settings: ConnectionSettings) -> str:
    lines = b"".join(pieces).decode(errors="replace").splitlines()
    # a message's text begins with a tab, which tells it from what follows
    return "\n".join("\t" * line.startswith("\t") + settings.redact(line) for line in lines)


def _drain(stream: object, into: list[bytes], hear: Callable[[], None]) -> None:
    """Keep the last part of a stream, and never let it fill up."""
    while piece := stream.read1(1 << 16):  # type: ignore[attr-defined]
        hear()
        into.append(piece)
        del into[:-8]


def _answer(terminal: int, work: Running, secret: bytes) -> None:
    """Give the password when it is asked for: what is typed before that may be thrown away.

    Closing the terminal at the end hangs up whatever still runs on it.
    """
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    asked = time.monotonic() + PROMPT_SECONDS
    answered = False
    try:
        while work.process.poll() is None:
            shown = bool(poll.poll(50))
            if shown:
                os.read(terminal, 1024)
            prompted = any(b"assword" in piece for piece in (*work.output, *work.errors))
            if not answered and (shown or prompted or time.monotonic() > asked):
                os.write(terminal, secret)
                answered = True
    except OSError:
        pass  # the tool has closed its end
    finally:
        work.process.wait()
        os.close(terminal)


def _end(work: Running) -> None:
    """End the tool with all that it has started, if anything of it is left."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        # who holds its output open is of its group, whose number is therefore nobody else's
        if not work.at_work():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(work.process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            work.process.wait(TERM_SECONDS)
