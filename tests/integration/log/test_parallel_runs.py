"""Several runs of one table at once, in processes of their own, with Dagster's storage remote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.log.ledger import committed
from tableferry.assets.running.processes import PROCESS
from tableferry.pipelines.command.one import runner
from tableferry.resources.tables import TableRef, staging_prefix
from tests.integration.conftest import Ferry
from tests.integration.operating.test_ticks import launch, schedule_tick, spans
from tests.integration.support.beside import beside
from tests.integration.support.crashing import COPIES, Command, reopen, rows_of, runs_by_status
from tests.integration.support.interface import Interface, served
from tests.servers import Servers, own

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

COPY = f"['copies://{COPIES}.{{t}}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 8000) g",
)
PARALLEL = "{runs: 2, export: 1, load: 1}"
Make = Callable[..., Ferry]


@pytest.fixture(scope="module")
def storage(stack: Servers) -> Iterator[str]:
    """Lines of a dagster.yaml whose events are kept in PostgreSQL."""
    database = own("parallel_dagster")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        url = urlsplit(stack.postgres_url)._replace(path=f"/{database}").geturl()
        yield (
            f'storage: {{postgres: {{postgres_url: "{url}"}}}}\n'
            "concurrency: {pools: {granularity: op, default_limit: 1}}\n"
        )
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


@pytest.fixture(autouse=True)
def copies(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_COPIES", stack.postgres_url)


@contextmanager
def sampled(one: Ferry) -> Iterator[list[int]]:
    """How many ranges are being loaded, again and again: each has a staging table for so long."""
    counts: list[int] = []
    prefix = staging_prefix(TableRef("postgres", COPIES, one.table, "copies"))
    with psycopg.connect(one.stack.postgres_url, autocommit=True) as connection:

        def sample() -> None:
            row = connection.execute(
                "SELECT count(*) FROM pg_tables WHERE schemaname = %s"
                " AND starts_with(tablename, %s)",
                (COPIES, prefix),
            ).fetchone()
            assert row is not None
            counts.append(row[0])

        with beside(sample):
            yield counts


def test_one_of_the_processes_dies_and_only_its_rest_is_moved_again(
    ferry: Make, storage: str, tmp_path: Path
) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{storage}")
    one = ferry(COPY, *TABLE, ranges="{count: 8}", parallel=PARALLEL)
    command = Command(tmp_path)
    with sampled(one) as loading:
        # nine ranges: one of the two processes has five, and dies with the last of them
        assert command.run("run", one.table, TABLEFERRY_CRASH_AT="after_load:5") == 1
    assert "exit code -9" in command.output
    assert 1 <= max(loading) <= 2
    reopen(one)
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    assert len(names) == 9
    assert sorted(runs_by_status(one).values(), key=str) == [
        dg.DagsterRunStatus.FAILURE,
        dg.DagsterRunStatus.SUCCESS,
    ]
    processes = {run.tags[PROCESS] for run in one.session.instance.get_runs()}
    assert len(processes) == 2
    before = one.materializations("copies", COPIES)
    assert set(names[5:]) <= set(before) < set(names)
    assert set(before.values()) == {1}

    assert command.run("run", one.table) == 0, command.output
    reopen(one)
    assert one.materializations("copies", COPIES) == dict.fromkeys(names, 1)
    assert rows_of(one, "copies") == rows_of(one, "postgres")
    nothing = one.run()
    assert nothing.good
    assert nothing.run_ids == []


def test_two_launches_of_a_table_do_not_mix(ferry: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 8}", parallel=PARALLEL, schedule='"0 3 * * *"')
    first = one.plan().ranges[0].range
    instance, storage = one.session.instance, one.session.instance.event_log_storage
    storage.set_concurrency_slots(one.table, 2)
    key = dg.AssetKey(["copies", COPIES, one.table])
    status = dg.DagsterRunStatus.STARTED
    other = instance.add_run(
        dg.DagsterRun(ASSET_JOB, status=status, asset_selection=frozenset({key}))
    )
    storage.claim_concurrency_slot(one.table, other.run_id, "move")
    assert runner.blocking_runs(one.session, one.table) == [], "a slot is free for a check"
    assert other.run_id in schedule_tick(one, "schedule").skip_message
    waited = []

    def end_the_other(_: object) -> None:
        waited.append(one.materializations("copies", COPIES))
        storage.free_concurrency_slots_for_run(other.run_id)

    with monkeypatch.context() as patch:
        patch.setattr("tableferry.sensors.reaper.reap", end_the_other)
        view = one.run(ranges=[first])
    assert view.good, view.errors
    assert waited == [{}]
    assert one.materializations("copies", COPIES) == {first: 1}


@pytest.fixture
def interface(ferry: Make, tmp_path: Path, storage: str) -> Iterator[tuple[Ferry, Interface]]:
    def make() -> Ferry:
        return ferry(COPY, *TABLE, ranges="{count: 8}", parallel=PARALLEL)

    with served(make, tmp_path / "dagster", storage) as found:
        yield found


@pytest.mark.slow
def test_a_backfill_is_several_runs_and_the_pool_bounds_them(
    interface: tuple[Ferry, Interface],
) -> None:
    one, api = interface
    first = one.plan().ranges[0].range
    assert one.run(ranges=[first]).good, "so that the ranges are known"
    instance = one.session.instance
    instance.event_log_storage.set_concurrency_slots(one.table, 1)
    names = instance.get_dynamic_partitions(f"{one.table}_ranges")
    with sampled(one) as loading:
        runs = api.launch_backfill([["copies", COPIES, one.table]], names)
    assert len(runs) == 2
    assert 1 <= max(loading) <= 1
    assert one.materializations("copies", COPIES) == dict.fromkeys(names, 1)
    assert rows_of(one, "copies") == rows_of(one, "postgres")
    # from the events: the second run waited for the end of the first
    spans = sorted(
        (found.start_time, found.end_time)
        for run in runs
        for found in instance.get_run_step_stats(run)
    )
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0]


def test_the_last_run_of_a_tick_checks_the_whole_table(ferry: Make) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 8}", parallel=PARALLEL, schedule='"0 3 * * *"')
    found = schedule_tick(one, "schedule")
    assert len(spans(found)) == 2
    key = dg.AssetCheckKey(dg.AssetKey(["copies", COPIES, one.table]), "total_rows")
    storage = one.session.instance.event_log_storage
    verdicts = []
    for request in found.run_requests:
        launch(one, found._replace(run_requests=[request]))
        history = storage.get_asset_check_execution_history(key, limit=10)
        verdicts.append([one.status.name for one in history].count("SUCCEEDED"))
    done = committed(one.session.instance, key.asset_key, ())
    assert len(done) == 9
    assert not schedule_tick(one, "schedule").run_requests
    assert verdicts == [0, 1], "of the runs of one launch, the last"
