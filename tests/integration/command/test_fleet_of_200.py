"""`ferry run --all` of 200 tables of which two are broken, killed on its way and started again."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command, ask_clickhouse, reopen, runs_by_status
from tests.servers import own

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCHEMA = Path(__file__).parents[3] / "docs" / "fleet.schema.json"
TABLES = 200
NAMES = [f"t{number:03}" for number in range(1, TABLES + 1)]
SOURCE, COPIES = own("fleet"), own("fleet_copies")
NARROW, TAKEN, ELSEWHERE = "t003", "t006", "t009"
"""The tables with a value that does not fit, with a target of other columns, and with an override
that names another target."""
ENDED_BEFORE = 60
"""The number of transfers that end before all processes are killed."""

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY)",
    f"CREATE SCHEMA {SOURCE}",
    f"CREATE SCHEMA {COPIES}",
    # one in three has a key, one in twenty is empty
    f"""
    DO $$ BEGIN FOR n IN 1..{TABLES} LOOP
        EXECUTE format(
            'CREATE TABLE {SOURCE}.%1$s (id integer %4$s, n integer NOT NULL);'
            'INSERT INTO {SOURCE}.%1$s SELECT g, %2$s FROM generate_series(1, %3$s) g',
            to_char(n, 'FMt000'), n, n % 20, CASE n % 3 WHEN 0 THEN 'PRIMARY KEY' END);
    END LOOP; END $$""",
    f"UPDATE {SOURCE}.{NARROW} SET n = 40000 WHERE id = 3",
    f"CREATE TABLE {SOURCE}.tmp_import (id integer PRIMARY KEY)",
    f"CREATE TABLE {SOURCE}.t001_old (id integer PRIMARY KEY)",
    f"CREATE VIEW {SOURCE}.t_all AS SELECT * FROM {SOURCE}.t001",
    f"CREATE TABLE {COPIES}.{TAKEN} (id integer PRIMARY KEY, total numeric NOT NULL)",
)
DECLARATION = f"""\
tables: "postgres://{SOURCE}.t*"
exclude: ["tmp_*", "*_old"]
hops: ["postgres://{COPIES}.{{table}}"]
overrides:
  {NARROW}: {{ranges: {{bounds: [1, 3]}}, columns: {{n: {{type: smallint}}}}}}
  {ELSEWHERE}: {{hops: ["clickhouse://warehouse.{{schema}}_{{table}}"], tags: {{size: small}}}}
"""


@dataclass
class Fleet:
    """The declared tables, and the command that moves them."""

    one: Ferry
    """Holds the servers, the folder and the event log."""
    command: Command

    def commits(self) -> Counter[tuple[str, str | None]]:
        """Count how often each range of each table was committed, by the event log."""
        reopen(self.one)
        events = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION)
        counts: Counter[tuple[str, str | None]] = Counter()
        for record in self.one.session.instance.event_log_storage.get_event_records(events):
            event = record.asset_materialization
            assert event is not None
            if event.metadata["tableferry/state"].value == "committed":
                counts[event.asset_key.path[-1].removeprefix(f"{SOURCE}_"), event.partition] += 1
        return counts

    def rows(self, schema: str, *but: str) -> list[tuple[Any, ...]]:
        """Return the rows of all tables of a schema but some."""
        return self.one.rows(
            " UNION ALL ".join(
                f"SELECT '{name}', id, n FROM {schema}.{name}" for name in NAMES if name not in but
            )
            + " ORDER BY 1, 2"
        )

    def report(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code of the report, and the report."""
        result = CliRunner().invoke(main, ["report", "--all", "--format", "json"])
        document = json.loads(result.stdout)
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        return result.exit_code, document


