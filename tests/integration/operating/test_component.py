"""The component in a project on real servers: scaffolded from a catalog, and moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import DefsFolderSandbox, create_defs_folder_sandbox

import tableferry
from tableferry.assets.log.command_runs import selected
from tableferry.assets.log.runs import COMPLETE
from tests.integration.conftest import QUIET
from tests.integration.support import homes, looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

SCHEMA = own("component")
TABLE = own("sales")
MADE = (
    f"CREATE SCHEMA {SCHEMA}",
    f"CREATE TABLE {SCHEMA}.{TABLE} (id int PRIMARY KEY, amount numeric(12,2) NOT NULL)",
    f"INSERT INTO {SCHEMA}.{TABLE} SELECT g, g * 1.5 FROM generate_series(1, 100) g",
)
TARGET = dg.AssetKey(["lake", "warehouse", TABLE])
FOLLOWS = f"""
import dagster as dg
import tableferry

class Told(tableferry.TransfersComponent):
    def execute(self, context, transfer, servers):
        yield from super().execute(context, transfer, servers)
        context.instance.add_dynamic_partitions("told", context.partition_keys)

@dg.asset(deps=[{TARGET.path}], automation_condition=dg.AutomationCondition.eager())
def total(): ...
"""


@pytest.fixture
def sandbox(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[DefsFolderSandbox]:
    """A project beside a table; the variables of the servers are its own."""
    for name in stack.environment():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SHOP", stack.postgres_url)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", stack.clickhouse_url)
    looking.ask_postgres(stack.postgres_url, *MADE)
    with create_defs_folder_sandbox() as made:
        yield made
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA {SCHEMA} CASCADE")


def scaffolded(sandbox: DefsFolderSandbox, **more: Any) -> Path:
    flags = {"from": "shop", "tables": [f"{SCHEMA}.*"], "to": ["lake://warehouse.{table}"], **more}
    return sandbox.scaffold_component(tableferry.TransfersComponent, "moves", scaffold_params=flags)


def test_a_table_of_the_catalog_is_moved_by_the_component_of_a_project(
    sandbox: DefsFolderSandbox, stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scaffolded(sandbox)
    transfer = folder / "transfers" / f"{TABLE}.yaml"
    assert f"source: shop://{SCHEMA}.{TABLE}" in transfer.read_text()
    text = (folder / "defs.yaml").read_text()
    assert yaml.safe_load(text)["attributes"] == {
        "connections": {
            name: {"system": system, "url": f"{{{{ env.TABLEFERRY_CONNECTION_{name.upper()} }}}}"}
            for name, system in (("lake", "clickhouse"), ("shop", "postgres"))
        },
        "path": "transfers",
    }
    # other variables, of which nobody but this component knows
    for name in ("SHOP", "LAKE"):
        monkeypatch.setenv(f"OUR_{name}", os.environ[f"TABLEFERRY_CONNECTION_{name}"])
        monkeypatch.delenv(f"TABLEFERRY_CONNECTION_{name}")
    attributes = text.partition("\n")[2].replace("TABLEFERRY_CONNECTION_", "OUR_")
    (folder / "defs.yaml").write_text(f"type: .told.Told\n{attributes}")
    (folder / "told.py").write_text(FOLLOWS)
    (sandbox.defs_folder_path / "total.py").write_text("from .moves.told import total\n")
    transfer.write_text(
        transfer.read_text().replace("ranges: {rows: ", "ranges: {bounds: [51, 101]} # ")
    )

    with sandbox.build_all_defs() as found, homes.local_temp(tmp_path / "home") as instance:
        repository = found.get_repository_def()
        sensor = repository.get_sensor_def("moves_first_ranges")
        sensor.evaluate_tick(dg.build_sensor_context(instance, repository_def=repository))
        ranges = instance.get_dynamic_partitions(f"{TABLE}_ranges")
        assert len(ranges) == 3
        job = found.resolve_implicit_global_asset_job_def()
        before = dg.evaluate_automation_conditions(found, instance)
        for name in ranges:
            moved = job.execute_in_process(
                instance=instance,
                partition_key=name,
                asset_selection=[TARGET],
                run_config=QUIET,
            )
            assert moved.success
            events = moved.get_asset_materialization_events()
            assert {(event.asset_key, event.partition) for event in events} == {(TARGET, name)}
        after = dg.evaluate_automation_conditions(found, instance, cursor=before.cursor)
        assert (before.total_requested, after.get_num_requested(dg.AssetKey("total"))) == (0, 1)
        assert instance.get_dynamic_partitions("told") == ranges, "what the subclass does besides"
        checks = [dg.AssetCheckKey(TARGET, name) for name in ("row_count", "total_rows")]
        check = selected(found, checks=checks)
        tags = {COMPLETE: "true"}
        assert check.execute_in_process(instance=instance, run_config=QUIET, tags=tags).success
    rows = looking.ask_clickhouse(
        stack.clickhouse_url, f"SELECT count(), sum(amount) FROM warehouse.{TABLE}"
    )
    assert [tuple(map(float, row)) for row in rows] == [(100, 7575)]


def test_a_server_that_does_not_answer_leaves_nothing_behind(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", "http://u:s3cret@127.0.0.1:1/warehouse")
    with pytest.raises(Exception, match="cannot connect to clickhouse at 127") as caught:
        scaffolded(sandbox)
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", "http://127.0.0.1:1/warehouse")
    with pytest.raises(Exception, match="fits none of"):
        scaffolded(sandbox, tables=["nothing.*"])
    assert [one.name for one in sandbox.defs_folder_path.iterdir()] == []
