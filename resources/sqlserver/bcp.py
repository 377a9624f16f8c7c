"""Microsoft's bcp and FreeTDS's freebcp: finding one, its command, and not believing it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tableferry.resources.delimited import Framing
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed
from tableferry.resources.refusals import refused_in_query
from tableferry.resources.server import ConnectionSettings
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

    def version(self) -> str:
        """The first line of what `-v` prints."""
        done = subprocess.run([self.path, "-v"], capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[0].strip() if lines else "unknown"

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