@pytest.fixture
def fleet(ferry: Callable[..., Ferry], tmp_path: Path) -> Iterator[Fleet]:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    (one.folder / "t.yaml").unlink()
    (one.folder / "fleet.yaml").write_text(DECLARATION)
    yield Fleet(one, Command(tmp_path))
    one.source(f"DROP SCHEMA {SOURCE} CASCADE", f"DROP SCHEMA {COPIES} CASCADE")
    ask_clickhouse(one, f"DROP TABLE IF EXISTS warehouse.{SOURCE}_{ELSEWHERE}")


def test_a_killed_fleet_goes_on_where_it_stopped(fleet: Fleet) -> None:
    command, folder = fleet.command, fleet.one.folder
    refreshed = CliRunner().invoke(main, ["refresh"])
    assert refreshed.exit_code == 0, refreshed.output
    lock = yaml.safe_load((folder / "fleet.lock.yaml").read_text())
    assert [*lock["tables"]] == [f"{SOURCE}.{name}" for name in NAMES]
    assert [*lock["left_out"]] == [f"{SOURCE}.t_all"]

    began = time.monotonic()
    command.start("run", "--all", "--jobs", "2")
    while f"{ENDED_BEFORE} of {TABLES}: " not in command.output:
        assert command.running and time.monotonic() - began < 300, command.output
        time.sleep(0.05)
    command.kill_all()
    finished = set(re.findall(r"(?m)^\d+ of 200: (t\d+): ok, ", command.output))
    assert len(finished) >= ENDED_BEFORE - 2, "the broken ones have stopped no other"
    before = fleet.commits()
    assert finished <= {table for table, _ in before} < set(NAMES)

    assert command.run("run", "--all", "--jobs", "2") == 1
    lines = command.output.splitlines()
    assert any(line.startswith("198 of 200 transfers succeeded; ") for line in lines), lines
    (too_great,) = (line for line in lines if line.startswith(f"ferry: {NARROW}: "))
    assert "column 'n', key '3': value '40000' is outside of -32768..32767" in too_great
    (other_columns,) = (line for line in lines if line.startswith(f"ferry: {TAKEN}: "))
    assert f"postgres://{COPIES}.{TAKEN}" in other_columns
    unmoved = set(re.findall(r"(?m)^\d+ of 200: (t\d+): ok, nothing to move", command.output))
    assert finished <= unmoved
    after = fleet.commits()
    assert {*after.values()} == {1}, "what was committed is not moved again"
    assert before.keys() <= after.keys()
    assert all(status in FINISHED_STATUSES for status in runs_by_status(fleet.one).values())
    others = (NARROW, TAKEN, ELSEWHERE)
    assert fleet.rows(COPIES, *others) == fleet.rows(SOURCE, *others)
    arrived = ask_clickhouse(
        fleet.one, f"SELECT count(), sum(n) FROM warehouse.{SOURCE}_{ELSEWHERE}"
    )
    assert arrived == [(9, 81)]

    exit_code, report = fleet.report()
    assert (exit_code, report["passed"]) == (1, False)
    assert (report["totals"]["failed"], report["totals"]["proven"]) == (2, 198)
    problems = {item["transfer"]: item["problems"] for item in report["transfers"][:2]}
    assert "column 'n', key '3': value '40000'" in problems[NARROW][0]
    assert f"postgres://{COPIES}.{TAKEN}: no run has moved it yet" in problems[TAKEN]

    fleet.one.source(
        f"UPDATE {SOURCE}.{NARROW} SET n = 3 WHERE id = 3", f"DROP TABLE {COPIES}.{TAKEN}"
    )
    assert command.run("run", "--all", "--jobs", "2") == 0, command.output
    mended = fleet.commits()
    assert {table for table, _ in mended - after} == {NARROW, TAKEN}
    assert {*mended.values()} == {1}
    assert fleet.rows(COPIES, ELSEWHERE) == fleet.rows(SOURCE, ELSEWHERE)
    exit_code, report = fleet.report()
    assert (exit_code, report["passed"]) == (0, True)
    assert report["totals"]["proven"] == 200
    assert report["totals"]["rows"] == len(fleet.rows(SOURCE))
