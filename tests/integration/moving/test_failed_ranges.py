"""What failed, and only that, runs again: by the command, and from Dagster's user interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import rows_of
from tests.integration.support.interface import Interface, served

pytestmark = pytest.mark.integration

DIRECT = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date NOT NULL)",
    "INSERT INTO {t} SELECT g, 'x', '2024-01-01' FROM generate_series(1, 125) g",
)
REFUSED = "UPDATE {t} SET amount = '0044-03-15 BC' WHERE id IN (30, 80)"
MENDED = "UPDATE {t} SET amount = '2000-01-01' WHERE id IN (30, 80)"
FIRST, SECOND, THIRD, FOURTH, FIFTH = (
    "..0000000026",
    "0000000026..0000000051",
    "0000000051..0000000076",
    "0000000076..0000000101",
    "0000000101..0000000126",
)
Make = Callable[..., Ferry]


def test_failed_runs_only_what_failed(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, REFUSED, ranges="{rows: 25}")
    first = one.run(ranges=[FIRST, SECOND, THIRD, FOURTH])
    assert not first.good
    one.source(MENDED, "UPDATE {t} SET name = 'y' WHERE id = 1")
    again = one.run(failed=True)
    assert again.good, again.errors
    assert one.moved(again) == [SECOND, FOURTH]
    assert one.materializations("clickhouse", "warehouse") == {
        name: 1 for name in (FIRST, SECOND, THIRD, FOURTH)
    }, "neither the changed first range nor the fifth, which never ran"
    rest = one.run()
    assert rest.good
    assert one.moved(rest)[:2] == [FIRST, FIFTH]
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_failed_range_whose_change_was_taken_back_is_settled(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 25}")
    assert one.run().good
    one.source("UPDATE {t} SET amount = '0044-03-15 BC' WHERE id = 30")
    assert not one.run().good
    one.source("UPDATE {t} SET amount = '2024-01-01' WHERE id = 30")
    again = one.run()
    assert again.good, again.errors
    assert one.moved(again) == []


@pytest.fixture
def interface(ferry: Make, tmp_path: Path) -> Iterator[tuple[Ferry, Interface]]:
    with served(lambda: ferry(DIRECT, *TABLE, ranges="{rows: 25}"), tmp_path / "dagster") as found:
        yield found


def test_the_user_interface_runs_only_what_failed_or_is_missing(
    interface: tuple[Ferry, Interface],
) -> None:
    ferry, api = interface
    ferry.source(REFUSED)
    # the partitions become known, and the last but one range is committed
    assert ferry.run(ranges=[FIFTH]).good
    selector = api.selector(ASSET_JOB, f"clickhouse/warehouse/{ferry.table}")

    launched = api.ask(
        """mutation($params: ExecutionParams!) {
          launchPipelineExecution(executionParams: $params) {
            __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
          } }""",
        params={
            "selector": selector,
            "mode": "default",
            "executionMetadata": {
                "tags": [
                    {"key": RANGE_START, "value": FIRST},
                    {"key": RANGE_END, "value": SECOND},
                ]
            },
        },
    )
    assert launched["__typename"] == "LaunchRunSuccess", launched
    failed = launched["run"]["runId"]
    assert api.wait(failed) is dg.DagsterRunStatus.FAILURE
    assert ferry.materializations("clickhouse", "warehouse") == {FIRST: 1, FIFTH: 1}

    ferry.source(MENDED)
    assert api.reexecute(failed, "FROM_FAILURE") is dg.DagsterRunStatus.SUCCESS
    assert ferry.materializations("clickhouse", "warehouse") == {FIRST: 1, SECOND: 1, FIFTH: 1}

    asset = {"path": ["clickhouse", "warehouse", ferry.table]}
    node = api.ask(
        """query($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) {
          ... on AssetNode { assetPartitionStatuses { ... on DefaultPartitionStatuses {
            materializedPartitions failedPartitions unmaterializedPartitions } } } } }""",
        asset=asset,
    )
    statuses = node["assetPartitionStatuses"]
    assert sorted(statuses["materializedPartitions"]) == sorted([FIRST, SECOND, FIFTH])
    missing = statuses["unmaterializedPartitions"] + statuses["failedPartitions"]
    assert set(missing) == {THIRD, FOURTH, "0000000126.."}
    runs = api.launch_backfill([asset["path"]], sorted(set(missing)))
    assert len(runs) == 2, "one run per stretch of neighbours"
    every = [FIRST, SECOND, THIRD, FOURTH, FIFTH, "0000000126.."]
    assert ferry.materializations("clickhouse", "warehouse") == dict.fromkeys(every, 1)
    assert rows_of(ferry, "clickhouse") == rows_of(ferry, "postgres")
