"""An instance whose event log is in no database that can be queried is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry
from tests.integration.operating.test_ticks import schedule_tick, tick
from tests.integration.support.elsewhere import SETTINGS

CLASS = "tests.integration.support.elsewhere.EventLogElsewhere"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 30) g",
)


def assert_told(text: str) -> None:
    assert CLASS in text and "DAGSTER_HOME" in text and "SQLite, PostgreSQL or MySQL" in text
    assert "Traceback" not in text


@pytest.fixture
def one(ferry: Callable[..., Ferry], tmp_path: Path) -> Ferry:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS.format(folder=tmp_path / "elsewhere"))
    return ferry(
        "['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 10}", schedule="'0 3 * * *'"
    )


def test_every_command_refuses_it_and_says_what_to_do(one: Ferry) -> None:
    for arguments in (
        *(("run", one.table), ("plan", one.table), ("status", one.table), ("status",)),
        *(
            ("check", one.table),
            ("repair", one.table),
            ("diff", one.table, "--range", "..11"),
            ("report", one.table),
        ),
        *(("adopt", one.table), ("prune", "--keep", "1d")),
    ):
        found = CliRunner().invoke(main, [*arguments])
        assert found.exit_code == 2, (arguments, found.output)
        assert_told(found.stderr)
    found = CliRunner().invoke(main, ["doctor"])
    assert found.exit_code == 1
    (line,) = [line for line in found.stdout.splitlines() if CLASS in line]
    assert "problem" in line


def test_runs_sensors_and_schedules_say_so_too(one: Ferry) -> None:
    run = one.launch(raise_on_error=False)
    (failure,) = [event for event in run.all_events if event.is_step_failure]
    data = failure.step_failure_data.user_failure_data
    assert data is not None and data.description is not None
    assert_told(data.description)
    for sensor in ("new_ranges", "failed_ranges"):
        assert_told(str(tick(one, sensor).skip_message))
    with pytest.raises(dg.DagsterUserCodeExecutionError) as refused:
        schedule_tick(one, "schedule")
    assert_told(str(refused.value.user_exception))
