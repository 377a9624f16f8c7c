"""Microsoft's bcp and FreeTDS's freebcp: finding them, their command lines and their reports."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed
from tableferry.resources.sqlserver.login import SESSION, Login, statements

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


@dataclass(frozen=True)
class Encryption:
    """How the tool connects to the server, as the URL says."""

    encrypt: str = "yes"
    trust: bool = False
    certificate: str | None = None


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


def find_tool() -> BcpTool:
    """Find the tool to use: that of `TABLEFERRY_BCP`, or bcp or freebcp on PATH.

    Raises:
        InputError: there is none; the message names the packages.
    """
    wanted = os.environ.get(TOOL)
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
