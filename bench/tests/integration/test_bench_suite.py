"""The bench from end to end, on few rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry_bench.cli import bench
from tableferry_bench.meter import Command, Finished, run
from tableferry_bench.results import Result
from tests.servers import Servers

pytestmark = pytest.mark.slow

ROWS = 700
ALL = (
    *("ferry", "psql-curl", "clickhouse-pull", "psql-freebcp", "freebcp-curl", "pandas", "dlt"),
    *("sling", "ferry-postgres", "psql-psql", "ferry-parquet", "curl-parquet"),
)


@pytest.fixture
def bare(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> Servers:
    """The servers in the environment, and nobody's event log."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return stack


def left(stack: Servers) -> list[object]:
    """Tables of the bench on the servers."""
    with psycopg.connect(stack.postgres_url) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'ferry\\_bench\\_%' AND relkind = 'r'"
        ).fetchall()
    clickhouse = ClickHouseResource(url=stack.clickhouse_url)
    rows = clickhouse.query(
        "SELECT name FROM system.tables "
        r"WHERE name LIKE 'ferry\_bench\_%' AND database = currentDatabase()"
    )
    return [*found, *rows]


def test_a_suite_moves_the_rows_in_every_way(bare: Servers, tmp_path: Path) -> None:
    thresholds = tmp_path / "thresholds.yaml"
    thresholds.write_text(
        "thresholds:\n"
        "  - name: quick enough\n"
        f"    of: {{workload: wide, rows: {ROWS}, contender: ferry, metric: rows_per_second}}\n"
        "    against: {contender: psql-curl}\n"
        "    at_least: 1000\n"
    )
    words = ["run", "-w", f"wide:{ROWS}", "-n", "1", "--warmups", "0"]
    for name in ALL:
        words += ["-c", name]
    words += ["--thresholds", str(thresholds), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(bench, words)
    result = Result.read(tmp_path / "out" / "result.json")
    cases = {case.contender: case for case in result.cases}
    assert {name: case.failed for name, case in cases.items() if case.failed} == {}
    measured = {name for name, case in cases.items() if case.runs}
    assert measured >= {"ferry", "psql-curl", "ferry-postgres", "ferry-parquet", "curl-parquet"}
    for name in set(ALL) - measured:
        assert cases[name].skipped
    assert all(case.runs[0].rows == ROWS for case in cases.values() if case.runs)
    ferry = cases["ferry"].runs[0]
    assert {"start", "fingerprint", "ranges", "end", "export", "load"} <= set(ferry.phases)
    outer = sum(ferry.phases[name] for name in ("start", "fingerprint", "ranges", "end"))
    assert outer == pytest.approx(ferry.seconds, rel=0.02)
    assert ferry.skew is not None
    assert ferry.peak_rss_bytes > 50_000_000
    assert ferry.cpu_seconds["client"]
    assert 0 < (ferry.system_seconds["client"] or 0) < ferry.cpu_seconds["client"]
    stored = ferry.stored["clickhouse"]
    assert stored.disk_bytes > 0 and (stored.uncompressed_bytes or 0) > 20 * ROWS
    assert cases["ferry-postgres"].runs[0].stored["postgres"].disk_bytes > 20 * ROWS
    prepared = cases["source-preparation"].runs[0]
    assert prepared.seconds > 0 and "client" not in prepared.cpu_seconds
    # nothing is a thousand times as fast as a bare pipe
    assert done.exit_code == 1
    assert "quick enough: " in done.stderr
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert [one["outcome"] for one in verdict["findings"]] == ["passed", "failed"]
    text = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.*"))
    for url in bare.environment().values():
        assert url.partition("@")[0].rpartition(":")[2] not in text, "no password"
        assert url.partition("@")[2].partition("/")[0] not in text, "no address"
    assert left(bare) == []


def test_many_tables_are_declared_written_moved_and_found_unchanged(
    bare: Servers, tmp_path: Path
) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        "suite: mine\nruns: 1\nwarmups: 0\ntables:\n"
        "  - {workload: 'transfers:3', contenders: [fleet-definitions]}\n"
        "  - workload: 'tables:2'\n"
        "    contenders: [fleet-definitions, fleet-init, fleet-nothing-one-hop]\n"
    )
    words = ["run", "--suite", str(suite), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(bench, words)
    assert done.exit_code == 1
    assert "fleet-definitions goes with the workload transfers" in done.stderr
    result = Result.read(tmp_path / "out" / "result.json")
    rows = [(case.contender, case.runs[0].rows) for case in result.cases if case.runs]
    assert rows == [
        ("fleet-definitions", 3),
        ("fleet-init", 2),
        ("fleet-nothing-one-hop", 2),
    ]
    with psycopg.connect(bare.postgres_url) as connection:
        schemas = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ferry\\_bench\\_%'"
        ).fetchall()
    assert schemas == [] and left(bare) == []


