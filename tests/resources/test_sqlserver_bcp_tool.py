"""bcp and freebcp: which one, how it is called, and what its output is worth."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tableferry.resources.connecting.address import ConnectionSettings
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed, ValueRefused
from tableferry.resources.sqlserver import bcp_process
from tableferry.resources.sqlserver.bcp_process import (
    SILENT_SECONDS,
    TIMEOUT,
    running,
    silent_seconds,
)
from tableferry.resources.sqlserver.bcp_tool import (
    BcpTool,
    Encryption,
    ToolResult,
    find_tool,
    require_rows,
)
from tableferry.resources.sqlserver.login import Login

SECRET = "s3cret pass"
SETTINGS = ConnectionSettings("sqlserver", "db.example", 1433, "shop", "sa", SECRET)
LOGIN = Login(SETTINGS)
FREEBCP, BCP = BcpTool("/usr/bin/freebcp", "freebcp"), BcpTool("/opt/bcp", "bcp")
FRAMING = Framing("~aaaaaaaaf", "~aaaaaaaar")
GOOD = "\nStarting copy...\n12 rows copied.\n"


@pytest.mark.parametrize(
    ("output", "rows"),
    [
        (GOOD, 12),
        ("1000 rows sent to SQL Server.\n\n1200 rows copied.\nNetwork packet size: 4096\n", 1200),
        ("\nStarting copy...\n", None),
        ("", None),
        ("the 12 rows copied", None),
    ],
)
def test_the_tools_own_count(output: str, rows: int | None) -> None:
    assert ToolResult(0, output, "").rows == rows


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(0, GOOD, "Msg 20018, Level 16\nGeneral SQL Server error\n"),
        ToolResult(1, GOOD, ""),
        ToolResult(-9, GOOD, ""),
        ToolResult(0, "SQLState = 22001, NativeError = 0\n" + GOOD, ""),
        ToolResult(
            0, "Error = [Microsoft][ODBC Driver 18] String data, right truncation\n" + GOOD, ""
        ),
    ],
)
def test_any_complaint_is_a_failure_whatever_the_exit_code(result: ToolResult) -> None:
    with pytest.raises(StatementFailed, match="freebcp: t: "):
        require_rows(FREEBCP, result, 12, "t")


INFORMATION = {
    "Babelfish": (
        "Msg 0, Level 0, State 1\nServer 'BABELFISH', Line 0\n"
        "\tChanged database context to 'shop'.\n"
    ),
    "no line": "Msg 0, Level 0, State 1\nServer 'x', \n\tChanged language setting.\n",
    "SQL Server": "Msg 5701, Level 10, State 1\nServer 'x', Line 1\n\tChanged database.\n",
    "print": "Msg 50000, Level 9, State 1\nServer 'x', Line 1\n\thello\n",
    "the last line": "Msg 8153, Level 10, State 1\nServer 'x', Line 1\n\tNull is left out.",
}
ERRORS = {
    "level 11": "Msg 0, Level 11, State 1\nServer 'x', Line 1\n\tno such thing\n",
    "level 100": "Msg 0, Level 100, State 1\n",
    "level 16": "Msg 5701, Level 16, State 1\nServer 'x', Line 1\n\tno\n",
    "freebcp's own": "Msg 20009, Level 9\nUnable to connect: Adaptive Server is unavailable\n",
}


@pytest.mark.parametrize("text", INFORMATION.values(), ids=INFORMATION)
def test_a_message_of_level_10_or_less_is_no_complaint(text: str) -> None:
    for result in (ToolResult(0, GOOD, text), ToolResult(0, GOOD, text + "\n" + text)):
        assert not result.complaint()
        require_rows(FREEBCP, result, 12, "t")


@pytest.mark.parametrize("information", INFORMATION.values(), ids=INFORMATION)
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_beside_information_is_a_complaint(information: str, error: str) -> None:
    for text in (f"{information}\n{error}", error + information):
        found = ToolResult(0, GOOD, text).complaint()
        assert found == " ".join(error.split())


def test_odbcs_information_is_no_complaint() -> None:
    said = (
        "SQLState = 01000, NativeError = 5701\n"
        "Warning = [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Changed database context "
        "to 'shop'.\n"
    )
    require_rows(BCP, ToolResult(0, said + GOOD, ""), 12, "t")
    cut = said.replace("01000", "01004").replace("5701", "0")
    assert ToolResult(0, cut + GOOD, "").complaint() == "SQLState = 01004, NativeError = 0"


@pytest.mark.parametrize("output", [GOOD.replace("12", "11"), ""])
def test_another_count_is_a_mismatch(output: str) -> None:
    with pytest.raises(ReceiptMismatch, match="t: 12 rows, but freebcp says"):
        require_rows(FREEBCP, ToolResult(0, output, ""), 12, "t")


@pytest.mark.parametrize("errors", ["", "Password: \n", "Password: \n\n", "\n"])
def test_the_password_prompt_is_no_complaint(errors: str) -> None:
    result = ToolResult(0, GOOD, errors)
    assert result.complaint() is None
    assert result.rows == 12
    require_rows(BCP, result, 12, "t")


def test_what_follows_the_password_prompt_is_a_complaint() -> None:
    assert ToolResult(0, GOOD, "Password: Login failed.\n").complaint() == "Password: Login failed."


def test_a_guard_of_the_query_names_its_value() -> None:
    text = (
        "Msg 245, Level 16, State 1\nServer 'x', Line 1\n\tConversion failed when converting the "
        'nvarchar value \'tableferry guard ["s.t", "c", "7", "a\\"b", "is bad"]\' to '
        "data type int.\n"
    )
    with pytest.raises(ValueRefused, match=r"s.t: column 'c', key '7': value 'a\"b' is bad"):
        require_rows(FREEBCP, ToolResult(1, "", text), 1, "t")


@pytest.mark.parametrize("tool", [FREEBCP, BCP])
@pytest.mark.parametrize("direction", ["in", "queryout"])
def test_no_command_line_holds_the_password(tool: BcpTool, direction: str) -> None:
    command = tool.command("[t]", direction, Path("/f"), FRAMING, LOGIN, Encryption())  # type: ignore[arg-type]
    assert not any(SECRET in word for word in command)
    assert "-c" in command


@pytest.mark.parametrize("direction", ["in", "queryout"])
def test_quotation_marks_hold_names(direction: str) -> None:
    arguments = ('"t"', direction, Path("/f"), FRAMING, LOGIN, Encryption())
    assert "-q" in BCP.command(*arguments)  # type: ignore[arg-type]
    options = FREEBCP.command(*arguments)  # type: ignore[arg-type]
    assert "SET QUOTED_IDENTIFIER ON; " in options[options.index("-O") + 1]


def test_freetds_verifies_the_certificate_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)

    def lines(**options: object) -> list[str]:
        return FREEBCP.configuration(SETTINGS, Encryption(**options)).splitlines()  # type: ignore[arg-type]

    verified = lines()
    assert "encryption = require" in verified
    assert "ca file = system" in verified
    assert "check certificate hostname = yes" in verified
    assert "ca file = /c.pem" in lines(certificate="/c.pem")
    monkeypatch.setenv("SSL_CERT_FILE", "/own.pem")
    assert "ca file = /own.pem" in lines()
    assert not any("ca file" in line for line in lines(trust=True))
    assert "encryption = off" in lines(encrypt="no")
    with pytest.raises(InputError, match="strict"):
        lines(encrypt="strict")
    assert SECRET not in "\n".join(verified)


def test_the_given_tool_wins_then_the_variable_then_bcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bcp", "freebcp", "my-freebcp"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TABLEFERRY_BCP", raising=False)
    assert find_tool() == BcpTool(str(tmp_path / "bcp"), "bcp")
    monkeypatch.setenv("TABLEFERRY_BCP", str(tmp_path / "freebcp"))
    assert find_tool().kind == "freebcp"
    monkeypatch.setenv("TABLEFERRY_BCP", str(tmp_path / "none"))
    with pytest.raises(InputError, match="freetds-bin or Microsoft's mssql-tools18"):
        find_tool()


def test_a_tool_that_asks_on_its_terminal_is_answered(tmp_path: Path) -> None:
    """As Microsoft's bcp does without -P; getpass reads the controlling terminal."""
    program = tmp_path / "bcp"
    program.write_text(
        f"#!{sys.executable}\nimport getpass\n"
        f"ok = getpass.getpass() == {SECRET!r}\nprint('3 rows copied.' if ok else 'no')\n"
    )
    program.chmod(0o755)
    tool = BcpTool(str(program), "bcp")
    command = tool.command("[t]", "in", tmp_path / "f", FRAMING, LOGIN, Encryption())
    with running(tool, command, LOGIN, tmp_path, task="t") as work:
        result = work.wait()
    assert result.rows == 3
    assert SECRET not in result.output + result.errors


