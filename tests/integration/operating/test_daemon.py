"""The real Dagster daemon: its sensors find work, its runs do it, its alert is heard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.log.runs import TRANSFER
from tableferry.sensors.rounds import FIRST_PAUSE
from tableferry.sensors.sending import ALERTS
from tests.integration.conftest import Ferry
from tests.integration.support import dagster_process
from tests.integration.support.beside import until
from tests.integration.support.crashing import rows_of
from tests.integration.support.dagster_process import Forked

pytestmark = pytest.mark.timeout(900)

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date NOT NULL)",
    "INSERT INTO {t} SELECT g, 'x', '2024-01-01' FROM generate_series(1, 50) g",
    "UPDATE {t} SET amount = '0044-03-15 BC' WHERE id = 30",
)
FIRST, SECOND = "..0000000026", "0000000026..0000000051"
Make = Callable[..., Ferry]


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is POSTed to the alert's web hook."""
    heard: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(ALERTS, f"json://127.0.0.1:{server.server_port}/")
        yield heard
        server.shutdown()


@contextmanager
def daemon(log: Path) -> Iterator[None]:
    process = Forked(dagster_process.daemon, ["run", "-w", "workspace.yaml"], {**os.environ}, log)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def make_older(one: Ferry, seconds: float) -> None:
    """Repeat the record of the failure with an older time, as if it had failed long ago."""
    instance = one.session.instance
    asset = dg.AssetKey(["clickhouse", "warehouse", one.table])
    (stored,) = instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[SECOND]), limit=1
    ).records
    entry = stored.event_log_entry
    instance.handle_new_event(entry._replace(timestamp=entry.timestamp - seconds))


@pytest.mark.slow
def test_the_daemon_mends_what_failed_moves_what_is_new_and_tells_of_failures(
    ferry: Make,
    alerts: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 25}")
    failed = one.run()
    assert [view.range for view in failed.ranges if view.state == "failed"] == [SECOND]
    make_older(one, FIRST_PAUSE + 60)
    one.source(
        "UPDATE {t} SET amount = '2000-01-01' WHERE id = 30",
        "INSERT INTO {t} SELECT g, 'y', '2024-01-01' FROM generate_series(51, 75) g",
    )
    before = one.materializations("clickhouse", "warehouse")
    said = tmp_path / "started.log"
    arguments = ["sensor", "start", "--start-all", "-w", "workspace.yaml"]
    started = Forked(dagster_process.dagster, arguments, {**os.environ}, said)
    assert started.wait(300) == 0, said.read_text()
    log = tmp_path / "daemon.log"
    with daemon(log):
        until("all rows", lambda: rows_of(one, "clickhouse") == rows_of(one, "postgres"), log=log)
        ended(one, log)
        assert alerts == []
        moved = one.materializations("clickhouse", "warehouse")
        assert moved.pop(SECOND) == 1
        assert moved.pop(FIRST) == before[FIRST] == 1, "what was good was left alone"
        # a failure of a run that the daemon started
        one.source("INSERT INTO {t} VALUES (101, 'z', '0044-03-15 BC')")
        until("the alert", lambda: alerts, log=log)
    (alert, *_) = alerts
    assert alert["title"].startswith(f"Tableferry: {one.table} failed")
    assert alert["type"] == "failure"
    assert "'amount'" in alert["message"] and "101" in alert["message"]
    failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
    newest, *_ = one.session.instance.get_runs(failed)
    assert newest.tags["dagster/sensor_name"] == "new_ranges"


def ended(one: Ferry, log: Path) -> None:
    """Wait until no run is under way."""
    instance = one.session.instance
    until("the runs' end", lambda: all(run.is_finished for run in instance.get_runs()), log=log)


@pytest.mark.slow
def test_the_daemon_launches_and_retries_what_a_schedule_could_not_plan(
    ferry: Make,
    alerts: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']", *TABLE[:2], ranges="{rows: 25}", schedule="'* * * * *'"
    )
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", "http://default:x@127.0.0.1:1/warehouse")
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    said = tmp_path / "started.log"
    for arguments in (
        ["schedule", "start", f"{one.table}_schedule", "-w", "workspace.yaml"],
        ["sensor", "start", "failure_alert", "-w", "workspace.yaml"],
    ):
        started = Forked(dagster_process.dagster, arguments, {**os.environ}, said)
        assert started.wait(300) == 0, said.read_text()
    instance, log = one.session.instance, tmp_path / "daemon.log"

    def retried() -> list[dg.DagsterRun]:
        return [
            run
            for run in instance.get_runs(dg.RunsFilter(tags={TRANSFER: one.table}))
            if run.parent_run_id is not None
        ]

    with daemon(log):
        until("a retry", retried, log=log)
        until("the alert", lambda: alerts, log=log)
        ended(one, log)
    assert all(run.tags["dagster/max_retries"] == "5" for run in retried())
    assert "clickhouse" in alerts[0]["title"]
