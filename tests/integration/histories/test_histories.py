"""Whatever happens to a transfer, in whatever order: what is promised of it holds.

`programs` makes histories by chance, `world` does them step by step on real servers, and `oracle`
says what has to be there. A history that fails is shortened and printed as a program, which goes
into `KEPT` once the fault is mended.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tableferry_local.stack import Stack
from tests import servers
from tests.chance import SEED, chance, seed
from tests.integration.histories.oracle import Fault
from tests.integration.histories.programs import History, random_history, shrunk, step
from tests.integration.histories.world import run_history
from tests.servers import Servers

pytestmark = pytest.mark.integration

HISTORIES, STEPS = 4, 8
"""How many histories are tried each time, and of how many steps."""

SECONDS = int(os.environ.get("TABLEFERRY_TEST_HISTORIES_SECONDS", "300"))
"""How long the soak tries histories."""

SHRINKING = int(os.environ.get("TABLEFERRY_TEST_SHRINK_SECONDS", "600"))
"""How long one that fails is shortened."""

ONE = "TABLEFERRY_TEST_HISTORY"
"""Variable: the number of the one history that the soak is to repeat."""

BOUNDS = (("ranges", "{bounds: [10, 20]}"),)
KEPT = {
    "rows that exchange their ranges are there twice after a kill, and called so": History(
        ("postgres", "clickhouse"),
        key="id",
        declared=BOUNDS,
        steps=(
            *(step("run"), step("exchange", 21, 4), step("run", "--force", kill="before_export:2")),
            step("check", ""),
        ),
    ),
    "a damaged middle goes no further, and is told by the hop": History(
        ("postgres", "sqlserver", "clickhouse"),
        declared=BOUNDS,
        steps=(
            *(step("run"), step("damage", 1, "value", 3), step("run", "--hop", "2", "--force")),
            *(step("check", ""), step("update", [3, 14], 5), step("run", kill="between_hops:2")),
        ),
    ),
    "an older log, and a source that went back": History(
        ("postgres", "clickhouse"),
        declared=BOUNDS,
        steps=(
            *(step("run"), step("backup"), step("update", [4, 14], 8), step("run")),
            *(step("go_back"), step("restore"), step("plan"), step("run")),
        ),
    ),
    "a target that has lost a column, and then its log": History(
        ("postgres", "postgres"),
        declared=(*BOUNDS, ("on_schema_drift", "evolve")),
        steps=(
            *(step("run"), step("damage", 1, "lose_column", 3), step("check", ""), step("run")),
            *(step("lose_log"), step("adopt"), step("plan"), step("alter", "rename", 1)),
        ),
    ),
    "an empty target that is recreated for a column that it has lost": History(
        ("clickhouse", "postgres"),
        key="id",
        declared=(("ranges", "{rows: 10}"),),
        rows=0,
        steps=(step("run"), step("damage", 1, "lose_column", 3)),
    ),
    "a first run that was killed before anything was recorded, and a check": History(
        ("clickhouse", "postgres"),
        key="id",
        declared=(("ranges", "{rows: 10}"),),
        rows=0,
        steps=(step("insert", [0], 4), step("run", "--force", kill="after_commit:1")),
    ),
    "rows that were moved without a digest, one of which is declared later": History(
        ("postgres", "sqlserver", "clickhouse"),
        key="id",
        declared=(("ranges", "{rows: 10}"), ("reconcile", "sample_hash")),
        rows=12,
        steps=(step("run"), step("declare", reconcile="checksum"), step("exchange", 22, 4)),
    ),
    "a run that is killed after it has renamed a column": History(
        ("clickhouse", "postgres"),
        declared=(("ranges", "{rows: 10}"),),
        rows=12,
        steps=(
            *(step("run"), step("alter", "rename", 1), step("update", [1, 11, 22, 34], 471)),
            step("run", kill="after_export:1"),
        ),
    ),
    "a run that is killed when some ranges have the new column, and a plan": History(
        ("sqlserver", "postgres"),
        key="id",
        declared=(("ranges", "{rows: 10}"), ("on_schema_drift", "add_columns")),
        steps=(
            *(step("run"), step("alter", "add", 6), step("run", kill="after_commit:3")),
            step("plan"),
        ),
    ),
    "a swap that was killed, and a column that comes before the next": History(
        ("postgres", "postgres"),
        declared=(*BOUNDS, ("write", "swap"), ("on_schema_drift", "evolve")),
        steps=(
            *(step("run"), step("update", [1, 11, 22], 8), step("run", kill="before_swap:1")),
            *(step("alter", "add", 6), step("run")),
        ),
    ),
    "a range that nobody lists, a backfill, and what is refused in between": History(
        ("postgres", "clickhouse"),
        declared=(*BOUNDS, ("on_schema_drift", "evolve")),
        steps=(
            *(step("run"), step("unlist", 1), step("status"), step("update", [4, 14], 8)),
            *(step("launch", "ALL_STEPS"), step("expect", True), step("revoke"), step("check", "")),
            *(step("mistake", "key", "nothing"), step("update", [2, 22], 9), step("run")),
        ),
    ),
    "a run of what failed takes on the middle that the run before has changed": History(
        ("postgres", "sqlserver", "clickhouse"),
        declared=(("ranges", "{rows: 10}"), ("write", "upsert"), ("fingerprint", "{watermark: v}")),
        rows=12,
        steps=(
            *(step("run"), step("update", [1, 11], 146)),
            *(step("run", "--force", kill="after_marker:1"), step("run", "--failed"), step("plan")),
        ),
    ),
    "a swap that a backfill of all ranges does": History(
        ("postgres", "postgres"),
        declared=(*BOUNDS, ("write", "swap")),
        steps=(step("run"), step("update", [4, 14], 8), step("launch"), step("check", "")),
    ),
}
"""Histories that are tried each time; those that have found a fault come here."""


def fault_of(
    history: History, servers: Servers, folder: Path, stack: Stack | None
) -> Exception | None:
    """What goes wrong in a history, if anything."""
    try:
        run_history(history, servers, folder, stack)
    except Exception as error:
        return error
    return None


def require_kept(
    number: int, steps: int, servers: Servers, folder: Path, stack: Stack | None = None
) -> None:
    """Fail with the shortest history found that breaks the promise which a random one breaks."""
    history = random_history(chance("histories", number), steps)
    fault = fault_of(history, servers, folder, stack)
    if fault is None:
        return

    def fails(shorter: History) -> bool:
        error = fault_of(shorter, servers, folder, stack)
        return type(error) is type(fault) and kind_of(error) == kind_of(fault)

    shortest = shrunk(history, fails, SHRINKING)
    again = fault_of(shortest, servers, folder, stack) or fault
    repeat = f"{SEED}={seed()} {ONE}={number}, of {steps} steps"
    raise AssertionError(f"{repeat}:\n{shortest.program()}\n{again}") from again


def kind_of(error: Exception | None) -> str:
    return error.kind if isinstance(error, Fault) else str(error)[:40]


@pytest.mark.timeout(600 + SHRINKING)
@pytest.mark.invariant("I1", "I4", "I6", "I9", "I10", "I11", "I13")
@pytest.mark.parametrize("number", range(HISTORIES))
def test_the_promises_hold_in_a_random_history(stack: Servers, tmp_path: Path, number: int) -> None:
    require_kept(number, STEPS, stack, tmp_path / "history")


@pytest.mark.soak
@pytest.mark.timeout(600 + SECONDS + SHRINKING)
@pytest.mark.invariant("I1", "I4", "I6", "I9", "I10", "I11", "I13")
def test_the_promises_hold_in_many_random_histories(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On servers of its own, which it may restart, unless others are named."""
    stack: Stack | None = None if servers.named() else request.getfixturevalue("own_stack")
    found = (
        servers.find()
        if stack is None
        else Servers(stack.postgres_url, stack.sqlserver_url, stack.clickhouse_url)
    )
    end, number = time.monotonic() + SECONDS, int(os.environ.get(ONE, "0"))
    while time.monotonic() < end:
        require_kept(number, 8 + number % 9, found, tmp_path / "history", stack)
        print(f"history {number} of {SEED}={seed()}: well", flush=True)
        if ONE in os.environ:
            return
        number += 1


@pytest.mark.invariant("I1", "I4", "I9", "I13")
@pytest.mark.parametrize("what", KEPT)
def test_the_promises_hold_in_histories_that_were_kept(
    stack: Servers, tmp_path: Path, what: str
) -> None:
    run_history(KEPT[what], stack, tmp_path / "history")
