"""What the commands, their exit codes and the reports say of the same state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.integration.conftest import Ferry
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 40) i",
)


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


def test_what_another_declaration_has_proven_is_not_proven_by_this_one(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """Neither by the log, nor by the run, whatever tells it that a source has changed."""
    hops = [f"'postgres://{copies}.{{t}}'"]
    other = (
        "CREATE TABLE {t}_b (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_b SELECT i, 'other' FROM generate_series(1, 40) i",
    )
    one = ferry(f"[{hops[0]}]", *SOURCE, *other, fingerprint="none")
    assert one.run().good
    assert_judged(one, proven=True)
    declared: dict[str, dict[str, str]] = {
        f"source was postgres://public.{one.table}": {
            "source": f"postgres://public.{one.table}_b",
            "fingerprint": "none",
        },
        "changed since: where": {"where": "id < 30"},
        "changed since: where, columns": {
            "columns": "{note: {expression: upper(note), type: text}}"
        },
        "changed since: columns, write": {"write": "upsert"},
    }
    for says, settings in declared.items():
        one.declare(f"[{hops[0]}]", **settings)
        assert_judged(one, proven=False, failed=True, says=says)
        assert document("report", "--all", "--format", "json")["totals"]["proven_otherwise"] == 1
        assert command("run", one.table).exit_code == 0
        assert_judged(one, proven=True)
        if "source" in settings:
            moved = one.rows(f"SELECT DISTINCT note FROM {copies}.{{t}}")
            assert moved == [("other",)], "the fingerprint has told nothing of the other source"


def test_what_is_proven_otherwise_is_told_beside_ranges_that_are_not_moved(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, *SOURCE, ranges="{rows: 25}")
    assert one.run().good
    one.source("INSERT INTO {t} SELECT i, 'n' FROM generate_series(41, 200) i")
    assert command("run", one.table, "--range", "1").exit_code == 0
    one.declare(hops, ranges="{rows: 25}", where="id > 3")
    assert_judged(one, proven=False, failed=True, says="changed since: where")


def test_settings_that_change_no_row_leave_the_proof(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE)
    assert one.run().good
    one.declare(
        f"['postgres://{copies}.{{t}}']",
        description="other",
        parallel="{export: 2}",
        schedule="0 2 * * *",
        delta="never",
        columns="{note: {was: remark}}",
    )
    assert_judged(one, proven=True)


def test_a_declaration_that_changes_no_row_is_proven_by_the_next_run(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """Of which the fingerprint tells nothing: the run compares the ranges, and moves none."""
    hops = f"['postgres://{copies}.{{t}}']"
    same = "CREATE TABLE {t}_b AS TABLE {t}", "ALTER TABLE {t}_b ADD PRIMARY KEY (id)"
    one = ferry(hops, *SOURCE, *same, fingerprint="content")
    assert one.run().good
    settings = {"source": f"postgres://public.{one.table}_b"}
    for says, setting in (
        ("source was", {}),
        ("changed since: on_reject", {"on_reject": "quarantine"}),
        ("changed since: columns", {"columns": "{note: {type: text}}"}),
        ("changed since: row_security", {"row_security": "apply"}),
    ):
        settings |= setting
        one.declare(hops, fingerprint="content", **settings)
        assert_judged(one, proven=False, failed=True, says=says)
        ran = command("run", one.table)
        assert ran.exit_code == 0, ran.output
        assert_judged(one, proven=True)


def expecting(most: int, **more: str) -> dict[str, str]:
    query = f"SELECT id FROM {{table}} WHERE {{range}} AND id > {most}"
    return {"expectations": f"[{{type: sql, kwargs: {{query: '{query}'}}}}]", **more}


def test_an_expectation_that_has_changed_is_checked_again(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, *SOURCE, **expecting(100))
    assert one.run().good
    assert_judged(one, proven=True)
    one.declare(hops, **expecting(50))
    says = "expectations was declared otherwise when it was checked"
    assert_judged(one, proven=False, failed=True, says=says)
    assert "unchecked" in command("plan", one.table).output
    assert command("run", one.table).exit_code == 0, "the rows meet it"
    assert_judged(one, proven=True)
    assert "unchecked" not in command("plan", one.table).output
    one.declare(hops, **expecting(30))
    assert command("check", one.table).exit_code == 1
    assert command("run", one.table).exit_code == 1
    assert_judged(one, proven=False, failed=True, says="expectations FAILED")


def test_a_suite_file_that_has_changed_is_checked_again(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    pytest.importorskip("great_expectations")

    def suite(most: int) -> None:
        kind = "expect_column_values_to_be_between"
        kwargs = {"column": "id", "min_value": 0, "max_value": most}
        text = json.dumps({"name": "s", "expectations": [{"type": kind, "kwargs": kwargs}]})
        (one.folder / "s.json").write_text(text, encoding="utf-8")

    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, *SOURCE)
    suite(100)
    one.declare(hops, expectations="{suite: s.json}")
    assert one.run().good
    suite(30)
    one.declare(hops, expectations="{suite: s.json}")
    assert_judged(one, proven=False, failed=True, says="expectations was declared otherwise")
    assert command("run", one.table).exit_code == 1


def test_figures_that_no_verdict_has_are_compared_by_the_next_run(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    more = "ALTER TABLE {t} ADD n int NOT NULL DEFAULT 3"
    one = ferry(hops, *SOURCE, more, figures="[id]")
    assert one.run().good
    one.declare(hops, figures="[id, n]")
    assert_judged(one, proven=False, failed=True, says="checksum was declared otherwise")
    assert one.run().good
    assert_judged(one, proven=True)


def test_a_hop_whose_source_has_other_rows_is_behind(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}', 'postgres://{copies}.{{t}}_last']", *SOURCE)
    assert one.run().good
    assert_judged(one, proven=True)
    one.source("UPDATE {t} SET note = 'new' WHERE id = 7")
    assert command("run", one.table, "--hop", "1").exit_code == 0
    assert_judged(one, proven=False, failed=True, says="has had other rows committed since")
    assert command("run", one.table).exit_code == 0
    assert_judged(one, proven=True)


def test_more_rejected_rows_than_are_allowed_now_are_told(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """The run that tries to move them again fails by name, as it does the first time."""
    hops, big = f"['postgres://{copies}.{{t}}']", "ALTER TABLE {t} ADD n int NOT NULL DEFAULT 3"
    settings = {"columns": "{n: {type: smallint}}", "on_reject": "quarantine"}
    one = ferry(hops, *SOURCE, big, "UPDATE {t} SET n = 99999 WHERE id < 4", **settings)
    assert one.run().good
    one.declare(hops, max_rejected="50%", **settings)
    assert_judged(one, proven=True)
    one.declare(hops, max_rejected="5%", **settings)
    assert_judged(one, proven=False, failed=True, says="3 rows rejected, and max_rejected (5%)")
    ran = command("run", one.table)
    assert ran.exit_code == 1 and "max_rejected (5%) allows 2" in ran.stderr


def test_a_run_that_never_began_is_told(ferry: Callable[..., Ferry], copies: str) -> None:
    """Alone and with others; a mistake in the command is no failure of the transfer."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE)
    assert one.run().good
    assert command("run", one.table, "--range", "nonsense").exit_code == 2
    assert_judged(one, proven=True)
    for selected in ((one.table,), ("--all",)):
        one.source("ALTER TABLE {t} RENAME TO {t}_away")
        before = {run.run_id for run in one.session.instance.get_runs()}
        assert command("run", *selected).exit_code != 0
        (refused,) = [run for run in one.session.instance.get_runs() if run.run_id not in before]
        assert refused.status is dg.DagsterRunStatus.FAILURE
        one.source("ALTER TABLE {t}_away RENAME TO {t}")
        assert_judged(one, proven=False, failed=True, says="")
        assert "its last run failed or was refused" in command("status", one.table).stderr
        (problem,) = document("report", one.table, "--format", "json")["problems"]
        assert f"postgres://public.{one.table} does not exist" in problem
        assert command("run", one.table).exit_code == 0
        assert_judged(one, proven=True)


