"""The past runs of a transfer, among those of many others, on a real Dagster instance."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.events import DagsterEvent, DagsterEventType

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import queries
from tableferry.assets.log.history import RECENT_RUNS, past_runs
from tableferry.assets.log.runs import TRANSFER, seconds_of_last_runs
from tests.integration.support import homes

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
ORDERS = Transfer.model_validate(
    {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["clickhouse://w.orders"],
        "key": "id",
    }
)
TARGET = asset_key(ORDERS.hops[0].to)
OTHERS = 2_500


def add_run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    *,
    planned: str = "",
    tagged: str = "",
) -> str:
    """A run that has planned a check of the target, or is tagged with a transfer."""
    run = instance.add_run(
        dg.DagsterRun(
            ASSET_JOB,
            status=status,
            asset_selection=frozenset([TARGET]),
            tags={TRANSFER: tagged} if tagged else {},
        )
    )
    if planned:
        kind = DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value
        check = AssetCheckEvaluationPlanned(
            asset_key=TARGET, check_name=planned, partitions_subset=None
        )
        event = DagsterEvent(kind, ASSET_JOB, event_specific_data=check)
        instance.report_dagster_event(event, run.run_id)
    return run.run_id


def test_runs_are_found_however_many_others_came_after(tmp_path: Path) -> None:
    with homes.local_temp(tmp_path) as instance:
        runs = [
            add_run(instance, SUCCESS, planned="total_rows"),
            add_run(instance, SUCCESS, planned="row_count"),
            add_run(instance, FAILURE, tagged="orders"),
        ]
        other = instance.add_run(
            dg.DagsterRun(ASSET_JOB, asset_selection=frozenset([dg.AssetKey("other")]))
        )
        with sqlite3.connect(Path(instance.root_directory) / queries.RUNS) as files:
            names = [row[1] for row in files.execute("PRAGMA table_info(runs)")]
            columns = [name for name in names if name not in ("id", "run_id", "run_body")]
            same = ", ".join(f'"{name}"' for name in columns)
            files.execute(
                f"INSERT INTO runs (run_id, run_body, {same}) WITH RECURSIVE n(i) AS"
                f" (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {OTHERS})"
                f" SELECT 'other-' || i, replace(run_body, run_id, 'other-' || i), {same}"
                " FROM n JOIN runs ON run_id = ?",
                (other.run_id,),
            )
        files.close()
        found = past_runs(instance, ORDERS)
        assert [run.run_id for run in found] == runs[::-1]
        assert [run.outcome for run in found] == ["failed", "succeeded", "succeeded"]


def test_older_runs_are_read_only_for_a_success_of_each_target(tmp_path: Path) -> None:
    with homes.local_temp(tmp_path) as instance:
        good = add_run(instance, SUCCESS, planned="total_rows")
        failed = [add_run(instance, FAILURE, planned="total_rows") for _ in range(RECENT_RUNS + 2)]
        assert [run.run_id for run in past_runs(instance, ORDERS)] == [*failed[::-1], good]
        add_run(instance, SUCCESS, planned="total_rows")
        assert len(past_runs(instance, ORDERS)) == RECENT_RUNS


def test_a_run_that_failed_says_nothing_about_how_long_one_takes(tmp_path: Path) -> None:
    with homes.local_temp(tmp_path) as instance:
        good = add_run(instance, SUCCESS, tagged="orders")
        other = add_run(instance, SUCCESS, tagged="others")
        failed = add_run(instance, FAILURE, tagged="orders")
        home = Path(instance.root_directory)
        with sqlite3.connect(home / queries.RUNS) as files:
            for run_id, seconds in ((good, 300), (other, 7), (failed, 0.5)):
                files.execute(
                    "UPDATE runs SET start_time = 1000, end_time = ? WHERE run_id = ?",
                    (1000 + seconds, run_id),
                )
        files.close()
        targets = {"orders": ORDERS.hops[0].to}
        for last, seconds in ((good, 300), (failed, 300)):
            with sqlite3.connect(home / queries.INDEX) as files:
                files.execute("DELETE FROM asset_keys")
                files.execute(
                    "INSERT INTO asset_keys (asset_key, last_materialization, last_run_id)"
                    " VALUES (?, 'x', ?)",
                    (TARGET.to_string(), last),
                )
            files.close()
            assert seconds_of_last_runs(instance, targets) == {"orders": seconds}
        with queries.opened(home) as log:
            assert seconds_of_last_runs(log, targets) == {"orders": 300}
            missing = {"never": ORDERS.source, **targets}
            assert set(seconds_of_last_runs(log, missing)) == {"orders"}
