"""`ferry run --evidence`, and the setting: files say what a run did, by the log's records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.log import trail as evidence
from tableferry.checks import whole_table
from tableferry.checks.verdict import Verdict
from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry
from tests.integration.support import dagster_process
from tests.integration.support.dagster_process import Forked
from tests.integration.support.interface import served

pytestmark = pytest.mark.integration

HOPS = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, n integer)",
    "INSERT INTO {t} SELECT g, g FROM generate_series(1, 300) g",
)
BOUNDS = "{bounds: [101, 201]}"


def run(one: Ferry, *options: str) -> Result:
    return CliRunner().invoke(main, ["run", one.table, "--quiet", *options])


def documents(folder: Path) -> list[dict[str, Any]]:
    """The runs' JSON, in order."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))]
    return [json.loads(text) for text in texts]


def trail(folder: Path) -> list[dict[str, Any]]:
    """The lines of the trail."""
    return [json.loads(line) for line in (folder / "trail.jsonl").read_text().splitlines()]


def test_a_run_leaves_what_it_did_and_adds_to_the_trail(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one, folder = ferry(HOPS, *TABLE, ranges=BOUNDS), tmp_path / "evidence"
    assert run(one, "--evidence", str(folder)).exit_code == 0
    (first,) = documents(folder)
    assert first["ok"] and first["transfer"] == one.table and len(first["run_ids"]) == 1
    committed = [line for line in trail(folder) if line.get("state") == "committed"]
    assert [line["rows"] for line in committed] == [100, 100, 100]
    assert {line["run_id"] for line in committed} == {*first["run_ids"]}
    verdicts = [line for line in trail(folder) if "check" in line]
    assert {line["check"] for line in verdicts} >= {"row_count", "checksum"}
    assert all(line["passed"] for line in verdicts)
    text = next(folder.glob("*.md")).read_text(encoding="utf-8")
    assert f"# {one.table}: passed" in text
    for line in committed:
        assert f"| {line['range']} | committed | 100 |" in text

    before = trail(folder)
    assert run(one, "--evidence", str(folder)).exit_code == 0
    second = documents(folder)[1]
    assert second["ok"] and second["run_ids"] == second["trail"] == []
    assert {range_["state"] for range_ in second["ranges"]} == {"skipped_unchanged"}
    assert trail(folder) == before, "nothing moved"


def test_a_run_that_fails_leaves_why(ferry: Callable[..., Ferry], tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    one = ferry(HOPS, *TABLE, ranges=BOUNDS, columns="{n: {type: UInt8}}", evidence=f"'{folder}'")
    assert run(one).exit_code == 1
    (failed,) = documents(folder)
    assert not failed["ok"] and "column 'n', key 256" in "".join(failed["errors"])
    states = {line["state"] for line in trail(folder) if "state" in line}
    assert states >= {"committed", "failed"}
    (why,) = {line["error"] for line in trail(folder) if line.get("state") == "failed"}
    assert "column 'n', key 256" in why
    assert "NOT PASSED" in next(folder.glob("*.md")).read_text(encoding="utf-8")


def test_where_nothing_can_be_written_the_run_has_ended_all_the_same(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry(HOPS, *TABLE)
    (tmp_path / "file").touch()
    for several in ((), ("--all",)):
        words = ("--json", "--quiet", "--evidence", str(tmp_path / "file" / "folder"))
        result = CliRunner().invoke(main, ["run", *(several or [one.table]), *words])
        assert result.exit_code == 1
        why = f"{one.table}: its run has ended, but the evidence cannot be"
        document = json.loads(result.stdout)
        assert not document["ok"] and why in document["errors"][0], "as the exit code says"
        assert f"ferry: {why}" in result.stderr
    assert run(one).exit_code == 0
    assert {view.state for view in one.plan().ranges} == {"skip"}


def job(output: Path) -> str:
    """Have Dagster's own command run the job of all assets; returns what it says."""
    arguments = ["job", "execute", "-m", "tableferry.pipelines.definitions", "-j", ASSET_JOB]
    process = Forked(dagster_process.dagster, arguments, {**os.environ}, output)
    assert process.wait(300) == 0, output.read_text()
    return output.read_text()


def test_runs_that_dagster_starts_leave_it_as_well(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    folder = tmp_path / "evidence"
    one = ferry(HOPS, *TABLE, ranges=BOUNDS, evidence=f"'{folder}'")
    job(tmp_path / "said")
    (run_id,) = (run.run_id for run in one.session.instance.get_runs())
    (first,) = documents(folder)
    assert first["ok"] and first["run_ids"] == [run_id] and first["transfer"] == one.table
    assert [range_["rows"] for range_ in first["ranges"]] == [100, 100, 100]
    assert all(
        range_["checks"] == {"row_count": True, "checksum": True} for range_ in first["ranges"]
    )
    assert first["trail"] == [
        {name: line[name] for name in line if name != "transfer"} for line in trail(folder)
    ]
    states = [line["state"] for line in trail(folder) if "state" in line]
    assert states.count("committed") == 3
    text = next(folder.glob("*.md")).read_text(encoding="utf-8")
    assert f"# {one.table}: passed" in text and text.count("| committed | 100 |") == 3

    one.declare(HOPS, ranges=BOUNDS, evidence="/dev/null/folder")
    one.source("UPDATE {t} SET n = 0 WHERE id = 1")
    assert "its run has ended, but the evidence cannot be written: " in job(tmp_path / "again")
    newest, _ = one.session.instance.get_runs()
    assert newest.status is dg.DagsterRunStatus.SUCCESS
    assert {view.state for view in one.plan().ranges} == {"skip"}


def test_a_whole_table_that_fails_is_told_as_well(
    ferry: Callable[..., Ferry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evidence"
    one = ferry(HOPS, *TABLE, ranges=BOUNDS, evidence=f"'{folder}'")
    bad = Verdict(whole_table.UNIQUE, False, {}, {}, 0)
    monkeypatch.setattr(whole_table, "_unique_key", lambda target: bad)
    assert one.launch().success
    (document,) = documents(folder)
    assert not document["ok"]
    assert any("unique_key FAILED" in error for error in document["errors"])


def test_what_goes_wrong_in_telling_fails_no_run(
    ferry: Callable[..., Ferry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *TABLE, ranges=BOUNDS, evidence=f"'{tmp_path / 'evidence'}'")
    monkeypatch.setattr(evidence, "trail", None)
    assert one.launch().success
    assert {view.state for view in one.plan().ranges} == {"skip"}
    (run_id,) = (run.run_id for run in one.session.instance.get_runs())
    errored = dg.DagsterEventType.HOOK_ERRORED
    assert one.session.instance.all_logs(run_id, of_type=errored), "and the run's log says so"


def test_a_backfill_of_single_ranges_leaves_each(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    folder = tmp_path / "evidence"
    settings = {"ranges": "{count: 3}", "parallel": "{runs: 4}", "evidence": f"'{folder}'"}
    columns = "{n: {type: UInt8}}"

    def make() -> Ferry:
        return ferry(HOPS, *TABLE, columns=columns, **settings)

    with served(make, tmp_path / "dagster") as (one, api):
        assert run(one, "--evidence", str(tmp_path / "first")).exit_code == 1
        assert not folder.exists(), "where a command is told to, and there alone"
        one.source("UPDATE {t} SET n = 0 WHERE id = 1")
        instance = one.session.instance
        ranges = [*instance.get_dynamic_partitions(one.session.transfer(one.table).partitions_name)]
        target = ["clickhouse", "warehouse", one.table]
        of_runs = api.launch_backfill([target], [ranges[0], ranges[2]])
        assert len(of_runs) == 2
        of_runs += api.launch_backfill([target], [ranges[1]])
    by_range = {document["ranges"][0]["range"]: document for document in documents(folder)}
    assert {document["run_ids"][0] for document in by_range.values()} == {*of_runs}
    assert by_range[ranges[0]]["ok"] and by_range[ranges[1]]["ok"]
    assert not by_range[ranges[2]]["ok"] and "column 'n'" in by_range[ranges[2]]["errors"][0]
    ended = {line["range"]: line["state"] for line in trail(folder) if "state" in line}
    assert ended == dict(zip(ranges, ("committed", "skipped_unchanged", "failed"), strict=False))


def test_no_evidence_is_left_unasked(ferry: Callable[..., Ferry], tmp_path: Path) -> None:
    one = ferry(HOPS, *TABLE)
    before = {*tmp_path.rglob("*.json*"), *tmp_path.rglob("*.md")}
    assert run(one).exit_code == 0
    assert {*tmp_path.rglob("*.json*"), *tmp_path.rglob("*.md")} == before
