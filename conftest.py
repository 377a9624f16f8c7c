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
from tests.chance import SEED, seed

if TYPE_CHECKING:
    from tableferry_local.stack import Stack
    from tests.servers import Servers

pytest_plugins = ["tests.selection"]

# what is imported stays: garbage among it is looked for in vain, again and again
gc.set_threshold(2_000_000, 50, 100)

CHECKOUT = Path(__file__).parent
BUILT = ("__pycache__", "build", "dist", "tableferry.egg-info")
"""What Python makes there, and commands that run beside the tests."""


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


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of the long tests once, for all workers and for Hypothesis too."""
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
    chosen = SEED in os.environ
    hypothesis.settings.register_profile(
        "tableferry",
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=not chosen,
        database=None,
        max_examples=100 if chosen else 50,
    )
    hypothesis.settings.load_profile("tableferry")
    if chosen:
        core.global_force_seed = seed()  # type: ignore[assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is under an `integration` folder, and end with the many short unit tests."""
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker("integration")
    items.sort(key=lambda item: "integration" not in item.path.parts)


def pytest_report_header() -> str:
    """Tell how to repeat a run."""
    return f"{SEED}={seed()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell it again where the failures are."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"{SEED}={seed()}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Whoever started the workers, or works alone, cleans up when all is done."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    servers.drop_leftovers()
    if servers.shared_folder().exists():
        from tableferry_local.stack import Stack

        Stack(servers.shared_folder()).remove()
