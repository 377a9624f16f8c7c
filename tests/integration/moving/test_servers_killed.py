"""The servers are killed in the middle of a run; when they are back, it goes on, or the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tableferry.assets.running import moving
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.resources import crash_points
from tableferry_local.stack import Stack
from tests.integration.conftest import Ferry, by_range
from tests.integration.support.crashing import reopen, rows_of, staging_tables

pytestmark = pytest.mark.integration

SYSTEMS = {"sqlserver": "dbo", "clickhouse": "warehouse"}
HOPS = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"


@pytest.fixture
def ferry(own_stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ferry]:
    """PostgreSQL to SQL Server to ClickHouse, 4 ranges."""
    for name, value in own_stack.environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "transfers"
    folder.mkdir()
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setattr("tableferry.resources.connecting.retry.FIRST_SECONDS", 0.25)
    one = Ferry(own_stack, folder, f"killed_{time.monotonic_ns()}", open_session())
    one.source(
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 800) g",
    )
    one.declare(HOPS, ranges="{rows: 200}")
    yield one
    one.session.instance.dispose()


def kill_at(
    monkeypatch: pytest.MonkeyPatch,
    stack: Stack,
    servers: list[str],
    point: str,
    nth: int,
    module: ModuleType = moving,
) -> Callable[[], None]:
    """Kill servers when the run is at a point the nth time, and start them again after a moment.

    Returns a function that waits until they are back.
    """
    seen = 0
    lock = threading.Lock()
    back = threading.Event()

    def restart() -> None:
        time.sleep(0.3)
        for server in servers:
            stack.restart(server)
        back.set()

    def reached(name: str) -> None:
        nonlocal seen
        with lock:
            seen += name == point
            now = name == point and seen == nth
        if now:
            for server in reversed(servers):
                stack.kill(server)
            threading.Thread(target=restart).start()

    monkeypatch.setattr(module, "reached", reached)

    def wait() -> None:
        assert back.wait(300), f"{servers} did not come back"

    return wait


@pytest.mark.parametrize("point", ["during_load", "after_load", "after_commit"])
@pytest.mark.parametrize(
    "servers",
    [["clickhouse"], ["sqlserver"], ["postgres", "sqlserver"]],
    ids=["clickhouse", "sqlserver", "postgres"],
)
def test_a_run_survives_the_restart_of_a_server(
    ferry: Ferry, servers: list[str], point: str
) -> None:
    """The stand-in's data are in PostgreSQL, so that it is killed with it."""
    # two ranges at a time: the first two are in the first hop, the third is in the second
    nth = 3 if servers == ["clickhouse"] else 1
    with pytest.MonkeyPatch.context() as patch:
        wait = kill_at(patch, ferry.stack, servers, point, nth)
        view = ferry.run()
        wait()
    assert view.good, view.errors
    settled(ferry)


@pytest.mark.parametrize(("server", "hop"), [("sqlserver", 1), ("clickhouse", 2)])
def test_a_swap_survives_the_restart_of_the_server(ferry: Ferry, server: str, hop: int) -> None:
    """On SQL Server before its transaction commits, on ClickHouse after the exchange."""
    ferry.declare(HOPS, ranges="{rows: 200}", write="swap")
    with pytest.MonkeyPatch.context() as patch:
        wait = kill_at(patch, ferry.stack, [server], "inside_swap", hop, crash_points)
        view = ferry.run()
        wait()
    assert view.good, view.errors
    settled(ferry)


def test_a_restart_costs_one_reading_of_contents(ferry: Ferry) -> None:
    def found_by() -> set[str | None]:
        return {view.detail for view in by_range(ferry.plan()).values()}

    assert ferry.run().good and found_by() == {"row versions"}
    for server in ("postgres", "sqlserver"):
        ferry.stack.kill(server)
        ferry.stack.restart(server)
    assert found_by() == {"content"}
    assert ferry.run().good and found_by() == {"row versions"}
    settled(ferry)


def test_a_server_that_stays_away_fails_the_run_clearly(
    ferry: Ferry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tableferry.resources.connecting.retry.FIRST_SECONDS", 0.01)
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "3")
    killed = threading.Event()

    def reached(name: str) -> None:
        if name == "after_load" and not killed.is_set():
            killed.set()
            ferry.stack.kill("clickhouse")

    monkeypatch.setattr(moving, "reached", reached)
    view = ferry.run(profile="safe")
    ferry.stack.restart("clickhouse")
    assert not view.good
    assert view.errors
    for line in view.errors:
        assert "clickhouse" in line
        assert "Traceback" not in line
    (run_id,) = view.run_ids
    said = [entry.user_message for entry in ferry.session.instance.all_logs(run_id)]
    waited = [message for message in said if "waiting up to 3 s for it" in message]
    assert len(waited) <= 1, "the server is waited for once, by one of the ranges"
    failed = [line for line in view.errors if "away for" in line]
    assert len(failed) == len(view.errors) > 1, "the others fail at once, by its reason"
    monkeypatch.setattr(moving, "reached", lambda name: None)
    reopen(ferry)
    before = ferry.materializations("sqlserver", "dbo")
    again = ferry.run(failed=True)
    again = again if again.good and len(again.ranges) == 10 else ferry.run()
    assert again.good, again.errors
    assert all(ferry.materializations("sqlserver", "dbo")[name] == 1 for name in before)
    settled(ferry)


def settled(ferry: Ferry) -> None:
    """All is there, once, and nothing else."""
    # an attempt that ended while its server was away could not drop what it held the range by
    runner.clean(ferry.session)
    for system, schema in SYSTEMS.items():
        assert rows_of(ferry, system) == rows_of(ferry, "postgres")
        assert staging_tables(ferry, system) == []
        assert set(ferry.materializations(system, schema).values()) == {1}
    assert {view.state for view in ferry.plan().ranges} == {"skip"}
