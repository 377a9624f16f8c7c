"""Tableferry in a Dagster project that others have made: its wheel, beside dagster-dlt.

The project has packages that are called as Tableferry's rooms are, a resource and a sensor with
names of Tableferry's, an asset that makes the source of the transfer, one with the transfer's own
name, and others that follow its target.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.postgres.resource import PostgresResource
from tests.integration.support import venvs
from tests.integration.support.beside import until
from tests.integration.support.guide_shell import environment
from tests.integration.support.project_shell import ProjectShell
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = "in-your-project.md"
THEIRS = Path(__file__).parent / "fixtures" / "project"
PEER = "dagster-dlt"
SETTINGS = """
telemetry: {enabled: false}
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
"""The settings of the project's Dagster: no four processes that copy what each step prints."""

SOURCE, TARGET = "shop.orders", "warehouse.orders"
RANGES = ("..0000050001", "0000050001..0000100001", "0000100001..")
FIRST = RANGES[0]
MOST_BYTES = 400_000_000
"""The size of an environment with nothing but Tableferry and what it needs."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, in a folder of its own."""
    return venvs.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def shell(
    stack: Servers, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProjectShell]:
    """A shell in the project, in which all that the page says has been done."""
    folder = tmp_path_factory.mktemp("projects")
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text(SETTINGS)
    given = stack.environment() | venvs.environment(wheel)
    shell = ProjectShell(folder, environment(**given, DAGSTER_HOME=str(folder / "dagster")))
    try:
        shell.follow(PAGE, lambda: _put_theirs_into(shell))
        yield shell
    finally:
        print(*shell.printed, sep="\n")
        shell.close()
        source = PostgresResource(url=stack.postgres_url)
        for schema in ("shop", "shop_after"):
            source.execute(f"DROP SCHEMA IF EXISTS {shell.named(schema)} CASCADE")
        target = ClickHouseResource(url=stack.clickhouse_url)
        target.execute(f"DROP TABLE IF EXISTS warehouse.{shell.named('orders')} SYNC")


def _put_theirs_into(shell: ProjectShell) -> None:
    """Give a new project what it had before Tableferry came to it."""
    for path in filter(Path.is_file, THEIRS.rglob("*.*")):
        copy = shell.folder / shell.named(str(path.relative_to(THEIRS)))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(shell.named(path.read_text(encoding="utf-8")), encoding="utf-8")
    shell.run(f"uv pip install --quiet {PEER}")
    shell.run('psql "$TABLEFERRY_POSTGRES_URL" --quiet --file tables.sql')


@contextmanager
def daemon(shell: ProjectShell, instance: dg.DagsterInstance) -> Iterator[Path]:
    """Dagster's daemon for the project, and the file with what it says.

    The project's sensor has looked at all assets once: what it sees then is not news.
    """
    log = shell.folder / "daemon.log"
    with shell.background("dagster-daemon run -w workspace.yaml", log):
        until("the first look", lambda: _ticks(instance, "automation"), log=log)
        yield log


def _ticks(instance: dg.DagsterInstance, sensor: str) -> list[Any]:
    """The ticks of a sensor that have ended."""
    ticks = [
        tick
        for state in instance.all_instigator_state()
        if state.name == sensor
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)
    ]
    return [tick for tick in ticks if tick.status is not TickStatus.STARTED]


def test_the_wheel_brings_one_name_and_goes_with_peers(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tableferry"}
    found = venvs.uv(
        *("pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"),
        text=f"tableferry[all] @ {wheel.as_uri()}\ndagster-dlt\ndagster-sling\n",
    )
    assert "\ndagster-sling==" in found, "by our own requirements, without the tests' constraints"


def test_the_base_install_is_small(wheel: Path, tmp_path: Path) -> None:
    venvs.make(tmp_path / "venv", wheel)
    assert venvs.size(tmp_path / "venv") < MOST_BYTES


def test_a_table_arrives_and_what_follows_it_is_made(shell: ProjectShell, stack: Servers) -> None:
    instance = dg.DagsterInstance.from_config(shell.environment["DAGSTER_HOME"])
    source, target = shell.named("postgres/shop/orders"), shell.named("clickhouse/warehouse/orders")
    listed = json.loads(shell.run("dg list defs --json"))["assets"]
    before = {one["asset_key"]: one["dependency_keys"] for one in listed}
    assert before[target] == [source]
    assert _rows(shell, stack, TARGET) == _rows(shell, stack, SOURCE), "the page has moved them"

    with daemon(shell, instance) as log:
        shell.run(f"dg launch --assets {source}")
        assert _rows(shell, stack, TARGET) != _rows(shell, stack, SOURCE), "a row has changed"
        shell.run(f"dg launch --assets key:{target} --partition {FIRST}")
        until("all that follows", lambda: _followed(shell, instance), log=log)

    moved = _rows(shell, stack, TARGET)
    assert moved == _rows(shell, stack, SOURCE)
    after = PostgresResource(url=stack.postgres_url)
    seen = after.query(shell.named("SELECT name FROM shop_after.ranges_seen"))
    assert seen == [(FIRST,)], "what follows each range followed the one that has moved"
    ((count, total),) = after.query(shell.named("SELECT orders, total FROM shop_after.revenue"))
    assert (str(count), str(total)) == (moved[0][0], moved[0][2])

    shell.environment["TABLEFERRY_TRANSFERS"] = shell.named("src/shop/defs/moves/transfers")
    status = json.loads(shell.run(shell.named("ferry status orders --json")))
    assert status["ok"], "the commands read the same event log"
    found = {(one["range"], one["state"], all(one["checks"].values())) for one in status["ranges"]}
    assert found == {(name, "committed", True) for name in RANGES}


def _followed(shell: ProjectShell, instance: dg.DagsterInstance) -> bool:
    """Whether all that follows the target has been made, and the project's check of it is green."""
    names = [shell.named(name) for name in ("range_seen", "orders", "revenue")]
    target = dg.AssetKey(["clickhouse", "warehouse", shell.named("orders")])
    verdicts = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(target, "no_negative_amounts"),
        limit=1,
        status={AssetCheckExecutionRecordStatus.SUCCEEDED},
    )
    made = (instance.get_latest_materialization_event(dg.AssetKey(name)) for name in names)
    return bool(verdicts) and all(made)


def _rows(shell: ProjectShell, stack: Servers, place: str) -> list[tuple[Any, ...]]:
    """What is in a table, summed up."""
    server: Any = PostgresResource(url=stack.postgres_url)
    if place == TARGET:
        server = ClickHouseResource(url=stack.clickhouse_url)
    sql = f"SELECT count(*), sum(id), sum(amount), max(customer) FROM {place}"
    return [tuple(map(str, row)) for row in server.query(shell.named(sql))]


def test_a_mistake_in_the_component_is_told_with_its_line(shell: ProjectShell) -> None:
    file = shell.folder / shell.named("src/shop/defs/moves/defs.yaml")
    good = file.read_text(encoding="utf-8")
    line = 1 + good.splitlines().index("      key: id")
    file.write_text(good.replace("      key: id", "      kye: id"), encoding="utf-8")
    try:
        code, printed = shell.type("dg check defs")
    finally:
        file.write_text(good, encoding="utf-8")
    assert code == 1
    assert f"{file}:{line}: unknown key kye: did you mean key?" in printed
