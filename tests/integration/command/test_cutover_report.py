"""Several transfers at once: `status`, `plan`, `check` and `report`, from one look at the log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import queries
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.runs import failed_transfers
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.event_log import home_path
from tableferry.pipelines.reporting.collect import report
from tests.integration.conftest import Ferry
from tests.integration.support.command import command

Make = Callable[..., Ferry]
SCHEMA = Path(__file__).parents[3] / "docs" / "fleet.schema.json"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 300) g",
)


def columns(result: Result) -> dict[str, list[str]]:
    """The cells of each transfer's line, by its name."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines()]
    return {line[0]: line[1:] for line in lines[1:] if len(line) > 2}


def statements(transfers: Sequence[Transfer]) -> int:
    """How many statements the history of transfers takes."""
    sent: list[str] = []
    with queries.opened(home_path()) as log:
        log.set_trace_callback(sent.append)
        read_status(log, transfers)
        failed_transfers(log, transfers)
    return len(sent)


def proofs(one: Ferry) -> set[tuple[str | None, str, float]]:
    """When each range was compared by `checksum`."""
    transfer = one.session.transfer(one.table)
    statuses = one.session.ask_log(lambda log: read_status(log, [transfer]))
    return {
        (name, check.name, check.at)
        for name, each in statuses[transfer.hops[0].to].ranges.items()
        for check in each.checks
        if check.name == "checksum"
    }


@pytest.fixture
def folder(ferry: Make) -> Ferry:
    """Transfers of one table: two that move, one that is damaged later, one whose column is too
    narrow, one that is never moved, and one whose table is not there."""
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, tags="{team: a}", ranges="{rows: 100}")
    for name, source, more in (
        ("chain", one.table, "tags: {team: a}"),
        ("damaged", one.table, "tags: {team: b}"),
        ("failing", one.table, "columns: {id: {type: Int8}}"),
        ("refused", "not_there", ""),
        ("waiting", one.table, ""),
    ):
        middle = f"'sqlserver://dbo.{one.table}_{name}', " if name == "chain" else ""
        (one.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{source}\nkey: id\n"
            f"hops: [{middle}'clickhouse://warehouse.{one.table}_{name}']\n"
            f"ranges: {{rows: 100}}\n{more}\n"
        )
    return one


