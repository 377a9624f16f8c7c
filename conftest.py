"""Fixtures that every test may use: one set of servers for all workers, started on first use."""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tableferry.pipelines.cli  # noqa: F401 (it sets thresholds, too, when it is first imported)
from tests import servers

if TYPE_CHECKING:
    from tableferry_local.stack import Stack
    from tests.servers import Servers

# what is imported stays: garbage among it is looked for in vain, again and again
gc.set_threshold(2_000_000, 50, 100)

SEED = "TABLEFERRY_SEED"

CHECKOUT = Path(__file__).parent
BUILT = ("__pycache__", "build", "dist", "tableferry.egg-info")
"""What Python makes there, and commands that run beside the tests."""

LONGEST = (
    "test_crash_matrix",
    "test_in_a_project",
    "test_ui",
    "test_random_kills",
    "test_wide_tables",
    "test_audit",
    "test_crash_matrix_swap",
    "test_compose_dagster",
    "test_verdicts",
    "test_memory",
    "test_stack",
    "test_servers_killed",
    "test_move_to_files",
    "test_schema_drift",
    "test_dev",
    "test_fleet_of_200",
    "test_transactional_targets",
    "test_text_wire_move",
    "test_demo",
    "test_incremental",
    "test_text_wire_sqlserver",
    "test_move_text_keys",
    "test_installed",
    "test_move_files",
    "test_markers",
    "test_bench_suite",
    "test_compose_setup",
    "test_reconcile_mutations",
    "test_move_direct",
    "test_awkward_names",
    "test_without_dagster",
    "test_parallel_runs",
    "test_move_row_groups",
    "test_move_objects",
    "test_move_chain",
    "test_move_postgres_to_postgres",
    "test_reconcile_no_false_alarm",
    "test_types_postgres_clickhouse",
    "test_guide",
    "test_hostile",
    "test_moving_source",
    "test_types_postgres_sqlserver",
    "test_in_flight",
    "test_kept_rows",
    "test_decimal_keys",
    "test_standby",
    "test_wires",
    "test_clickhouse_target",
    "test_two_runs_at_once",
    "test_types_sqlserver_clickhouse",
    "test_planned_once",
)
"""Test files that take half a minute or more on two cores, the longest first."""


def pytest_collection_finish() -> None:
    """Look for no garbage among the modules and tests, which stay."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_homes() -> None:
    """Dagster's storage without what no test is about."""
    from tests.integration.support import homes

    homes.make_quick()


@pytest.fixture(autouse=True)
def clean_checkout() -> Iterator[None]:
    """Refuse a test that leaves files in the checkout, from where they could be committed."""
    before = set(os.listdir(CHECKOUT))
    yield
    left = sorted(
        name
        for name in set(os.listdir(CHECKOUT)) - before
        if not name.startswith(".") and name not in BUILT
    )
    assert not left, f"left in the checkout, by this test or by one of another worker: {left}"


@pytest.fixture(scope="session")
def local_stack() -> Stack:
    """The local stack that all workers share; not to be killed or stopped."""
    return servers.shared_stack()


@pytest.fixture(scope="session")
def stack() -> Servers:
    """PostgreSQL, SQL Server and ClickHouse, shared by all workers: use names of your own.

    Has postgres_url, sqlserver_url, clickhouse_url and environment().
    """
    return servers.find()


@pytest.fixture(scope="session")
def own_stack() -> Iterator[Stack]:
    """Servers that a test may kill(name) and restart(name): nobody else is on them."""
    if variable := servers.named():
        pytest.skip(f"kills its servers, and {variable} names one that others may use")
    from tableferry_local import watch
    from tableferry_local.stack import Stack

    folder = Path(tempfile.mkdtemp(prefix="tableferry-own-"))
    folder.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
    watch.start(folder)
    stack = Stack(folder)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


@pytest.fixture(scope="session")
def pg_url(stack: Servers) -> str:
    """URL of the PostgreSQL source database."""
    return stack.postgres_url


@pytest.fixture(scope="session")
def ch_url(stack: Servers) -> str:
    """URL of the ClickHouse."""
    return stack.clickhouse_url


@pytest.fixture(scope="session")
def mssql_url(stack: Servers) -> str:
    """URL of the SQL Server."""
    return stack.sqlserver_url


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of all chance in a soak test; told at the end of the run."""
    return int(os.environ[SEED])


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of the soak tests once, for all workers and for Hypothesis too."""
    if config.option.markexpr == "soak":
        os.environ.setdefault(SEED, str(random.SystemRandom().randrange(10**6)))
    if not config.getoption("numprocesses", None):
        _settle_hypothesis()
    else:  # workers run the tests, and the plugin would import all of Hypothesis to tell nothing
        config.pluginmanager.unregister(name="hypothesispytest")


def _settle_hypothesis() -> None:
    os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")  # Trio's, which imports all of Trio
    import hypothesis
    from hypothesis import core

    # how long an example takes says more of the machine's load than of the code
    hypothesis.settings.register_profile("tableferry", deadline=None)
    hypothesis.settings.load_profile("tableferry")
    if SEED in os.environ:
        core.global_force_seed = int(os.environ[SEED])  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how to repeat a run."""
    if SEED in os.environ:
        terminalreporter.write_line(f"{SEED}={os.environ[SEED]}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is under an `integration` folder, so that `-m "not integration"` works too.

    The workers begin with the longest files, and end with the many short ones.
    """
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker("integration")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.path.stem in LONGEST:
        return LONGEST.index(item.path.stem)
    return len(LONGEST) + ("integration" not in item.path.parts)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Whoever started the workers, or works alone, cleans up when all is done."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    servers.drop_leftovers()
    if servers.shared_folder().exists():
        from tableferry_local.stack import Stack

        Stack(servers.shared_folder()).remove()
