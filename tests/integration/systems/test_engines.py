"""Older versions of the servers: what a restart of one leaves of the rows that were moved there.

TABLEFERRY_TEST_ENGINES names the versions; `make test-engines` takes all that can be had.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tableferry.resources import crash_points
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tests.integration.conftest import Ferry
from tests.integration.support import engines, homes, looking
from tests.integration.support.certifying import (
    DIRECT,
    among_others,
    certified,
    restarting,
    results,
    set_servers,
    try_only,
)
from tests.integration.support.crash_bench import Bench, bench_of
from tests.integration.support.crashing import Command, crash, reopen, rows_of
from tests.integration.support.engines import Engine
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Ferry]

NAMED = os.environ.get("TABLEFERRY_TEST_ENGINES")
"""Without it a few versions are killed in the midst of a few kinds of moves."""

VERSIONS = (NAMED or "14 25.8").replace(",", " ").split()
CLICKHOUSES = [version for version in VERSIONS if version in engines.CLICKHOUSES]

STAGING = ["before_export", "during_export", "after_export", "during_load", "after_load"]
AUDIT = ["before_audit", "after_audit"]
SHOWING = ["after_marker", "inside_finalise", "after_replace", "after_publish"]
"""Before a range is shown on ClickHouse, while it is, and once a restart cannot undo that."""
RECORDING = ["after_commit", "inside_event", "after_event"]
SWAPPING = ["after_shadowed", "before_swap", "inside_swap", "after_swap", "after_event"]
POINTS = {
    ("clickhouse", "direct", "replace"): [*STAGING, *AUDIT, *SHOWING, *RECORDING],
    ("clickhouse", "direct", "append"): SHOWING,
    ("clickhouse", "direct", "upsert"): SHOWING,
    ("postgres", "copy", "replace"): [*STAGING, *AUDIT, "inside_finalise", *RECORDING],
    ("postgres", "copy", "swap"): ["after_audit", "inside_finalise", *SWAPPING],
    ("postgres", "delta", "upsert"): ["during_load", "inside_finalise", "after_commit"],
    ("postgres", "chain", "replace"): ["during_export", "inside_finalise", "between_hops"],
}
"""By the engine's system, route and write mode: where runs die, before the server is restarted."""


@pytest.fixture(params=VERSIONS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that the test may kill."""
    with engines.running(request.param) as one:
        yield one


@pytest.fixture
def stack(stack: Servers, engine: Engine) -> Servers:
    """The servers, with this engine in the place of its system's."""
    return engine.among(stack)


CELLS = [
    (version, route, mode)
    for version in VERSIONS
    for system, route, mode in POINTS
    if system == engines.kind_of(version).system
    and (NAMED or (mode == "replace" and route != "chain"))
]
either = pytest.mark.parametrize(
    "killed",
    [pytest.param(True, id="killed"), *([pytest.param(False, id="stopped")] if NAMED else [])],
)


@pytest.mark.invariant("I1", "I4")
@either
@pytest.mark.parametrize(("engine", "route", "mode"), CELLS, indirect=["engine"])
def test_a_restarted_server_brings_back_no_rows(
    ferry: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    engine: Engine,
    route: str,
    mode: str,
    killed: bool,
) -> None:
    """Wherever the run has died, check tells what is there, and the next run mends it."""
    command, bench = Command(tmp_path), bench_of(ferry, monkeypatch, route, mode)
    bench.change()
    run(bench)
    engine.restart(killed=killed)
    require_equal(bench, command, "after a run")
    *_, system = bench.systems
    for point in POINTS[engine.system, route, mode]:
        if point == "inside_event" and not homes.stores_groups():
            continue
        old = rows_of(bench.ferry, system)
        bench.change()
        # of the points that every range passes, the second; a swap is but one
        at = point if point.endswith("_swap") else f"{point}:2"
        crash(command, bench.ferry.table, at, "--profile", "safe")
        engine.restart(killed=killed)
        shown = rows_of(bench.ferry, system)
        if len({row[0] for row in shown}) < len(shown):
            assert point == "after_replace", "a range that is recorded was brought back"
            assert command.run("check", bench.ferry.table) == 1, command.output
            assert command.run("status", bench.ferry.table) == 1, command.output
        else:
            assert {*shown} <= {*old, *rows_of(bench.ferry, "postgres")}, f"{point}: others' rows"
        reopen(bench.ferry)
        run(bench)
        engine.restart(killed=killed)
        require_equal(bench, command, point)


@pytest.mark.invariant("I1", "I3")
@either
@pytest.mark.parametrize("engine", CLICKHOUSES, indirect=True)
def test_a_restarted_server_brings_back_no_rows_that_were_put_back(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, engine: Engine, killed: bool
) -> None:
    """Whatever was shown for a moment, and compared, and replaced by the rows of before."""
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
        "INSERT INTO {t} SELECT g, 'old' FROM generate_series(1, 100) g",
        publish_audit="visible",
    )
    assert one.run().good
    one.source("UPDATE {t} SET name = 'new'")

    def mangle(point: str) -> None:
        if point == "after_replace":
            looking.clickhouse(engine.url).command(
                f"ALTER TABLE warehouse.{one.table} UPDATE name = 'mangled' WHERE id = 50 "
                "SETTINGS mutations_sync = 2"
            )

    for reached, names in ((mangle, [("old", 100)]), (lambda _: None, [("new", 100)])):
        with monkeypatch.context() as patch:
            patch.setattr(crash_points, "reached", reached)
            assert one.run().good == (reached != mangle)
        engine.restart(killed=killed)
        shown = f"SELECT name, count() FROM warehouse.{one.table} GROUP BY name"
        assert looking.ask_clickhouse(engine.url, shown) == names


