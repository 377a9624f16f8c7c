"""What a run has to do is found in the files of a home as in Dagster's storage."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.assets.log import queries
from tableferry.assets.log.queries import Log
from tableferry.assets.log.runs import is_unanswered
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import finding, runner
from tableferry.pipelines.command.session import Session
from tests.integration.conftest import Ferry
from tests.integration.support import homes

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("digests_by_servers"),
    homes.of_files,
]

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL, at timestamp NOT NULL)",
    "INSERT INTO {t} SELECT g, 'row ' || g, timestamp '2024-01-01' + g * interval '1 hour' "
    "FROM generate_series(1, 200) g",
)
DIRECT = "['clickhouse://warehouse.{t}']"
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
FORBIDDEN = """
import sys
sys.modules["dagster"] = None
from tableferry.assets.planning.intent import Intent
from tableferry.pipelines.cli import main
main()
"""
"""Any import of Dagster fails."""


def assert_found_alike(one: Ferry, *reasons: str, **options: Any) -> None:
    """Either connection finds the same to do, and these reasons among others."""
    session = one.session
    transfer = session.transfer(one.table)
    selection = finding.Selection(**options)

    def find(log: Log) -> finding.FoundWork:
        return finding.find_work(transfer, session.servers, None, selection, log)

    with files_of(session) as files:
        found = find(files)
    assert found == find(session.instance)
    decided = found.plan.decided.values()
    assert {*reasons} <= {str(one.reason) for of_hop in decided for one in of_hop.values()}


def files_of(session: Session) -> closing[sqlite3.Connection]:
    assert session.home is not None
    files = queries.quiet(session.home)
    assert files is not None
    return files


def asking_dagster(session: Session) -> Session:
    """The same session, which may not look into the file."""
    return replace(session, home=None)


def clickhouse(one: Ferry, sql: str) -> None:
    one.session.servers.endpoints["clickhouse"].execute(sql.format(t=f"warehouse.{one.table}"))


def test_what_is_to_do_is_found_alike(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.session.instance.get_dynamic_partitions(f"{one.table}_ranges") == []
    assert_found_alike(one)
    assert one.run(ranges=["7"]).good
    assert_found_alike(one, "unchanged")
    assert one.run().good
    assert_found_alike(one, "unchanged")
    assert_found_alike(one, force=True)
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    assert_found_alike(one, "unchanged", "source_changed", hop=1)
    clickhouse(one, "DELETE FROM {t} WHERE id = 107")
    assert_found_alike(one, "row_count_differs")
    assert not runner.check(one.session, one.table).good
    assert_found_alike(one, "last_check_failed")
    assert_found_alike(one, failed=True)
    assert one.run().good
    one.source("INSERT INTO {t} SELECT g, 'more', now() FROM generate_series(300, 500) g")
    assert_found_alike(one, "unchanged")
    assert one.run().good
    one.source("ALTER TABLE {t} ADD COLUMN note text")
    assert_found_alike(one, "schema_changed")
    one.declare(CHAIN, ranges="{rows: 50}", reconcile="full_hash", exclude="[note]")
    assert_found_alike(one, "unchecked")
    clickhouse(one, "DROP TABLE {t}")
    assert_found_alike(one, "target_missing")


def test_a_failed_range_is_found_alike(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}", columns="{name: {type: Int32}}")
    one.source("UPDATE {t} SET name = id::text WHERE id > 50")
    one.declare(DIRECT, ranges="{rows: 50}")
    assert one.run().good
    one.source("UPDATE {t} SET at = 'infinity' WHERE id = 7")
    view = one.run()
    assert [one.state for one in view.ranges].count("failed") == 1
    assert_found_alike(one, "unchanged", "source_changed")
    assert_found_alike(one, failed=True)
    assert one.run(failed=True).errors == view.errors
    transfer = one.session.transfer(one.table)
    with files_of(one.session) as files:
        assert is_unanswered(files, transfer, [transfer.hops[0].to])
    assert is_unanswered(one.session.instance, transfer, [transfer.hops[0].to])


def test_a_command_with_nothing_to_do_imports_no_dagster(ferry: Make) -> None:
    """And prints what it prints with it."""
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    before = one.session.instance.event_log_storage.get_maximum_record_id()

    def told(*options: str) -> subprocess.CompletedProcess[str]:
        return command("run", one.table, *options)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", FORBIDDEN, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    found = told("--json")
    assert (found.returncode, found.stderr) == (0, "")
    asked = runner.run(asking_dagster(one.session), one.table)
    assert asked.good and not asked.run_ids
    assert json.loads(found.stdout) == json.loads(json.dumps(asked.json(), default=str))
    assert "skipped_unchanged" in told("--wide").stdout
    fleet = command("status")
    assert (fleet.returncode, fleet.stderr) == (0, "")
    assert "1 transfer: 1 proven" in fleet.stdout
    assert told("--range", "7").returncode == 0
    wrong = told("--range", "9999999..8")
    assert wrong.returncode == 2 and "has no range" in wrong.stderr
    assert one.session.instance.event_log_storage.get_maximum_record_id() == before
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    assert "dagster" in told().stderr, "there is something to do"


def test_many_transfers_with_nothing_to_do_import_no_dagster(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    text = (one.folder / "t.yaml").read_text().replace(f"transfer: {one.table}", "transfer: second")
    (one.folder / "u.yaml").write_text(text.replace("warehouse.", "warehouse.second_"))
    every = [sys.executable, "-c", FORBIDDEN, "run", "--all", "--jobs", "2"]
    try:
        assert CliRunner().invoke(main, ["run", "--all", "--jobs", "1"]).exit_code == 0
        done = subprocess.run(every, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "2 of 2 transfers succeeded; 0 rows moved" in done.stdout
    finally:
        one.session.servers.endpoints["clickhouse"].execute(
            f"DROP TABLE IF EXISTS warehouse.second_{one.table}"
        )


@pytest.mark.parametrize("changed", [True, False])
def test_what_only_dagster_can_refuse_is_refused_before_anything_is_recorded(
    ferry: Make, *, changed: bool
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    before = one.session.instance.event_log_storage.get_maximum_record_id()
    one.declare(DIRECT, ranges="{rows: 50}", owners="[nobody]")
    if changed:
        one.source("UPDATE {t} SET name = 'changed' WHERE id = 7")
    result = CliRunner().invoke(main, ["run", one.table])
    assert result.exit_code == 2
    assert (
        "t.yaml:" in result.stderr and "should be an e-mail address, or team:name" in result.stderr
    )
    assert one.session.instance.event_log_storage.get_maximum_record_id() == before
    one.declare(DIRECT, ranges="{rows: 50}", owners="['team:someone']")
    text = (one.folder / "t.yaml").read_text().replace("team:someone", "nobody")
    (one.folder / "u.yaml").write_text(text.replace(one.table, "another"))
    result = CliRunner().invoke(main, ["run", one.table, "another"])
    assert result.exit_code == 2 and "u.yaml:" in result.stderr
    assert one.session.instance.event_log_storage.get_maximum_record_id() == before


def test_an_event_log_elsewhere_is_asked_for_by_dagster(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    home = one.session.home
    assert home is not None
    config = home / "dagster.yaml"
    config.write_text(config.read_text() + "\nrun_storage: {module: m, class: c}\n")
    assert not one.session.quiet
    view = one.run()
    assert view.good and not view.run_ids
