"""Older versions of ClickHouse: what is moved there, and what a restart of the server leaves.

TABLEFERRY_TEST_ENGINES names the versions; `make test-engines` takes all that can be had.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tests.integration.conftest import Ferry
from tests.integration.support import engines, looking
from tests.integration.support.crash_bench import Bench, bench_of
from tests.integration.support.crashing import Command, crash, reopen, rows_of
from tests.integration.support.engines import Engine
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Make = Callable[..., Ferry]

VERSIONS = os.environ.get("TABLEFERRY_TEST_ENGINES", "25.8").replace(",", " ").split()

POINTS = ["inside_finalise", "after_replace", "after_publish", "after_commit", "after_event"]
"""Before and after a range is shown, once a restart cannot undo that, and once it is recorded."""


@pytest.fixture(params=VERSIONS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine that the test may kill."""
    folder = tmp_path / "engine"
    folder.mkdir()
    with engines.running(request.param, folder) as one:
        yield one


@pytest.fixture
def stack(stack: Servers, engine: Engine) -> Servers:
    """The servers, with this engine as the ClickHouse."""
    return replace(stack, clickhouse_url=engine.url)


@pytest.mark.invariant("I1", "I4")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_restarted_server_brings_back_no_rows(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: Engine, how: int
) -> None:
    """Wherever the run has died, check tells what is there, and the next run mends it."""
    command, bench = Command(tmp_path), bench_of(ferry, monkeypatch, "direct", "replace")
    bench.change()
    run(bench)
    engine.restart(how)
    require_equal(bench, command, "after a run")
    for point in POINTS:
        bench.change()
        crash(command, bench.ferry.table, f"{point}:2", "--profile", "safe")
        engine.restart(how)
        shown = rows_of(bench.ferry, "clickhouse")
        if len({row[0] for row in shown}) < len(shown):
            assert point == "after_replace", "a range that is recorded was brought back"
            assert command.run("check", bench.ferry.table) == 1, command.output
            assert command.run("status", bench.ferry.table) == 1, command.output
        reopen(bench.ferry)
        run(bench)
        engine.restart(how)
        require_equal(bench, command, point)


@pytest.mark.invariant("I1")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_restarted_server_brings_back_no_rejected_rows(
    ferry: Make, engine: Engine, how: int
) -> None:
    """Neither those that were replaced by others, nor the last ones of a range."""
    narrow = json.dumps({"n": {"type": "Int16"}})
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, n integer)",
        "INSERT INTO {t} SELECT g, g * 5000 FROM generate_series(1, 10) g",
        columns=narrow,
        on_reject="quarantine",
    )
    for statement, rejected in (
        ("SELECT 1", ["10", "7", "8", "9"]),
        ("UPDATE {t} SET n = 1 WHERE id = 7", ["10", "8", "9"]),
        ("UPDATE {t} SET n = 1", []),
    ):
        one.source(statement)
        moved = one.run()
        assert moved.good, moved.errors
        engine.restart(how)
        kept = f"SELECT row_key FROM warehouse.`{one.table}__rejected`"
        rows = looking.ask_clickhouse(engine.url, kept)
        assert sorted(json.loads(key)["id"] for (key,) in rows) == rejected


def test_rows_are_counted_whatever_the_server_remembers_of_conditions(
    engine: Engine, nothing_known: Callable[[], None]
) -> None:
    """As in https://github.com/ClickHouse/ClickHouse/issues/104004, from which this is."""
    server = ClickHouseResource(url=engine.url)
    server.execute(
        "CREATE TABLE warehouse.t (env LowCardinality(Nullable(String)), g UInt64, "
        "INDEX mm g TYPE minmax GRANULARITY 1) ENGINE = MergeTree ORDER BY tuple()"
    )
    server.execute(
        "INSERT INTO warehouse.t SELECT if(number % 20 = 0, 'live', 'other'), "
        "if(number < 300000, 42, number) FROM numbers(1000000)"
    )
    ours = "SELECT count() FROM warehouse.t PREWHERE env = 'live'"
    looking.ask_clickhouse(engine.url, f"{ours} WHERE g NOT IN (42)")  # somebody else's
    assert server.query(ours) == [(50_000,)]


def run(bench: Bench) -> None:
    """Move what has changed."""
    done = bench.ferry.run()
    assert done.good, done.errors


def require_equal(bench: Bench, command: Command, when: str) -> None:
    """The target has the source's rows, each once, and every command says so."""
    shown, wanted = (rows_of(bench.ferry, one) for one in ("clickhouse", "postgres"))
    assert shown == wanted, when
    assert command.run("check", bench.ferry.table) == 0, f"{when}: {command.output}"
    assert command.run("status", bench.ferry.table) == 0, f"{when}: {command.output}"
    reopen(bench.ferry)
    assert {view.state for view in bench.ferry.plan().ranges} == {"skip"}, when