def test_a_tool_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    gc.collect()  # what tests before have left open
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with (
            pytest.raises(InputError, match=r"^t: .*bcp cannot be run: argument list too long"),
            running(BCP, ["true", "x" * (128 << 10)], LOGIN, tmp_path, task="t"),
        ):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def gone(pid: int) -> bool:
    """Whether the process has ended, be it waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def eventually(true: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def pids_in(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


HANGING = {
    "sleeps": "exec sleep 600",
    "ignores SIGTERM and SIGHUP": "trap '' TERM HUP; sleep 600; sleep 600",
    "leaves a child behind": "trap '' HUP; sleep 600 & echo $! >> pids; exit 0",
}


@pytest.mark.parametrize("script", HANGING.values(), ids=HANGING)
@pytest.mark.parametrize("name", ["freebcp", "bcp"])
def test_a_hung_tool_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str
) -> None:
    monkeypatch.setattr(bcp_process, "TERM_SECONDS", 0.02)
    monkeypatch.setattr(bcp_process, "POLL_SECONDS", 0.01)
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\necho $$ >> pids\n{script}\n")
    program.chmod(0o755)
    tool = BcpTool(str(program), "freebcp" if name == "freebcp" else "bcp")
    command = tool.command("[t]", "in", tmp_path / "f", FRAMING, LOGIN, Encryption())
    task = "sqlserver://dbo.orders range ..7"
    with (
        pytest.raises(
            StatementFailed, match=rf"{name}: {task}: no sign of life for 0\.02 s"
        ) as caught,
        running(tool, command, LOGIN, tmp_path, task=task, timeout=0.02) as work,
    ):
        # it counts from here, however late the tool was
        assert eventually(lambda: len(pids_in(tmp_path)) == 1 + script.count("pids"))
        work.touch()
        work.wait()
    assert is_transient(caught.value)
    pids = pids_in(tmp_path)
    assert pids and eventually(lambda: all(map(gone, pids))), "all that it started is gone"


def work_with(tool: BcpTool, command: list[str], folder: Path) -> None:
    """What a ferry does that is to be killed."""
    with running(tool, command, LOGIN, folder, task="t") as work:
        work.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent")
@pytest.mark.parametrize("name", ["freebcp", "bcp"])
def test_a_tool_does_not_outlive_a_ferry_that_is_killed(tmp_path: Path, name: str) -> None:
    program, pid = tmp_path / name, tmp_path / "pid"
    program.write_text("#!/bin/sh\ntrap '' HUP TERM\necho $$ > pid\nexec sleep 600\n")
    program.chmod(0o755)
    tool = BcpTool(str(program), "freebcp" if name == "freebcp" else "bcp")
    command = tool.command("[t]", "in", tmp_path / "f", FRAMING, LOGIN, Encryption())
    forking = multiprocessing.get_context("fork")
    ferry = forking.Process(target=work_with, args=(tool, command, tmp_path))
    ferry.start()
    try:
        assert eventually(lambda: pid.exists() and bool(pid.read_text()), 60)
        assert not gone(int(pid.read_text()))
    finally:
        ferry.kill()
        ferry.join()
    ended = eventually(lambda: gone(int(pid.read_text())))
    if not ended:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert ended


class Clock:
    """Stands still until it is set, and knows how often it was looked at."""

    def __init__(self) -> None:
        self.now, self.looks = 0.0, 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now


def test_a_tool_that_says_something_is_not_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(bcp_process, "time", clock)
    monkeypatch.setattr(bcp_process, "POLL_SECONDS", 0.01)
    program = tmp_path / "freebcp"
    os.mkfifo(tmp_path / "told")
    program.write_text("#!/bin/sh\nwhile read i; do echo $i; done < told; echo '5 rows copied.'\n")
    program.chmod(0o755)
    tool = BcpTool(str(program), "freebcp")
    with running(tool, [tool.path], LOGIN, tmp_path, task="t", timeout=1.5) as work:
        work.touch()

        def tell() -> None:
            with (tmp_path / "told").open("w") as told:
                for number in range(1, 6):
                    print(number, file=told, flush=True)
                    assert eventually(lambda: len(b"".join(work.output).split()) == number)  # noqa: B023
                    clock.now, looks = clock.now + 1, clock.looks
                    assert eventually(lambda: clock.looks > looks)  # noqa: B023

        telling = threading.Thread(target=tell)
        telling.start()
        assert work.wait().rows == 5
        telling.join()
    assert clock.now == 5


def test_how_long_a_tool_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIMEOUT, raising=False)
    assert silent_seconds() == SILENT_SECONDS
    monkeypatch.setenv(TIMEOUT, "12.5")
    assert silent_seconds() == 12.5
    for text in ("0", "-1", "ten", "nan", "inf"):
        monkeypatch.setenv(TIMEOUT, text)
        with pytest.raises(InputError, match="TABLEFERRY_BCP_TIMEOUT should be a number of sec"):
            silent_seconds()