def test_the_lab_reads_the_rows_in_every_way(bare: Servers, tmp_path: Path) -> None:
    words = ["lab", "-w", f"narrow:{ROWS}", "-n", "1", "--warmups", "0", "--output", str(tmp_path)]
    done = CliRunner().invoke(bench, words)
    assert done.exit_code == 0, done.stderr
    result = Result.read(tmp_path / "result.json")
    assert len(result.cases) == 9, "with the making of the source"
    assert all(case.runs[0].rows == ROWS for case in result.cases if not case.skipped)
    assert "certified: thresholds: 1 passed" in done.stdout
    assert json.loads((tmp_path / "verdict.json").read_text())["passed"]
    assert "adbc reads fastest what becomes Arrow batches." in (tmp_path / "report.md").read_text()
    assert left(bare) == []


def test_staging_fills_the_table_directly_and_out_of_sight(bare: Servers, tmp_path: Path) -> None:
    words = ["staging", "--rows", "5000", "-e", "strategy", "-n", "1", "--warmups", "0"]
    limits = tmp_path / "limits.yaml"
    limits.write_text(
        "thresholds:\n"
        "  - name: compressed\n"
        "    of: {workload: wide, rows: 5000, contender: staging-strategy,\n"
        "         metric: disk_bytes_per_row, options: {strategy: staged}}\n"
        "    at_most: 1000\n"
    )
    words += ["--thresholds", str(limits)]
    done = CliRunner().invoke(bench, [*words, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert "certified: thresholds: 2 passed" in done.stdout
    cases = {case.options["strategy"]: case for case in Result.read(tmp_path / "result.json").cases}
    assert all(case.runs[0].rows == 5000 for case in cases.values())
    assert cases["direct"].runs[0].phases["publish"] == 0
    assert cases["staged"].runs[0].phases["publish"] > 0
    assert left(bare) == []


def test_a_table_whose_data_are_not_installed_is_left_out(
    bare: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    words = ["run", "-w", "lineitem:0.001", "-n", "1", "--output", str(tmp_path)]
    done = CliRunner().invoke(bench, words)
    assert "lineitem:0.001 was left out: lineitem is made by tpchgen-cli" in done.stderr
    assert "was left out" in (tmp_path / "report.md").read_text()
    assert left(bare) == []


def test_an_interrupted_suite_leaves_the_tables_before(
    bare: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        "suite: mine\nruns: 5\nwarmups: 0\ntables:\n"
        "  - {workload: 'narrow:50', contenders: [psql-curl], runs: 2}\n"
        "  - {workload: 'narrow:60', contenders: [psql-curl]}\n"
    )
    ran: list[Command] = []

    def interrupted(command: Command) -> Finished:
        ran.append(command)
        if len(ran) == 4:
            raise KeyboardInterrupt
        return run(command)

    monkeypatch.setattr("tableferry_bench.suite.run", interrupted)
    done = CliRunner().invoke(
        bench, ["run", "--suite", str(suite), "--output", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert "ferry: all rows arrived, or were read: it was interrupted" in done.stderr
    result = Result.read(tmp_path / "out" / "result.json")
    assert not result.complete
    assert [(case.contender, case.rows, len(case.runs)) for case in result.cases] == [
        ("source-preparation", 50, 1),
        ("psql-curl", 50, 2),
    ]
    assert result.notes == ("interrupted in narrow:60, of which nothing is kept",)
    assert left(bare) == []