def test_a_first_run_that_is_refused_is_told_alike(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, "ALTER TABLE {t} RENAME TO {t}_away")
    assert command("status", one.table).exit_code == 0
    assert command("run", one.table).exit_code
    assert_judged(one, proven=False, failed=True, says="")
    assert "its last run failed or was refused" in command("status", one.table).stderr


def test_a_run_that_may_not_cut_new_ranges_is_recorded(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *SOURCE, ranges="{rows: 25}")
    assert one.run().good
    known = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    one.source(
        "ALTER TABLE {t} ADD extra int",
        "INSERT INTO {t} SELECT i, 'n' FROM generate_series(41, 200) i",
    )
    ran = command("run", one.table)
    assert ran.exit_code == 1 and "extra" in ran.stderr, ran.output
    assert one.session.instance.get_dynamic_partitions(f"{one.table}_ranges") == known
    assert_judged(one, proven=False, failed=True, says="")


def test_a_table_that_has_lost_many_rows_is_told_before_it_is_published(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    more = "INSERT INTO {t} SELECT i, 'n' FROM generate_series(41, 2000) i"
    one = ferry(hops, *SOURCE, more, ranges="{count: 2}", on_shrink="fail")
    assert one.run().good
    one.source("TRUNCATE {t}", "INSERT INTO {t} SELECT i, 'new' FROM generate_series(1, 900) i")
    says = f"postgres://public.{one.table} has 900 rows where 2,000 were committed: more than 50%"
    planned = command("plan", one.table)
    assert planned.exit_code == 1 and says in planned.output
    for options in ((), ("--dry-run",)):
        ran = command("run", one.table, *options)
        assert ran.exit_code == 1 and says in ran.stderr
    forced = command("run", one.table, "--force")
    assert forced.exit_code == 1 and says in forced.stderr
    count = f"SELECT count(*) FROM {copies}.{{t}}"
    assert one.rows(count) == [(2000,)], "nothing of it is published"
    one.declare(hops, ranges="{count: 2}", on_shrink="fail", max_shrink="60%")
    assert says not in command("plan", one.table).output
    one.declare(hops, ranges="{count: 2}")
    assert says in command("plan", one.table).output
    ran = command("run", one.table)
    assert ran.exit_code == 0 and says in ran.stderr
    assert one.rows(count) == [(900,)]
    one.source("DELETE FROM {t}")
    assert "0 rows where 900" not in command("run", one.table).output, "so few may go"


def test_a_table_that_has_lost_one_range_or_is_filtered_has_not_shrunk(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """A run reads the ranges that have changed, and says nothing of the table by them alone."""
    hops = f"['postgres://{copies}.{{t}}']"
    more = "INSERT INTO {t} SELECT i, 'n' FROM generate_series(41, 6000) i"
    settings = {"ranges": "{bounds: [1501, 3001, 4501]}", "on_shrink": "fail"}
    one = ferry(hops, *SOURCE, more, **settings)
    assert one.run().good
    one.source("DELETE FROM {t} WHERE id < 1501")
    assert command("plan", one.table).exit_code == 0
    ran = command("run", one.table)
    assert ran.exit_code == 0, ran.output
    one.source("DELETE FROM {t} WHERE id < 3001")
    ran = command("run", one.table, "--range", "1501")
    assert ran.exit_code == 0, ran.output
    one.declare(hops, where="id > 5800", **settings)
    for name in ("plan", "run"):
        told = command(name, one.table)
        assert told.exit_code == 0 and "are gone" not in told.output + told.stderr, told.output
    assert_judged(one, proven=True)
    one.declare(hops, **settings)
    assert one.run().good
    one.source("DELETE FROM {t} WHERE id < 5900")
    lost = "has 101 rows where 3,000 were committed"
    ran = command("run", one.table, "--range", "4501")
    assert ran.exit_code == 1 and lost in ran.stderr, "a run of one range tells it of all"
