"""What the commands, their exit codes and the reports say of the same state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 40) i",
)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def document(*arguments: str) -> Any:
    return json.loads(command(*arguments).stdout)


def assert_judged(one: Ferry, *, proven: bool, failed: bool = False, says: str = "") -> None:
    """All of them call the transfer proven, or none does, and each says why not."""
    alone, fleet = command("status", one.table), command("status", "--all")
    assert (alone.exit_code, fleet.exit_code) == (failed, not proven), alone.output
    assert document("status", one.table, "--json")["ok"] is not failed
    report = document("report", one.table, "--format", "json")
    cutover = document("report", "--all", "--format", "json")
    assert (report["passed"], cutover["passed"]) == (proven, proven), report["problems"]
    told = report["problems"]
    for text in (alone.stderr if failed else says, fleet.stderr, " ".join(told)):
        assert says in text


def test_a_source_that_goes_on_is_told_alike(ferry: Callable[..., Ferry], copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, ranges="{count: 2}")
    assert one.run().good
    assert_judged(one, proven=True)
    one.source("UPDATE {t} SET note = 'new' WHERE id = 7")
    checked = command("check", one.table)
    assert checked.exit_code == 0, "the target is as it was committed"
    assert "BEHIND" in checked.output and "FAILED" not in checked.output
    several = command("check", "--all")
    (line,) = [line for line in several.stdout.splitlines() if line.startswith(one.table)]
    names = several.stdout.splitlines()[0].split()
    assert int(line.split()[names.index("behind")]) > 0
    assert_judged(one, proven=False, says="the source has changed since")
    assert one.run().good
    assert_judged(one, proven=True)


def test_a_check_that_cannot_be_made_leaves_the_proof(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """Its run fails, and nothing was found out: a run with nothing to do says ok, and so do all."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE)
    assert one.run().good
    one.source(f"ALTER TABLE {copies}.{{t}} RENAME TO {one.table}_away")
    assert command("check", one.table).exit_code != 0
    one.source(f"ALTER TABLE {copies}.{one.table}_away RENAME TO {{t}}")
    assert command("run", one.table).exit_code == 0
    assert_judged(one, proven=True)


def test_a_refused_run_shows_no_other_runs_ranges(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, ranges="{count: 2}")
    assert one.run().good
    one.source(
        "UPDATE {t} SET note = 'new'",
        f"ALTER TABLE {copies}.{{t}} ADD COLUMN needed int NOT NULL DEFAULT 1",
        f"ALTER TABLE {copies}.{{t}} ALTER COLUMN needed DROP DEFAULT",
    )
    refused = command("run", one.table, "--quiet")
    assert refused.exit_code == 1
    assert "needed" in refused.stderr, refused.output
    assert "committed" not in refused.stdout and "passed" not in refused.stdout


def test_damage_that_only_a_stricter_check_sees_is_told_by_all(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, reconcile="count", fingerprint="none")
    assert one.run().good
    one.source(f"UPDATE {copies}.{{t}} SET note = 'damaged' WHERE id = 7")
    assert command("check", one.table, "--level", "checksum").exit_code == 1
    assert "checksum=FAILED" in command("status", one.table).stdout
    assert_judged(one, proven=False, failed=True, says="checksum FAILED")


def test_a_failure_that_is_no_more_than_a_warning_is_told_alike(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """By a run with nothing to do, too, and by `--failed`, which has nothing to move for it."""
    checks = "{checksum: {severity: warn, blocking: false}}"
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, checks=checks)
    assert one.run().good
    one.source(f"UPDATE {copies}.{{t}} SET note = 'damaged' WHERE id = 7")
    assert command("check", one.table).exit_code == 0
    assert_judged(one, proven=True)
    assert document("status", one.table, "--json")["ok"] is True
    for options in ((), ("--failed",)):
        ran = command("run", one.table, *options)
        assert ran.exit_code == 0, ran.output


def test_a_watched_table_of_which_nothing_is_equal_has_failed(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """No range of it was ever recorded as committed; what was compared counts all the same."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, write="none")
    one.source(
        f"CREATE SCHEMA {copies}",
        f"CREATE TABLE {copies}.{{t}} (id int PRIMARY KEY, note text)",
        f"INSERT INTO {copies}.{{t}} VALUES (0, 'other'), (7, 'other'), (1000, 'other')",
    )
    assert command("check", one.table).exit_code == 1
    assert_judged(one, proven=False, failed=True, says="checksum FAILED")
