"""What docs/schedules.md says of exit codes holds, of the commands of its example."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guide import DOCS
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command, ask_clickhouse

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT g, 'note' FROM generate_series(1, 50) g",
)


@pytest.mark.slow
def test_a_scheduler_goes_by_exit_codes(ferry: Callable[..., Ferry], tmp_path: Path) -> None:
    page = (DOCS / "schedules.md").read_text(encoding="utf-8")
    commands = re.findall(r'bash_command=f"\{FERRY\} ([^"]+)"', page)
    assert [command.split()[0] for command in commands] == ["run", "check"]
    one, command = ferry("['clickhouse://warehouse.{t}']", *TABLE), Command(tmp_path)
    move, prove = ([*line.replace("orders", one.table).split()] for line in commands)

    assert command.run(*move, TABLEFERRY_CRASH_AT="after_load") != 0, "killed"
    assert command.run(*move) == 0, command.output
    assert command.run(*prove) == 0, command.output
    ask_clickhouse(
        one, f"ALTER TABLE warehouse.{one.table} DELETE WHERE id = 7 SETTINGS mutations_sync = 2"
    )
    assert command.run(*prove) == 1
    assert "ferry: " in command.output
    assert command.run("run", one.table) == 0, "what a check has found is moved again"
    assert command.run(*prove) == 0, command.output
    assert command.run("run", "nothing") == 2
    away = {
        "TABLEFERRY_POSTGRES_URL": "postgresql://x@127.0.0.1:1/x",
        "TABLEFERRY_PATIENCE_SECONDS": "0",
    }
    assert command.run("run", one.table, **away) == 2
