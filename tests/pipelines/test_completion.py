"""Completion in the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main

pytestmark = pytest.mark.usefixtures("surroundings")


@pytest.mark.parametrize("command", ["run", "status", "plan", "check", "diff", "validate", "clean"])
def test_shells_complete_names_of_transfers(command: str, surroundings: Path) -> None:
    (surroundings / "other.yaml").write_text('transfer: "other"\n')
    (surroundings / "bad.yaml").write_text("transfers: [\n")
    environment = {"_FERRY_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for typed, expected in (("", ["orders", "other"]), ("ot", ["other"]), ("x", [])):
        words = {"COMP_WORDS": f"ferry {command} {typed}"}
        done = CliRunner().invoke(main, [], env=environment | words, prog_name="ferry")
        assert [line.removeprefix("plain,") for line in done.output.split()] == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_have_their_completion(shell: str) -> None:
    environment = {"_FERRY_COMPLETE": f"{shell}_source"}
    done = CliRunner().invoke(main, [], env=environment, prog_name="ferry")
    assert "_FERRY_COMPLETE=" in done.output
