"""What people see in Dagster's web UI: lineage, partitions, checks, the rows that differ.

`make screenshots` runs it to take the pictures of the documentation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from pipelines.command import demo, runner
from pipelines.command.session import Session, open_session
from tableferry_local.demo_data import load_demo_data
from tests.integration.webui import Browser, UserInterface, browser, until
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NAME = "departures"
SQLSERVER = dg.AssetKey(["sqlserver", "dbo", NAME])
CLICKHOUSE = dg.AssetKey(["clickhouse", "warehouse", NAME])
TRANSFER = f"""\
transfer: {NAME}
description: Departures from New York in 2013.
source: postgres://public.{NAME}
hops:
  - sqlserver://dbo.{NAME}
  - clickhouse://warehouse.{NAME}
key: id
ranges: {{bounds: [1, 5001, 10001, 15001, 20001, 25001]}}
owners: ["team:data-platform"]
"""
SOURCE = f"""\
DROP TABLE IF EXISTS {NAME};
CREATE TABLE {NAME} AS
SELECT id, carrier, flight, tailnum, origin, dest, dep_delay, distance, time_hour
FROM flights WHERE id <= 25000;
ALTER TABLE {NAME} ADD PRIMARY KEY (id);
"""
FIRST, SECOND, THIRD, FOURTH = (
    f"{start:010d}..{start + 5000:010d}" for start in (1, 5001, 10001, 15001)
)
CONCLUSION = (
    "checksum FAILED: 5000 rows in source, 4999 in target"
    "; 1 row missing in target, 3 rows different (tailnum, dep_delay, distance)"
)
PICTURES = "TABLEFERRY_SCREENSHOTS"
"""The folder that pictures go to; a test's own when not set."""
MOST_BYTES = 300_000


@dataclass(frozen=True)
class Ui:
    """A moved transfer, and the user interface that shows it."""

    stack: Servers
    session: Session
    dagster: UserInterface

    def source(self, statement: str) -> None:
        with psycopg.connect(self.stack.postgres_url, autocommit=True) as connection:
            connection.execute(statement)

    def target(self, expression: str, key: int) -> object:
        """One value of the last hop's table."""
        return self.session.servers.endpoints["clickhouse"].query(
            f"SELECT {expression} FROM warehouse.{NAME} WHERE id = {key}"
        )[0][0]

    def states(self, asset: dg.AssetKey) -> dict[str, str]:
        """What the latest materialization of each range says of itself."""
        found: dict[str, str] = {}
        for record in self.session.instance.fetch_materializations(asset, limit=1000).records:
            event = record.asset_materialization
            assert event is not None
            found.setdefault(str(event.partition), str(event.metadata["tableferry/state"].value))
        return found


