"""Commands and the local stack of other distributions."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from tableferry.pipelines.command import plugins
from tests.pipelines.command_line import assert_one_clear_line, ferry

pytestmark = pytest.mark.usefixtures("surroundings")


def test_without_servers_and_local_stack_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for system in ("POSTGRES", "SQLSERVER", "CLICKHOUSE"):
        monkeypatch.delenv(f"TABLEFERRY_{system}_URL")
    monkeypatch.setattr(plugins, "entry_points", lambda **_: EntryPoints())
    for command in (["plan", "orders"], ["validate"], ["doctor"]):
        assert_one_clear_line(ferry(*command), 2, "TABLEFERRY_POSTGRES_URL", "tableferry-local")
    result = ferry("local", "up")
    assert result.exit_code == 2
    assert "comes with tableferry-local" in result.output


def test_a_misused_command_is_told_as_all_errors_are() -> None:
    for arguments, said in (
        (["check", "-q"], "No such option"),
        (["run", "orders", "--range"], "requires an argument"),
        (["chck"], "No such command 'chck'"),
        (["diff"], "Missing argument 'TRANSFER'"),
        (["local", "start"], "No such command"),
    ):
        result = ferry(*arguments)
        *_, last = result.stderr.splitlines()
        assert (result.exit_code, last[:7]) == (2, "ferry: ") and said in last, result.output


@pytest.mark.parametrize("arguments", [["--help"], ["schema"]])
def test_output_that_cannot_be_written_is_said_in_one_line(
    arguments: list[str], surroundings: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tableferry.pipelines.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ferry: standard output: No space left on device"
    assert "Traceback" not in ended.stderr
