"""What `ferry prune` deletes, and that nothing which a transfer resumes from is among it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.log.history import coverage
from tableferry.pipelines.command.session import open_session
from tests.integration.conftest import Ferry
from tests.integration.support import homes
from tests.integration.support.command import command

pytestmark = homes.of_files
Make = Callable[..., Ferry]
DIRECT = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2), at timestamptz)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5, '2024-01-01 00:00:00+00'::timestamptz"
    " + g * interval '1 hour' FROM generate_series(1, 300) g",
)
RANGES = "{bounds: [101, 201]}"
LAST = "0000000201.."


def status(one: Ferry) -> Any:
    return json.loads(command("status", one.table, "--json").stdout)


def planned(one: Ferry) -> Any:
    """The plan without how long the last runs took, in which no two are alike."""
    plan = json.loads(command("plan", one.table, "--json").stdout)
    return {name: value for name, value in plan.items() if name != "outlook"}


def stored(one: Ferry, home: Path) -> dict[str, int]:
    """Rows of Dagster's tables, by run."""
    found: dict[str, int] = {}
    with sqlite3.connect(home / "history" / "runs" / "index.db") as index:
        for table in ("event_logs", "asset_check_executions"):
            for run_id, rows in index.execute(f"SELECT run_id, count(*) FROM {table} GROUP BY 1"):
                found[run_id] = found.get(run_id, 0) + rows
    return found


def test_what_a_transfer_resumes_from_stays(ferry: Make, tmp_path: Path) -> None:
    query = "SELECT * FROM {table} WHERE {range} AND amount < 0"
    expected = f"\n  - {{type: sql, kwargs: {{query: '{query}'}}}}"
    one = ferry(DIRECT, *TABLE, ranges=RANGES, expectations=expected)
    assert one.run().good
    moved_twice = one.run(force=True).run_ids
    one.source("UPDATE {t} SET name = 'other' WHERE id = 1")
    (first_alone,) = one.run().run_ids
    one.source("UPDATE {t} SET amount = -1 WHERE id = 250")
    failed = one.run()
    assert not failed.good
    before, plan = status(one), planned(one)
    runs = {run.run_id for run in one.session.instance.get_runs()}
    told = json.loads(command("prune", "--keep", "0d", "--dry-run", "--json").stdout)
    assert {run.run_id for run in one.session.instance.get_runs()} == runs
    assert command("prune", "--keep", "1h").stdout.startswith("0 runs deleted; kept are 4 that")
    pruned = json.loads(command("prune", "--keep", "0d", "--json").stdout)
    assert pruned["deleted"] == told["deleted"]
    (gone,) = pruned["deleted"]
    assert gone == min(runs - {*moved_twice, first_alone, *failed.run_ids})
    assert set(pruned["needed"]) == {*moved_twice, first_alone, *failed.run_ids}
    home = tmp_path / "dagster"
    assert gone not in stored(one, home), "neither events nor verdicts are left"
    assert not list((home / "history" / "runs").glob(f"{gone}*"))
    one.session = open_session()
    assert status(one) == before
    assert planned(one) == plan
    assert command("report", one.table).exit_code == 1, "it has the failed run still"
    one.source("UPDATE {t} SET amount = 1 WHERE id = 250")
    again = one.run(failed=True)
    assert again.good, again.errors
    assert one.moved(again) == [LAST], "it goes on with the failed range alone"
    assert command("prune", "--keep", "0d").exit_code == 0
    one.session = open_session()
    nothing = one.run()
    assert (nothing.good, nothing.run_ids) == (True, []), "nothing is to do, and nothing is done"
    assert {view.state for view in nothing.ranges} == {"skipped_unchanged"}


def test_a_check_of_some_ranges_answers_for_no_target(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges=RANGES)
    assert one.run().good
    assert command("check", one.table).exit_code == 0
    assert command("check", one.table, "--range", "..0000000101").exit_code == 0
    targets = frozenset({dg.AssetKey(["clickhouse", "warehouse", one.table])})
    runs = reversed(one.session.instance.get_runs())
    assert [coverage(run, targets) for run in runs] == [
        ("move", targets),
        ("check", targets),
        ("check", frozenset()),
    ]


def test_runs_of_others_are_never_touched(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges=RANGES)

    @dg.job
    def of_somebody_else() -> None:
        pass

    other = of_somebody_else.execute_in_process(instance=one.session.instance).run_id
    pruned = json.loads(command("prune", "--keep", "0d", "--json").stdout)
    assert (pruned["deleted"], pruned["recent"]) == ([], 0)
    assert one.session.instance.get_run_by_id(other) is not None


@pytest.mark.parametrize("text", ["90", "d", "-1d", "3 months"])
def test_an_age_is_given_in_hours_days_or_weeks(text: str, ferry: Make) -> None:
    result = command("prune", f"--keep={text}")
    assert result.exit_code == 2
    assert "as 36h, 90d or 12w" in result.stderr
