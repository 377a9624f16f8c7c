"""Ticks end before Dagster gives them up, and so do their statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tableferry.pipelines import definitions
from tableferry.resources.connecting.waiting import TooSlow, bounded
from tableferry.sensors import rounds
from tests.integration.conftest import Ferry
from tests.integration.operating.test_ticks import HOPS, launch, schedule_tick, tick
from tests.integration.support.crashing import rows_of

pytestmark = pytest.mark.integration
Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date)",
    "INSERT INTO {t} SELECT g, 'x', '2024-01-01' FROM generate_series(1, 50) g",
)
READING = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'"
    " AND query LIKE '%\"{t}\"%' AND pid <> pg_backend_pid()"
)
TEN = "(VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9),(0)) AS t{}(n)"
SLOW = {
    "postgres": "SELECT pg_sleep(30)",
    "sqlserver": f"SELECT COUNT_BIG(*) FROM {', '.join(TEN.format(n) for n in range(10))}",
    "clickhouse": "SELECT sum(sleepEachRow(0.5)) FROM numbers(60) SETTINGS max_block_size = 1",
}


@pytest.mark.parametrize("system", SLOW)
def test_a_server_ends_what_nobody_waits_for(ferry: Make, system: str) -> None:
    one = ferry("['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", *TABLE)
    transfer = one.session.transfer(one.table)
    (table,) = (table for table in transfer.tables if table.system.name == system)
    endpoint = one.session.servers.endpoint(table)
    began = time.monotonic()
    with pytest.raises(TooSlow), bounded(began + 2):
        endpoint.query(SLOW[system])
    assert time.monotonic() - began < 10
    with pytest.raises(TooSlow), bounded(time.monotonic() - 1):
        endpoint.query("SELECT 1")
    assert endpoint.query("SELECT 1"), "without a bound as before"


@contextmanager
def slow(one: Ferry, seconds: int) -> Iterator[None]:
    """Put a view in the place of the source that takes so long to be read."""
    one.source(
        "ALTER TABLE {t} RENAME TO {t}_rows",
        f"CREATE VIEW {{t}} AS SELECT id, name, amount FROM {{t}}_rows, pg_sleep({seconds})",
    )
    try:
        yield
    finally:
        one.source("DROP VIEW {t}", "ALTER TABLE {t}_rows RENAME TO {t}")


def ended(one: Ferry) -> bool:
    """Whether the source answers no statement about the table any more."""
    until = time.monotonic() + 5
    while one.rows(READING) != [(0,)]:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("sensor", ["first_ranges", "new_ranges"])
def test_a_slow_cut_ends_with_its_tick_and_is_never_made_twice(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, sensor: str
) -> None:
    monkeypatch.setattr(rounds, "LIMIT_SECONDS", 3.0)
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", fingerprint="none")
    said: list[str] = []
    with slow(one, 20):
        began = time.monotonic()
        first = threading.Thread(target=lambda: said.append(tick(one, sensor).skip_message))
        first.start()
        time.sleep(1.5)
        assert "another tick reads its keys" in tick(one, sensor).skip_message
        first.join()
        assert time.monotonic() - began < 15
        assert "longer than a tick may, and were ended" in said[0]
        assert ended(one)


def test_what_a_schedule_cannot_plan_in_time_is_launched_all_the_same(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *TABLE, ranges="{rows: 25}", schedule="'0 3 * * *'", fingerprint="none")
    assert one.run().good
    one.source("INSERT INTO {t} VALUES (60, 'y', '2024-01-01')")
    monkeypatch.setattr(definitions, "LIMIT_SECONDS", 2.0)
    with slow(one, 4):
        found = schedule_tick(one, "schedule")
        assert [request.partition_key for request in found.run_requests] == [None]
        assert ended(one)
    launch(one, found)
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