@pytest.mark.slow
def test_a_fleet_with_a_failed_a_damaged_and_an_unmoved_table(
    folder: Ferry, tmp_path: Path
) -> None:
    assert command("status", "--all").exit_code == 1, "nothing has moved"
    run = command("run", folder.table, "chain", "damaged", "failing", "refused")
    assert run.exit_code == 1
    folder.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{folder.table}_damaged UPDATE name = 'x' WHERE id <= 30 "
        "SETTINGS mutations_sync = 2"
    )

    plans = command("plan", "--all")
    assert plans.exit_code == 1, "one cannot be planned"
    assert columns(plans)["waiting"][:5] == ["ok", "4", "0", "0", "300"]
    assert columns(plans)[folder.table][:5] == ["ok", "0", "0", "4", "0"]
    assert "ferry: refused: postgres://public.not_there does not exist" in plans.stderr

    checks = command("check", "chain", "damaged", "--level", "full_hash")
    assert checks.exit_code == 1
    assert columns(checks)["chain"][0] == "ok"
    assert columns(checks)["damaged"][0] == "FAILED"
    assert "ferry: damaged: clickhouse://" in checks.stderr
    assert "full_hash FAILED" in checks.stderr

    states = command("status")
    assert states.exit_code == 1
    by_name = columns(states)
    assert list(by_name) == [*("damaged", "failing", "refused", "waiting", "chain", folder.table)]
    assert [cells[0] for cells in by_name.values()] == [
        *("failed", "failed", "failed", "not moved", "proven", "proven")
    ]
    assert by_name["chain"][1:4] == ["4/4", "300", "full_hash"]
    assert by_name[folder.table][1:4] == ["4/4", "300", "checksum"]
    assert "6 transfers: 3 failed, 1 not moved, 2 proven; " in states.stdout
    assert re.search(
        "ferry: failing: .*: failed: .* column 'id', key 128: value 128", states.stderr
    )
    assert by_name["damaged"][3] == "-", "a range whose check failed is not proven at all"
    assert f"ferry: waiting: clickhouse://warehouse.{folder.table}_waiting" in states.stderr

    page, document = tmp_path / "fleet.html", tmp_path / "fleet.json"
    url = ("--dagster-url", "https://dagster.example.com")
    html = command("report", "--all", "--format", "html", "--output", str(page), *url)
    assert html.exit_code == 1 and html.stderr == states.stderr
    text = page.read_text()
    assert "its last run failed or was refused; ferry report failing says why" in text
    assert f"https://dagster.example.com/assets/clickhouse/warehouse/{folder.table}_chain" in text
    assert text.index("damaged") < text.index("waiting") < text.index("chain</code>")
    command("report", "--all", "--format", "json", "--output", str(document))
    found = json.loads(document.read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    chain = next(item for item in found["transfers"] if item["transfer"] == "chain")
    first, second = chain["tables"]
    assert (first["source"], second["source"]) == (
        f"postgres://public.{folder.table}",
        f"sqlserver://dbo.{folder.table}_chain",
    )
    assert len(first["positions"]) == 1, "one run read all ranges under one snapshot"
    assert first["proven_from"] >= first["read_at"], "the later check is the proof"

    session = open_session()
    for name in (folder.table, "chain", "damaged", "failing", "waiting"):
        outcome = next(item for item in found["transfers"] if item["transfer"] == name)["outcome"]
        assert (outcome == "proven") == report(session, name).passed, name
    few = [session.transfer("chain"), session.transfer("failing")]
    assert statements(few) == statements([*session.transfers.values()])

    proven = command("status", "--tag", "team=a", "--json")
    assert proven.exit_code == 0, proven.output
    assert json.loads(proven.stdout)["ok"] is True
    signed = command("report", "--tag", "team=a")
    assert signed.exit_code == 0
    assert "# Cutover report: passed" in signed.stdout


@pytest.mark.slow
def test_a_source_that_changed_and_an_invalid_file_are_not_proven(folder: Ferry) -> None:
    assert command("run", folder.table).exit_code == 0
    moved = proofs(folder)
    assert command("run", folder.table).exit_code == 0
    assert proofs(folder) == moved, "a verdict that still holds keeps its moment"
    assert command("status", folder.table, "waiting").exit_code == 1
    folder.source("UPDATE {t} SET name = 'new' WHERE id = 1")
    folder.source("INSERT INTO {t} VALUES (301, 'more')")
    assert command("check", "--tag", "team=a", "--json").exit_code == 1, "chain was never moved"
    assert command("check", folder.table).exit_code == 0, "a newer source is a warning"
    for name in ("chain", "damaged", "failing", "refused"):
        (folder.folder / f"{name}.yaml").unlink()
    (folder.folder / "waiting.yaml").write_text("transfer: waiting\n")
    result = command("status", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    (entry,) = document["transfers"]
    assert (entry["outcome"], entry["behind"]) == ("not proven", "2 ranges, 1 row")
    assert document["totals"]["invalid_files"] == 1
    assert "not proven, because they are invalid: waiting.yaml" in result.stderr
    assert "the source has changed since" in result.stderr


def test_an_unknown_name_lists_the_nearest(folder: Ferry) -> None:
    for number in range(5):
        (folder.folder / f"t{number}.yaml").write_text(
            f"transfer: spare_{number}\nsource: postgres://public.x\nkey: id\n"
            f"hops: ['clickhouse://warehouse.spare_{number}']\n"
        )
    for name in ("status", "plan", "check", "report"):
        result = command(name, "chian")
        assert (result.exit_code, "did you mean chain?" in result.stderr) == (2, True), name
    for name in ("plan", "check", "report"):
        assert command(name).exit_code == 2, "which transfers is not said"
    for arguments in (["check", "chain", "damaged", "--range", "1"], ["status", "--all", "--wide"]):
        result = command(*arguments)
        assert (result.exit_code, "one transfer at a time" in result.stderr) == (2, True)
