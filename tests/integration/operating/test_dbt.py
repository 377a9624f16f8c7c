"""The chapter about dbt, as its reader follows it, in a project of its own with a real dbt."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tableferry.resources.postgres.resource import PostgresResource
from tests.integration.operating.test_in_a_project import SETTINGS
from tests.integration.support import pictures, venvs
from tests.integration.support.beside import until
from tests.integration.support.guide_shell import environment
from tests.integration.support.project_shell import ProjectShell
from tests.integration.support.webui import browser, webserver
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(2400)]

PAGE = "dbt.md"
CONSTRAINTS = "dagster==1.13.27\ndbt-core<1.12\n"
"""dbt 1.12 gets a compiled parser from elsewhere than the registry."""
OURS = """
import dagster as dg

automation = dg.AutomationConditionSensorDefinition(
    "automation",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=1,
)


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(sensors=[automation], executor=dg.in_process_executor)
"""
WORKSPACE = """
load_from:
  - python_module: {module_name: shop.definitions, working_directory: src}
"""
MODEL = dg.AssetKey("large_orders")
RANGES = ("..0000050001", "0000050001..0000100001", "0000100001..")


@pytest.fixture(scope="module")
def shell(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProjectShell]:
    """A shell in the project, in which all that the page says has been done."""
    folder = tmp_path_factory.mktemp("dbt")
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text(SETTINGS + "nux: {enabled: false}\n")
    (folder / "constraints.txt").write_text(CONSTRAINTS)
    wheel = venvs.build_wheel(tmp_path_factory.mktemp("wheel"))
    given = stack.environment() | {
        "UV_FIND_LINKS": str(wheel.parent),
        "UV_CONSTRAINT": str(folder / "constraints.txt"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "DO_NOT_TRACK": "1",
    }
    parts = conninfo_to_dict(stack.postgres_url)
    names = {"dbname": "database"}
    given |= {f"PG{names.get(name, name).upper()}": str(part) for name, part in parts.items()}
    # in a picture the tables are called as on the page
    shell = ProjectShell(folder, environment(**given), shared=pictures.PICTURES not in os.environ)
    try:
        shell.follow(PAGE, lambda: _put_ours_into(shell))
        yield shell
    finally:
        print(*shell.printed, sep="\n")
        shell.close()
        source = PostgresResource(url=stack.postgres_url)
        for schema in ("shop", "shop_copy", "shop_models"):
            source.execute(f"DROP SCHEMA IF EXISTS {shell.named(schema)} CASCADE")


def _put_ours_into(shell: ProjectShell) -> None:
    """Give a new project a sensor that is on, and runs that start no process for each step."""
    path = shell.folder / shell.named("src/shop/defs/automation.py")
    path.write_text(OURS, encoding="utf-8")
    (shell.folder / "workspace.yaml").write_text(shell.named(WORKSPACE), encoding="utf-8")


def test_one_graph_leads_from_the_table_to_the_model(shell: ProjectShell) -> None:
    listed = json.loads(shell.run("dg list defs --json"))["assets"]
    before = {each["asset_key"]: each["dependency_keys"] for each in listed}
    target = shell.named("postgres/shop_copy/orders")
    assert before[target] == [shell.named("postgres/shop/orders")]
    assert before["large_orders"] == [target]


def test_the_graph_is_seen(shell: ProjectShell, tmp_path: Path) -> None:
    python = Path(str(shutil.which("python", path=shell.environment["PATH"])))
    log = tmp_path / "webserver.log"
    module = shell.named("shop.definitions")
    with (
        webserver(shell.folder / "src", module, python, shell.environment, log) as url,
        browser(url, tmp_path / "chromium") as page,
    ):
        page.resize(1500, 560)
        page.open("/assets/large_orders?view=lineage&lineageScope=upstream&lineageDepth=5")
        page.see(*map(shell.named, ("shop", "shop_copy", "orders")), "large_orders")
        hide, closer = "Hide navigation", "[aria-label=zoom_in]"
        page.do(lambda: page.click_text(hide), until_seen=lambda: not page.shows(hide))
        # from afar, assets show nothing but their names
        near = ("100% filled", "3 partitions", "dbt")
        page.do(lambda: page.click(closer), until_seen=lambda: page.shows(*near), seconds=3)
        picture = pictures.folder_or(tmp_path) / "dbt.png"
        page.picture(picture)
        shown = page.see(*map(shell.named, ("shop", "shop_copy")), "large_orders", "Postgres")
        assert shown.count(shell.named("orders")) >= 2, "the table and its target"
        assert shown.count("100% filled") == 1, "the target; source and model have no partitions"
    assert picture.stat().st_size < 150_000


def test_a_model_reads_what_has_moved_by_itself(shell: ProjectShell, stack: Servers) -> None:
    server = PostgresResource(url=stack.postgres_url)
    instance = dg.DagsterInstance.from_config(shell.environment["DAGSTER_HOME"])

    def rows(table: str) -> list[tuple[int, str]]:
        return server.query(
            shell.named(f"SELECT id, customer FROM {table} WHERE amount > 1000 ORDER BY id")
        )

    def made() -> list[tuple[int]]:
        return server.query(
            shell.named(
                "SELECT count(*) FROM shop_models.large_orders GROUP BY made_at ORDER BY made_at"
            )
        )

    assert rows("shop_models.large_orders") == rows("shop.orders"), "the page has made it"
    assert made() == [(46_000,), (49_999,)], "the second run has replaced one range"
    times = _times_made(instance)
    with shell.background("dagster-daemon run -w workspace.yaml", shell.folder / "daemon.log"):
        until("the first look", lambda: _looked(instance), log=shell.folder / "daemon.log")
        server.execute(shell.named("UPDATE shop.orders SET customer = 'new' WHERE id = 4500"))
        target = shell.named("key:postgres/shop_copy/orders")
        shell.run(f"dg launch --assets {target} --partition {RANGES[0]}")
        until(
            "the model",
            lambda: _times_made(instance) > times,
            log=shell.folder / "daemon.log",
        )
    assert rows("shop_models.large_orders") == rows("shop.orders")
    assert made() == [(49_999,), (46_000,)], "the other range was not read again"


def _times_made(instance: dg.DagsterInstance) -> int:
    return len(instance.fetch_materializations(MODEL, limit=100).records)


def _looked(instance: dg.DagsterInstance) -> bool:
    """Whether the sensor has looked at all assets once: what it sees then is not news."""
    return any(
        instance.get_ticks(state.instigator_origin_id, state.selector_id)
        for state in instance.all_instigator_state()
        if state.name == "automation"
    )