@pytest.fixture(scope="module")
def ui(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """A transfer of real flights that is moved already, shown by `make dev`."""
    folder = tmp_path_factory.mktemp("ui")
    (folder / "transfers").mkdir()
    (folder / "transfers" / f"{NAME}.yaml").write_text(TRANSFER, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stack.environment().items():
            patch.setenv(name, value)
        patch.setenv("TABLEFERRY_TRANSFERS", str(folder / "transfers"))
        patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        load_demo_data(stack.postgres_url)
        with psycopg.connect(stack.postgres_url) as connection:
            connection.execute(SOURCE)
        session = open_session()
        demo.prepare(session)
        moved = runner.run(session, NAME)
        assert moved.good, moved.errors
        dagster = UserInterface(folder / "dagster.log")
        try:
            yield Ui(stack, session, dagster)
        finally:
            dagster.interrupt()
            session.instance.dispose()


@pytest.fixture(scope="module")
def page(ui: Ui, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(ui.dagster.url, tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return Path(os.environ.get(PICTURES, tmp_path))


BOTH = [{"path": key.path} for key in (SQLSERVER, CLICKHOUSE)]


def launch(
    ui: Ui,
    assets: list[dict[str, Sequence[str]]],
    checks: list[dict[str, object]] | None = None,
    **tags: str,
) -> dg.DagsterRun:
    """What the buttons Materialize and Execute do; waits for the run's end."""
    launched = ui.dagster.graphql(
        "mutation ($given: ExecutionParams!) { launchPipelineExecution(executionParams: $given) {"
        "  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }"
        "} }",
        given={
            "selector": {
                "repositoryLocationName": "tableferry",
                "repositoryName": "__repository__",
                "pipelineName": "__ASSET_JOB",
                "assetSelection": assets,
                "assetCheckSelection": checks,
            },
            "mode": "default",
            "executionMetadata": {
                "tags": [{"key": f"dagster/{key}", "value": value} for key, value in tags.items()]
            },
            "runConfigData": {},
        },
    )["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched

    def ended() -> dg.DagsterRun | None:
        run = ui.session.instance.get_run_by_id(launched["run"]["runId"])
        return run if run is not None and run.is_finished else None

    run: dg.DagsterRun = until("the run's end", ended)
    return run


def test_the_demo_registers_its_ranges_for_the_ui(ui: Ui) -> None:
    nodes = ui.dagster.graphql(
        "{ assetNodes { assetKey { path } groupName kinds isPartitioned description"
        "  partitionKeysByDimension { partitionKeys } } }"
    )["assetNodes"]
    found = {"/".join(node["assetKey"]["path"]): node for node in nodes}
    assert set(found) == {
        f"postgres/public/{NAME}",
        f"sqlserver/dbo/{NAME}",
        f"clickhouse/warehouse/{NAME}",
    }
    last = found[f"clickhouse/warehouse/{NAME}"]
    assert (last["groupName"], last["kinds"]) == (NAME, ["clickhouse"])
    keys = last["partitionKeysByDimension"][0]["partitionKeys"]
    assert {FIRST, SECOND, THIRD, FOURTH} <= set(keys)
    assert len(keys) == 7, "one below, one above"


def test_no_invitation_covers_the_first_page(ui: Ui, page: Browser) -> None:
    page.open("/")
    page.see("Materialize an asset")
    time.sleep(3)  # Dagster's dialog would come up a second after the page
    assert "community" not in page.text()
    assert ui.dagster.graphql("{ shouldShowNux }") == {"shouldShowNux": False}


def test_the_lineage_shows_all_three_tables(ui: Ui, page: Browser, pictures: Path) -> None:
    page.open(f"/locations/tableferry/asset-groups/{NAME}")
    shown = page.see("Postgres", "SQL Server", "ClickHouse", "100% filled", "6 / 6 Passed")
    for text in ("100% filled", "6 / 6 Passed", "7 partitions"):
        assert shown.count(text) == 2, f"{text}: both hops; the source has no partitions"
    page.picture(pictures / "assets.png")
    assert (pictures / "assets.png").stat().st_size < MOST_BYTES


def test_one_range_is_materialized_from_the_ui(ui: Ui) -> None:
    ui.source(f"UPDATE {NAME} SET tailnum = 'BY UI' WHERE id = 5555")
    run = launch(ui, BOTH, partition=SECOND)
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert ui.target("tailnum", 5555) == "BY UI"


def test_executing_checks_compares_and_moves_nothing(ui: Ui) -> None:
    before = ui.session.instance.fetch_materializations(CLICKHOUSE, limit=1).records[0]
    names = ("row_count", "checksum", "total_rows", "schema")
    checks: list[dict[str, object]] = [
        {"assetKey": {"path": CLICKHOUSE.path}, "name": name} for name in names
    ]
    run = launch(ui, [], checks)
    assert run.status is dg.DagsterRunStatus.SUCCESS
    after = ui.session.instance.fetch_materializations(CLICKHOUSE, limit=1).records[0]
    assert after.storage_id == before.storage_id
    for name in names:
        found = ui.dagster.graphql(
            "query ($asset: AssetKeyInput!, $name: String!) {"
            " assetCheckExecutions(assetKey: $asset, checkName: $name, limit: 20) {"
            "  runId status evaluation { partition } } }",
            asset={"path": CLICKHOUSE.path},
            name=name,
        )["assetCheckExecutions"]
        ranges = [
            (one["evaluation"] or {}).get("partition")
            for one in found
            if one["runId"] == run.run_id and one["status"] == "SUCCEEDED"
        ]
        whole = name in ("total_rows", "schema")
        assert len(ranges) == (1 if whole else 8), f"{name} of the table, or of each range and all"
        assert not [one for one in found if one["status"] == "SKIPPED"], "no empty rows"


def test_a_backfill_from_the_ui_moves_what_changed_and_skips_the_rest(ui: Ui) -> None:
    ui.source(f"UPDATE {NAME} SET tailnum = 'FILLED' WHERE id = 12345")
    launched = ui.dagster.graphql(
        "mutation ($given: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $given)"
        " { __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }"
        "} }",
        given={
            "assetSelection": BOTH,
            "partitionNames": [SECOND, THIRD, FOURTH],
            "fromFailure": False,
        },
    )["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def status() -> str | None:
        backfill = ui.session.instance.get_backfill(launched["backfillId"])
        assert backfill is not None
        return (
            None
            if backfill.status.value in ("REQUESTED", "IN_PROGRESS")
            else (backfill.status.value)
        )

    assert until("the backfill's end", status, seconds=240) == "COMPLETED_SUCCESS"
    assert ui.target("tailnum", 12345) == "FILLED"
    for asset in (SQLSERVER, CLICKHOUSE):
        states = ui.states(asset)
        assert [states[name] for name in (SECOND, THIRD, FOURTH)] == [
            "skipped_unchanged",
            "committed",
            "skipped_unchanged",
        ]


def test_the_asset_page_tells_what_a_range_took(ui: Ui, page: Browser) -> None:
    page.open(f"/assets/clickhouse/warehouse/{NAME}?view=overview")
    page.see(
        "Departures from New York in 2013.",
        f"sqlserver://dbo.{NAME}",
        "data-platform",
        "DateTime64(6, 'UTC')",
        "moving_seconds",
        "seconds_export",
        "bottleneck",
    )
    page.open(f"/assets/clickhouse/warehouse/{NAME}?view=partitions&partition={THIRD}")
    shown = page.see(THIRD, "Materialized (7)", "wire_format", "bottleneck")
    assert "Failed (0)" in shown
    assert "Missing (0)" in shown


def test_a_failed_check_shows_the_rows_that_differ(ui: Ui, page: Browser, pictures: Path) -> None:
    clickhouse = ui.session.servers.endpoints["clickhouse"]
    now = "SETTINGS mutations_sync = 2"
    for change in (
        "UPDATE tailnum = concat(assumeNotNull(tailnum), ' ') WHERE id = 10100",
        "UPDATE distance = distance + 1 WHERE id IN (10100, 10101)",
        "UPDATE dep_delay = NULL WHERE id = 10102",
        "DELETE WHERE id = 10103",
    ):
        clickhouse.execute(f"ALTER TABLE warehouse.{NAME} {change} {now}")
    found = runner.check(ui.session, NAME).checks
    assert {one.range for one in found if one.failed} == {THIRD, None}, "and the table as a whole"
    page.open(f"/assets/clickhouse/warehouse/{NAME}?view=checks")
    page.see("checksum", "Failed", CONCLUSION)
    page.click_text("Hide navigation")
    page.click_text("Partitions")
    page.see("Failed (1)", "Passed (6)")
    page.click(f"[title='{THIRD}']")
    shown = page.see(CONCLUSION, "differing_rows", "missing in target", "10103")
    tail = ui.session.servers.endpoints["postgres"].query(
        f"SELECT tailnum FROM {NAME} WHERE id = 10100"
    )[0][0]
    assert f"'{tail}'" in shown
    assert f"'{tail} '" in shown, "the blank at the end is seen"
    assert "NULL" in shown
    page.picture(pictures / "checks.png")
    assert (pictures / "checks.png").stat().st_size < MOST_BYTES
    assert runner.run(ui.session, NAME).good, "the damaged range moves again"


def test_ctrl_c_ends_all(ui: Ui) -> None:
    before = ui.dagster.processes()
    assert len(before) > 3, "make, dagster dev, webserver, daemon, code server"
    ui.dagster.interrupt()
    until("the end of all processes", lambda: not any(one.is_running() for one in before), 60)
    log = ui.dagster.log.read_text()
    assert "Warning" not in log, log
    assert "Traceback" not in log, log
