"""What people see and do in Dagster's web UI, from the lineage to the repair of a failed range.

`make screenshots` runs it to take the pictures of the documentation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from click.testing import CliRunner
from dagster._core.scheduler.instigation import InstigatorStatus

from tableferry.assets.declaring.dagster_rules import schedule_name
from tableferry.assets.log.runs import TRANSFER
from tableferry.pipelines.cli import main
from tableferry.pipelines.command import demo
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry_local.demo_data import load_demo_data
from tests.integration.support.beside import until
from tests.integration.support.ferry_process import FORKED_RUNS
from tests.integration.support.pictures import folder_or
from tests.integration.support.shown import (
    LAUNCH_SECONDS,
    Shown,
    materialize,
    materialize_at,
)
from tests.integration.support.webui import Browser, UserInterface, browser
from tests.servers import Servers, own

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

NAME = "departures"
SQLSERVER = dg.AssetKey(["sqlserver", "dbo", NAME])
CLICKHOUSE = dg.AssetKey(["clickhouse", "warehouse", NAME])
DECLARED = f"""\
transfer: {NAME}
description: Departures from New York in 2013.
source: postgres://public.{NAME}
hops:
  - sqlserver://dbo.{NAME}
  - clickhouse://warehouse.{NAME}
key: id
ranges: {{bounds: [1, 5001, 10001, 15001, 20001, 25001]}}
columns: {{flight: {{rename: flight_number}}}}
owners: ["team:data-platform"]
group: {NAME}
schedule: "0 2 * * *"
"""
OTHER = "carriers"
SCHEDULED = f"""\
transfer: {OTHER}
source: postgres://public.{OTHER}
hops: ["clickhouse://warehouse.{OTHER}"]
key: id
ranges: {{rows: 10}}
schedule: "* * * * *"
expectations:
  - {{type: expect_column_values_to_not_be_null, kwargs: {{column: carrier}}}}
  - {{name: each carrier flies, type: sql,
     kwargs: {{query: "SELECT * FROM {{table}} WHERE {{range}} AND departures < 1"}}}}
"""
NEW = "tails"
FIRST_MOVE = f"""\
transfer: {NEW}
group: {NEW}
source: postgres://public.{NEW}
hops: ["clickhouse://warehouse.{NEW}"]
key: id
ranges: {{rows: 1000}}
"""
WATCHED = "aircraft"
COMPARED = f"""\
transfer: {WATCHED}
description: Filled by another tool.
source: postgres://public.{WATCHED}
hops: ["clickhouse://warehouse.{WATCHED}"]
key: id
ranges: {{bounds: [1, 251, 501, 751]}}
write: none
"""
REJECTING = "landings"
QUARANTINED = f"""\
transfer: {REJECTING}
description: Landings; some have a time that ClickHouse cannot hold.
source: postgres://public.{REJECTING}
hops: ["clickhouse://warehouse.{REJECTING}"]
key: id
group: {REJECTING}
ranges: {{bounds: [1, 1001]}}
on_reject: quarantine
freshness: 1d
"""
COPY = f"""\
CREATE OR REPLACE TABLE warehouse.{WATCHED} (id Int32, tailnum String, flights Int64)
ENGINE = MergeTree ORDER BY id"""
SOURCE = f"""\
DROP TABLE IF EXISTS {NAME};
CREATE TABLE {NAME} AS
SELECT id, carrier, flight, tailnum, origin, dest, dep_delay, distance, time_hour
FROM flights WHERE id <= 25000;
ALTER TABLE {NAME} ADD PRIMARY KEY (id);
DROP TABLE IF EXISTS {OTHER};
CREATE TABLE {OTHER} AS
SELECT row_number() OVER (ORDER BY carrier)::int AS id, carrier, count(*) AS departures
FROM flights GROUP BY carrier;
ALTER TABLE {OTHER} ADD PRIMARY KEY (id);
DROP TABLE IF EXISTS {WATCHED};
CREATE TABLE {WATCHED} AS
SELECT row_number() OVER (ORDER BY tailnum)::int AS id, tailnum, count(*) AS flights
FROM flights WHERE tailnum IS NOT NULL GROUP BY tailnum LIMIT 1000;
ALTER TABLE {WATCHED} ADD PRIMARY KEY (id), ALTER tailnum SET NOT NULL, ALTER flights SET NOT NULL;
DROP TABLE IF EXISTS {REJECTING};
CREATE TABLE {REJECTING} AS
SELECT id, CASE WHEN id IN (7, 1500) THEN 'infinity' ELSE time_hour::timestamptz END AS at, dest
FROM flights WHERE id <= 2000;
ALTER TABLE {REJECTING} ADD PRIMARY KEY (id);
"""
STORES = own("stores")
"""A schema of 30 tables, of which one has rows."""
STORE = "store_17"
STORE_ASSET = dg.AssetKey(["clickhouse", "warehouse", f"{STORES}_{STORE}"])
STORE_RANGE = "0000000101..0000000201"
SOURCE_OF_STORES = f"""\
CREATE SCHEMA {STORES};
DO $$ BEGIN FOR n IN 1..30 LOOP
    EXECUTE format('CREATE TABLE {STORES}.store_%s (id integer PRIMARY KEY, item text)',
                   to_char(n, 'FM00'));