@pytest.mark.invariant("I1")
@either
@pytest.mark.parametrize("engine", CLICKHOUSES, indirect=True)
def test_a_restarted_server_brings_back_no_rejected_rows(
    ferry: Make, engine: Engine, killed: bool
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
        engine.restart(killed=killed)
        kept = f"SELECT row_key FROM warehouse.`{one.table}__rejected`"
        rows = looking.ask_clickhouse(engine.url, kept)
        assert sorted(json.loads(key)["id"] for (key,) in rows) == rejected


@pytest.mark.parametrize("engine", CLICKHOUSES, indirect=True)
def test_uuids_come_and_go(ferry: Make, engine: Engine) -> None:
    """Releases before 26.5 neither read them out of Arrow's bytes nor write them there."""
    one = ferry(
        "[{{to: 'clickhouse://warehouse.{t}', wire: arrow}}, 'postgres://public.{t}_back']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, u uuid)",
        "INSERT INTO {t} SELECT g, CASE WHEN g > 1 THEN md5(g::text)::uuid END"
        " FROM generate_series(1, 10) g",
    )
    try:
        moved = one.run()
        assert moved.good, moved.errors
        rows = looking.ask_clickhouse(
            engine.url, f"SELECT toString(u) FROM warehouse.{one.table} ORDER BY id"
        )
        expected = [
            (None,),
            *((str(UUID(hashlib.md5(b"%d" % g).hexdigest())),) for g in range(2, 11)),
        ]
        assert rows == expected
        back = one.rows("SELECT u::text FROM public.{t}_back ORDER BY id")
        assert back == expected
    finally:
        one.source("DROP TABLE IF EXISTS {t}_back")


@pytest.mark.parametrize("engine", CLICKHOUSES, indirect=True)
@pytest.mark.parametrize(
    "route", ["clickhouse:postgres", "clickhouse:sqlserver", "sqlserver:clickhouse"]
)
def test_edge_values_of_all_types_come_and_go(
    stack: Servers, engine: Engine, route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_servers(stack, monkeypatch)
    try_only(monkeypatch, "types", "refused value")
    with among_others():
        result, document = certified(tmp_path / "out", "--route", route, "--rows", "200")
    assert result.exit_code == 0, result.output
    assert results(document)["types"] == "passed"


@pytest.mark.parametrize("engine", VERSIONS, indirect=True)
def test_an_engine_is_certified(
    stack: Servers, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_servers(stack, monkeypatch)
    with among_others(), restarting(lambda: engine.restart(killed=True), tmp_path) as command:
        result, document = certified(tmp_path / "out", *DIRECT, "--restart-command", command)
    assert result.exit_code == 0, result.output
    assert results(document)["restarted server"] == "passed"
    versions = {server["system"]: server["settings"]["version"] for server in document["servers"]}
    print(f"certified: {versions}")


@pytest.mark.parametrize("engine", CLICKHOUSES, indirect=True)
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
    """The targets have the source's rows, each once, and every command says so."""
    for system in bench.systems:
        assert rows_of(bench.ferry, system) == rows_of(bench.ferry, "postgres"), when
    assert command.run("check", bench.ferry.table) == 0, f"{when}: {command.output}"
    assert command.run("status", bench.ferry.table) == 0, f"{when}: {command.output}"
    reopen(bench.ferry)
    assert {view.state for view in bench.ferry.plan().ranges} == {"skip"}, when
