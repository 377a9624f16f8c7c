"""Twenty kills at random moments of one bigger transfer."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tests.chance import chance
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import (
    Command,
    ask_clickhouse,
    reopen,
    runs_by_status,
    staging_tables,
)

pytestmark = [pytest.mark.integration, pytest.mark.soak]

KILLS = 20
ROWS = 1_000_000
RANGES = 25
FIGURES = "count(*), min(id), max(id), sum(id), sum(v)"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.invariant("I4")
def test_twenty_random_kills_in_a_row(ferry: Callable[..., Ferry], command: Command) -> None:
    moments = chance("kills")
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, v integer)",
        "INSERT INTO {t} SELECT g, (g::bigint * 7919) % 1000003 "
        f"FROM generate_series(1, {ROWS}) g",
        "ANALYZE {t}",
        ranges=f"{{rows: {ROWS // RANGES}}}",
    )
    killed = 0
    while killed < KILLS:
        runs = len(runs_by_status(one))
        process = command.start("run", one.table)
        # most kills are to meet a run at work, some the command while it starts and plans
        while moments.random() > 0.02 and command.running and len(runs_by_status(one)) == runs:
            time.sleep(0.1)
        time.sleep(moments.uniform(0, 5))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        code = command.wait()
        assert code in (-signal.SIGKILL, 0), command.output
        killed += code != 0
        if code == 0:  # all is there: give the next ones something to do in every range
            one.source(f"UPDATE {{t}} SET v = v + 1 WHERE id % {ROWS // RANGES} = {killed}")
    reopen(one)
    last = one.run()
    assert last.good, last.errors
    (expected,) = one.rows(f"SELECT {FIGURES} FROM {{t}}")
    assert ask_clickhouse(one, f"SELECT {FIGURES} FROM warehouse.{one.table}") == [expected]
    assert staging_tables(one, "clickhouse") == []
    assert {view.state for view in one.plan().ranges} == {"skip"}
    twice = {what: count for what, count in commits(one).items() if count > 1}
    assert not twice, "moved again though committed"


def commits(ferry: Ferry) -> Counter[tuple[str | None, str]]:
    """How often each range was committed with the same data version."""
    asset = dg.AssetKey(["clickhouse", "warehouse", ferry.table])
    found: Counter[tuple[str | None, str]] = Counter()
    for record in ferry.session.instance.fetch_materializations(asset, limit=10_000).records:
        event = record.asset_materialization
        if event is not None and event.metadata["tableferry/state"].value == "committed":
            found[event.partition, str((event.tags or {})["dagster/data_version"])] += 1
    return found