END LOOP; END $$;
INSERT INTO {STORES}.{STORE} SELECT g, 'item ' || g FROM generate_series(1, 300) g;
"""
MANY = f"""\
tables: "postgres://{STORES}.*"
hops: ["clickhouse://warehouse.{{schema}}_{{table}}"]
schedule: "0 3 * * *"
overrides: {{{STORE}: {{ranges: {{bounds: [1, 101, 201]}}}}}}
"""
FIRST, SECOND, THIRD, FOURTH = (
    f"{start:010d}..{start + 5000:010d}" for start in (1, 5001, 10001, 15001)
)
CONCLUSION = (
    "checksum FAILED: 5,000 rows in source, 4,999 in target"
    "; 1 row missing in target, 3 rows differ: tailnum, dep_delay, distance"
)
PAGE = f"/assets/clickhouse/warehouse/{NAME}"
STORE_PAGE = f"/assets/{'/'.join(STORE_ASSET.path)}"
SCHEDULE = f"/locations/tableferry/schedules/{OTHER}_schedule"
SEARCH = "[data-search-input]"
SWITCH = "label:has(input[type=checkbox])"
ON, OFF = f"{SWITCH} input:checked", f"{SWITCH} input:not(:checked)"
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def ui(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A transfer that is moved already, and one that is not, as `make dev` shows them."""
    folder = tmp_path_factory.mktemp("ui")
    (folder / "transfers").mkdir()
    (folder / "transfers" / f"{NAME}.yaml").write_text(DECLARED, encoding="utf-8")
    (folder / "transfers" / f"{OTHER}.yaml").write_text(SCHEDULED, encoding="utf-8")
    (folder / "transfers" / f"{WATCHED}.yaml").write_text(COMPARED, encoding="utf-8")
    (folder / "transfers" / f"{REJECTING}.yaml").write_text(QUARANTINED, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stack.environment().items():
            patch.setenv(name, value)
        patch.setenv("TABLEFERRY_TRANSFERS", str(folder / "transfers"))
        patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        patch.setenv("FRESHNESS_DAEMON_INTERVAL_SECONDS", "10")  # not 30
        for name, value in FORKED_RUNS.items():
            patch.setenv(name, value)
        load_demo_data(stack.postgres_url)
        with psycopg.connect(stack.postgres_url) as connection:
            connection.execute(SOURCE)
            connection.execute(SOURCE_OF_STORES.encode())
        (folder / "transfers" / "stores.yaml").write_text(MANY, encoding="utf-8")
        refreshed = CliRunner().invoke(main, ["refresh"])
        assert refreshed.exit_code == 0, refreshed.output
        session = open_session()
        demo.prepare(session)
        moved = runner.run(session, NAME)
        assert moved.good, moved.errors
        moved = runner.run(session, REJECTING)
        assert moved.good, moved.errors
        dagster = UserInterface(folder / "dagster.log")
        try:
            yield Shown(stack, session, dagster, NAME, folder / "transfers")
        finally:
            dagster.interrupt()
            session.instance.dispose()


@pytest.fixture(scope="module")
def page(ui: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(ui.dagster.url, tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return folder_or(tmp_path)


def test_the_demo_registers_its_ranges_for_the_ui(ui: Shown) -> None:
    nodes = ui.dagster.graphql(
        "{ assetNodes { assetKey { path } groupName kinds isPartitioned description"
        "  partitionKeysByDimension { partitionKeys } } }"
    )["assetNodes"]
    found = {"/".join(node["assetKey"]["path"]): node for node in nodes}
    stores = {name for name in found if STORES in name}
    assert len(stores) == 2 * 30
    assert set(found) - stores == {
        f"postgres/public/{NAME}",
        f"sqlserver/dbo/{NAME}",
        f"clickhouse/warehouse/{NAME}",
        f"postgres/public/{OTHER}",
        f"clickhouse/warehouse/{OTHER}",
        f"postgres/public/{WATCHED}",
        f"clickhouse/warehouse/{WATCHED}",
        f"postgres/public/{REJECTING}",
        f"clickhouse/warehouse/{REJECTING}",
        f"clickhouse/warehouse/{REJECTING}__rejected",
    }
    last = found[f"clickhouse/warehouse/{NAME}"]
    assert (last["groupName"], last["kinds"]) == (NAME, ["clickhouse"])
    keys = last["partitionKeysByDimension"][0]["partitionKeys"]
    assert {FIRST, SECOND, THIRD, FOURTH} <= set(keys)
    assert len(keys) == 7, "one below, one above"


def test_no_invitation_covers_the_first_page(ui: Shown, page: Browser) -> None:
    page.open("/")
    page.see("Timeline", "tableferry")
    time.sleep(3)  # Dagster's dialog would come up a second after the page
    assert "community" not in page.text()
    assert ui.dagster.graphql("{ shouldShowNux }") == {"shouldShowNux": False}


def test_a_schedule_is_switched_on(ui: Shown, page: Browser) -> None:
    page.go(SCHEDULE)
    page.do(lambda: page.click(SWITCH), until_seen=lambda: page.there(ON))
    assert page.there(ON) and not page.there(OFF)


def test_one_of_many_transfers_is_found_by_search_and_one_range_of_it_materialized(
    ui: Shown, page: Browser
) -> None:
    page.open("/")
    asset_link = f"a[href='{STORE_PAGE}']"
    page.do(lambda: page.press("Search"), until_seen=lambda: page.there(SEARCH))
    page.write(SEARCH, STORE)
    page.has(asset_link)
    page.do(lambda: page.click(asset_link), until_seen=lambda: STORE_PAGE in page.address())
    page.see("Never materialized", f"postgres://{STORES}.{STORE}")
    run = ui.ended(ui.launched(page, lambda: materialize_at(page, STORE_PAGE, STORE_RANGE)))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags["dagster/partition"] == STORE_RANGE
    assert ui.states(STORE_ASSET) == {STORE_RANGE: "committed"}
    arrived = ui.session.servers.endpoints["clickhouse"].query(
        f"SELECT count(), min(id), max(id) FROM warehouse.{STORE_ASSET.path[-1]}"
    )
    assert arrived == [(100, 101, 200)]
    page.go(f"{STORE_PAGE}?view=partitions")
    page.see("Materialized (1)", "Missing (3)")


def test_the_schedule_of_one_of_many_transfers_is_switched_off(ui: Shown, page: Browser) -> None:
    def status() -> InstigatorStatus | None:
        states = ui.session.instance.all_instigator_state()
        return next((state.status for state in states if state.name == name), None)

    name = schedule_name(STORE)
    page.open("/automation")
    page.see("store_01_schedule")
    page.write("[aria-label='Search and filter automations']", f"{name}\n")
    until("only that schedule", lambda: not page.shows("store_01_schedule"))
    controls = f"a[href='/locations/tableferry/schedules/{name}'] + div"
    switch, on, off = (f"{controls} {css}" for css in (SWITCH, ON, OFF))
    page.do(lambda: page.click(switch), until_seen=lambda: page.there(on))
    until("it is on", lambda: status() is InstigatorStatus.RUNNING)
    page.do(lambda: page.click(switch), until_seen=lambda: page.there(off))
    until("it is off", lambda: status() is InstigatorStatus.STOPPED)


def test_the_lineage_shows_all_three_tables(ui: Shown, page: Browser, pictures: Path) -> None:
    page.go(f"/locations/tableferry/asset-groups/{NAME}")
    shown = page.see("Postgres", "SQL Server", "ClickHouse", "100% filled", "6 / 6 Passed")
    for text in ("100% filled", "6 / 6 Passed", "7 partitions"):
        assert shown.count(text) == 2, f"{text}: both hops; the source has no partitions"
    page.picture(pictures / "assets.png")
    assert (pictures / "assets.png").stat().st_size < MOST_BYTES


def test_the_rejected_rows_are_in_the_graph_with_their_freshness(
    ui: Shown, page: Browser, pictures: Path
) -> None:
    page.go(f"/assets/clickhouse/warehouse/{REJECTING}__rejected?view=overview")
    lasts = "Fails if more than 24 hours since last materialization"
    page.see("Passing", lasts, "Row count\n2\n")
    page.go(f"/locations/tableferry/asset-groups/{REJECTING}")
    shown = page.see("Postgres", "ClickHouse", f"{REJECTING}__rejected", "100% filled")
    assert shown.count("100% filled") == 1, "what is rejected has no partitions"
    page.picture(pictures / "rejected.png")
    assert (pictures / "rejected.png").stat().st_size < MOST_BYTES


def test_a_run_of_a_command_is_on_the_timeline_and_is_executed_again(
    ui: Shown, page: Browser
) -> None:
    (command,) = ui.session.instance.get_runs(dg.RunsFilter(tags={TRANSFER: NAME}))
    page.open("/timeline")
    page.see("tableferry")
    page.go(f"/runs/{command.run_id}")
    again = ui.ended(ui.launched(page, lambda: page.press("Re-execute")))
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert again.parent_run_id == command.run_id
    assert {*ui.states(CLICKHOUSE).values()} == {"skipped_unchanged"}


def test_a_new_table_is_moved_for_the_first_time_from_the_ui(ui: Shown, page: Browser) -> None:
    ui.source(
        f"DROP TABLE IF EXISTS {NEW}; CREATE TABLE {NEW} AS SELECT id, tailnum FROM flights "
        f"WHERE id <= 3000; ALTER TABLE {NEW} ADD PRIMARY KEY (id)"
    )
    (ui.folder / f"{NEW}.yaml").write_text(FIRST_MOVE, encoding="utf-8")
    before = _loaded(ui)
    page.open(f"/locations/tableferry/asset-groups/{NAME}")
    page.do(
        lambda: page.press("Reload definitions"),
        until_seen=lambda: _loaded(ui) not in (None, before),
        seconds=LAUNCH_SECONDS,
    )
    # nobody has switched anything on
    until("its ranges", lambda: ui.session.instance.get_dynamic_partitions(f"{NEW}_ranges"))
    page.go(f"/assets/clickhouse/warehouse/{NEW}?view=checks&checkDetail=total_rows")
    page.see("not moved yet: none of 4 key ranges is committed")
    page.open(f"/locations/tableferry/asset-groups/{NEW}")
    page.see("0% filled", "4 partitions")
    run = ui.ended(ui.launched(page, lambda: materialize(page, NEW, all_in="All")))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert ui.target("count()", 2999, NEW) == 1
    assert set(ui.states(dg.AssetKey(["clickhouse", "warehouse", NEW])).values()) == {"committed"}


def test_one_range_is_materialized_from_the_ui(ui: Shown, page: Browser) -> None:
    ui.source(f"UPDATE {NAME} SET tailnum = 'BY UI' WHERE id = 5555")
    run = ui.ended(ui.launched(page, lambda: materialize(page, NAME, SECOND)))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags["dagster/partition"] == SECOND
    assert ui.target("tailnum", 5555) == "BY UI"


def test_executing_checks_compares_and_moves_nothing(ui: Shown, page: Browser) -> None:
    before = ui.session.instance.fetch_materializations(CLICKHOUSE, limit=1).records[0]
    names = ("row_count", "checksum", "total_rows", "schema")
    page.open(f"{PAGE}?view=checks")
    page.see("checksum")
    run = ui.ended(ui.launched(page, lambda: page.press("Execute all")))
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
    page.open(f"{PAGE}?view=checks&checkDetail=checksum")
    until("*Execute all*", lambda: page.can_press("Execute all"))
    assert page.buttons("Execute") == [False], "of one check, as the guide says"


def test_a_source_that_is_newer_is_a_warning_on_the_page_of_a_check(
    ui: Shown, page: Browser
) -> None:
    ui.source(f"UPDATE {NAME} SET distance = distance + 1 WHERE id = 5557")
    page.open(f"/assets/sqlserver/dbo/{NAME}?view=checks")
    page.see("checksum")
    run = ui.ended(ui.launched(page, lambda: page.press("Execute all")))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    page.open(f"/assets/sqlserver/dbo/{NAME}?view=checks&checkDetail=checksum")
    page.see("BEHIND: the source has changed since")
    key = dg.AssetCheckKey(SQLSERVER, "checksum")
    storage = ui.session.instance.event_log_storage
    found = [
        one.evaluation
        for one in storage.get_asset_check_execution_history(key, limit=20)
        if one.run_id == run.run_id and one.evaluation and not one.evaluation.passed
    ]
    assert {one.severity for one in found} == {dg.AssetCheckSeverity.WARN}
    assert any("BEHIND: the source has changed since" in str(one.description) for one in found)
    ui.source(f"UPDATE {NAME} SET distance = distance - 1 WHERE id = 5557")


def test_a_backfill_of_all_moves_what_changed_and_skips_the_rest(ui: Shown, page: Browser) -> None:
    ui.source(f"UPDATE {NAME} SET tailnum = 'FILLED' WHERE id = 12345")
    known = {one.backfill_id for one in ui.session.instance.get_backfills()}
    materialize(page, NAME, all_in="All")

    def new() -> list[Any]:
        found = ui.session.instance.get_backfills()
        return [one for one in found if one.backfill_id not in known]

    (backfill,) = until("the backfill", new)
    page.leave()

    def ended() -> str | None:
        found = ui.session.instance.get_backfill(backfill.backfill_id)
        assert found is not None
        unfinished = found.status.value in ("REQUESTED", "IN_PROGRESS")
        return None if unfinished else found.status.value

    assert until("the backfill's end", ended) == "COMPLETED_SUCCESS"
    assert ui.target("tailnum", 12345) == "FILLED"
    for asset in (SQLSERVER, CLICKHOUSE):
        states = ui.states(asset)
        assert len(states) == 7
        moved = [name for name, state in states.items() if state == "committed"]
        assert moved == [THIRD]
        assert {*states.values()} == {"committed", "skipped_unchanged"}


def test_the_asset_page_tells_what_a_range_took(ui: Shown, page: Browser) -> None:
    page.open(f"{PAGE}?view=overview")
    page.see(
        "Departures from New York in 2013.",
        f"sqlserver://dbo.{NAME}",
        "data-platform",
        "DateTime64(6, 'UTC')",
        "from flight_number",
        "Fails if more than 25 hours since last materialization",
        "Passing",
    )
    page.has(f"a[href='vscode://file/{ui.folder}/{NAME}.yaml:6']")
    page.go(f"{PAGE}?view=partitions&partition={THIRD}")
    shown = page.see(
        *(THIRD, "Materialized (7)", "wire_format"),
        *("moving_seconds", "seconds_export", "bottleneck"),
    )
    assert "Failed (0)" in shown
    assert "Missing (0)" in shown


def test_each_column_tells_where_it_comes_from(ui: Shown) -> None:
    (event,) = ui.dagster.graphql(
        "query ($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) { ... on AssetNode {"
        " assetMaterializations(limit: 1) { metadataEntries {"
        "  ... on TableColumnLineageMetadataEntry { lineage {"
        "   columnName columnDeps { assetKey { path } columnName } } } } } } } }",
        asset={"path": CLICKHOUSE.path},
    )["assetNodeOrError"]["assetMaterializations"]
    (lineage,) = (entry["lineage"] for entry in event["metadataEntries"] if "lineage" in entry)
    found = {one["columnName"]: one["columnDeps"] for one in lineage}
    assert found["tailnum"] == [{"assetKey": {"path": SQLSERVER.path}, "columnName": "tailnum"}]
    assert len(found) == 9


def test_numbers_of_ranges_are_plotted(page: Browser, pictures: Path) -> None:
    page.go(f"{PAGE}?view=overview")
    page.see("Metadata")
    page.do(lambda: page.press("Plots"), until_seen=lambda: page.there("canvas"))
    page.see("moving_seconds", "seconds_export", "rows")
    assert page.has("canvas").size["height"] > 50
    page.script("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    page.picture(pictures / "plots.png")


def test_a_failed_check_shows_the_rows_that_differ(
    ui: Shown, page: Browser, pictures: Path
) -> None:
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
    page.go(f"/assets/clickhouse/warehouse/{NAME}?view=checks")
    page.see("checksum", "Failed", CONCLUSION)
    hide = "Hide navigation"
    page.do(lambda: page.click_text(hide), until_seen=lambda: not page.shows(hide))
    page.do(lambda: page.click_text("Partitions"), until_seen=lambda: page.shows("Failed (1)"))
    page.see("Failed (1)", "Passed (6)")
    row = f"[title='{THIRD}']"
    page.do(lambda: page.click(row), until_seen=lambda: page.shows("differing_rows"))
    shown = page.see(CONCLUSION, "differing_rows", "missing in target", "10103")
    tail = ui.session.servers.endpoints["postgres"].query(
        f"SELECT tailnum FROM public.{NAME} WHERE id = 10100"
    )[0][0]
    assert f"'{tail}'" in shown
    assert f"'{tail} '" in shown, "the blank at the end is seen"
    assert "NULL" in shown
    page.picture(pictures / "checks.png")
    assert (pictures / "checks.png").stat().st_size < MOST_BYTES
    page.open(f"{PAGE}?view=checks")
    compared = ui.outcome(page, lambda: page.press("Execute all"))
    assert compared is dg.DagsterRunStatus.FAILURE, "as the command ends with 1"
    moved = ui.outcome(page, lambda: materialize(page, NAME, THIRD))
    assert moved is dg.DagsterRunStatus.SUCCESS
    assert ui.target("count()", 10103) == 1
    assert runner.check(ui.session, NAME).good, "the damaged range has moved again"


def test_the_copy_of_another_tool_is_compared_by_its_checks(
    ui: Shown, page: Browser, pictures: Path
) -> None:
    """A transfer with `write: none`: of its target, which was damaged, only checks can be run."""
    clickhouse = ui.session.servers.endpoints["clickhouse"]
    rows = ui.session.servers.endpoints["postgres"].query(f"SELECT * FROM public.{WATCHED}")
    values = ", ".join(
        f"({id}, '{tail}{' ' * (id == 600)}', {flights + (id in (600, 601))})"
        for id, tail, flights in rows
        if id != 602
    )
    for statement in (COPY, f"INSERT INTO warehouse.{WATCHED} VALUES {values}"):
        clickhouse.execute(statement)
    before = clickhouse.query(f"SELECT count(), sum(flights) FROM warehouse.{WATCHED}")
    checks = f"/assets/clickhouse/warehouse/{WATCHED}?view=checks"
    page.open(checks)
    page.see("checksum", "row_count")
    assert not page.can_press("Materialize"), "there is nothing to materialize"
    found = ui.outcome(page, lambda: page.press("Execute all"))
    assert found is dg.DagsterRunStatus.FAILURE, "as the command ends with 1"
    page.open(f"{checks}&checkDetail=checksum")
    # until then, the only tab of this name is the asset's
    page.see("Execution history", "Failed")
    hide = "Hide navigation"
    if page.shows(hide):
        page.do(lambda: page.click_text(hide), until_seen=lambda: not page.shows(hide))
    page.do(lambda: page.click_text("Partitions"), until_seen=lambda: page.shows("Failed (1)"))
    page.see("Failed (1)", "Passed (4)")
    row = "[title='0000000501..0000000751']"
    page.do(lambda: page.click(row), until_seen=lambda: page.shows("differing_rows"))
    shown = page.see("1 row missing in target, 2 rows differ", "missing in target", "602")
    tail, flights = rows[599][1:]
    for value in (f"'{tail}'", f"'{tail} '", str(flights), str(flights + 1)):
        assert value in shown, value
    page.picture(pictures / "watched.png")
    assert (pictures / "watched.png").stat().st_size < MOST_BYTES
    after = clickhouse.query(f"SELECT count(), sum(flights) FROM warehouse.{WATCHED}")
    assert after == before, "nothing was written"


def test_a_failed_range_is_found_understood_and_repaired_by_a_second_person(
    ui: Shown, page: Browser, pictures: Path
) -> None:
    ui.source(f"UPDATE {NAME} SET time_hour = '0044-03-15 12:00+00 BC' WHERE id = 5556")
    failed = ui.ended(ui.launched(page, lambda: materialize(page, NAME, SECOND)))
    assert failed.status is dg.DagsterRunStatus.FAILURE
    # found: all that the second person knows is the address of the user interface
    page.open(f"/locations/tableferry/asset-groups/{NAME}")
    shown = page.see("1 failed", "4 / 6 Passed")
    assert shown.count("4 / 6 Passed") == 2, "what the tables' own checks found still holds"
    page.go(f"{PAGE}?view=checks&checkDetail=checksum")
    page.see("not compared: 1 of 1 range", "'time_hour'", "5556")
    page.go(f"{PAGE}?view=partitions")
    page.see("Failed (1)", "Materialized (6)")
    its_run = f"a[href*='{failed.run_id}']"
    row = f"[title='{SECOND}']"
    page.do(lambda: page.click(row), until_seen=lambda: page.there(its_run))
    page.picture(pictures / "failed.png")
    # understood
    page.do(lambda: page.click(its_run), until_seen=lambda: failed.run_id in page.address())
    page.see(f"{SECOND}", "'time_hour'", "5556", "0044-03-15")
    # repaired, once the row is: only what failed runs
    ui.source(f"UPDATE {NAME} SET time_hour = '2013-01-07 12:00+00' WHERE id = 5556")
    before = ui.states(CLICKHOUSE)
    run = ui.ended(ui.launched(page, lambda: materialize(page, NAME, all_in="Failed")))
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert run.tags["dagster/partition"] == SECOND
    assert ui.states(CLICKHOUSE) == {**before, SECOND: "committed"}
    page.open(f"{PAGE}?view=partitions")
    page.see("Failed (0)", "Materialized (7)")
    assert str(ui.target("time_hour", 5556)).startswith("2013-01-07 12:00:00")


def test_the_reaper_ends_a_killed_run_which_is_executed_again(ui: Shown, page: Browser) -> None:
    ui.source(f"UPDATE {NAME} SET tailnum = 'KILLED' WHERE id = 15555")
    with ui.locked():
        killed = ui.launched(page, lambda: materialize(page, NAME, FOURTH))
        process = until("the run's process", lambda: ui.process(killed))
        # a code server tells of its runs that die, so that it has to die, too: an old one, which
        # has no more to do than to wait for this run
        before = _loaded(ui)
        page.open(f"/locations/tableferry/asset-groups/{NAME}")
        page.do(
            lambda: page.press("Reload definitions"),
            until_seen=lambda: _loaded(ui) not in (None, before),
            seconds=LAUNCH_SECONDS,
        )
        server = next(one for one in process.parents() if "grpc" in one.cmdline())
        server.suspend()
        for one in (*server.children(recursive=True), server):
            one.kill()
    assert ui.ended(killed).status is dg.DagsterRunStatus.FAILURE
    page.open(f"/runs/{killed}")
    page.see("The process of this run", "is gone")
    again = ui.outcome(page, lambda: page.press("Re-execute"))
    assert again is dg.DagsterRunStatus.SUCCESS
    assert ui.target("tailnum", 15555) == "KILLED"


def test_the_schedule_has_fired_and_the_expectations_are_seen(ui: Shown, page: Browser) -> None:
    def fired() -> list[dg.DagsterRun]:
        name = {"dagster/schedule_name": f"{OTHER}_schedule"}
        return [*ui.session.instance.get_runs(dg.RunsFilter(tags=name))]

    run = ui.ended(until("a run of the schedule", fired)[-1].run_id)
    assert run.status is dg.DagsterRunStatus.SUCCESS
    page.open(SCHEDULE)
    page.do(lambda: page.click(SWITCH), until_seen=lambda: page.there(OFF))
    page.open(f"/assets/clickhouse/warehouse/{OTHER}?view=checks&checkDetail=expectations")
    page.see("each carrier flies", "expect_column_values_to_not_be_null")


def _loaded(ui: Shown) -> object:
    """When the definitions were loaded; None while they are."""
    ((entry,),) = ui.dagster.graphql(
        "{ locationStatusesOrError { ... on WorkspaceLocationStatusEntries {"
        " entries { loadStatus updateTimestamp } } } }"
    )["locationStatusesOrError"].values()
    return entry["updateTimestamp"] if entry["loadStatus"] == "LOADED" else None


def test_ctrl_c_ends_all(ui: Shown) -> None:
    # where a run is interrupted, Dagster's watchers of its process print a traceback of their own
    until("the end of the schedule's runs", ui.idle)
    before = ui.dagster.processes()
    assert len(before) > 3, "make, ferry dev, dagster dev, webserver, daemon, code server"
    known = len(ui.dagster.log.read_text())
    ui.dagster.interrupt()
    until("the end of all processes", lambda: not any(one.is_running() for one in before), 60)
    log = ui.dagster.log.read_text()[known:]
    assert "Warning" not in log, log
    assert "Traceback" not in log, log
