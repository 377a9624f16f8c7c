"""What a command asks the servers: each question of the plan once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log import ledger
from tableferry.assets.running.progress import Progress
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Differences
from tableferry.checks.whole_table import BY_RANGE, COUNTED, TOTAL_ROWS
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tests.integration.conftest import Ferry

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("digests_by_servers")]

Make = Callable[..., Ferry]
Asked = Counter[tuple[str, str]]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL)",
    "INSERT INTO {t} SELECT g, 'row ' || g FROM generate_series(1, 200) g",
)
STILL = ("pg_rewrite", """HAS_PERMS_BY_NAME(N'"dbo"."__ferry""", "has_table_privilege")
DIRECT = "['clickhouse://warehouse.{t}']"
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"


@contextmanager
def asked() -> Iterator[Asked]:
    """Counts what the servers are asked meanwhile, by system and text."""
    found: Asked = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for system, kind, method in (
            ("postgres", PostgresServer, "query"),
            ("sqlserver", SqlServerConnection, "query"),
            ("clickhouse", ClickHouseServer, "query"),
        ):
            patch.setattr(kind, method, counting(found, system, getattr(kind, method)))
        yield found


def counting(found: Asked, system: str, query: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, sql: str, *arguments: Any, **options: Any) -> Any:
        # whether a kept connection, the table under a snapshot, or a right still stands
        if sql != "SELECT 1" and not any(word in sql for word in STILL):
            found[system, " ".join(f"{sql} {arguments or ''}".split())] += 1
        return query(self, sql, *arguments, **options)

    return counted


def repeated(found: Asked, *systems: str) -> dict[tuple[str, str], int]:
    """What was asked more than once."""
    return {
        question: times
        for question, times in found.items()
        if times > 1 and (not systems or question[0] in systems)
    }


def test_a_plan_asks_each_question_once(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    with asked() as found:
        assert {view.state for view in one.plan().ranges} == {"run"}
    assert found and not repeated(found)
    assert one.run().good
    with asked() as found:
        assert {view.state for view in one.plan().ranges} == {"skip"}
    assert found and not repeated(found)


def test_a_run_asks_its_source_each_question_once(ferry: Make) -> None:
    """What does not depend on the number of ranges is asked of targets once."""
    one = ferry(CHAIN, *TABLE, ranges="{rows: 20}")
    with asked() as found:
        assert one.run().good
    assert any("pg_catalog" in text and "attnum" in text for _, text in found), "its columns"
    assert any("percentile_disc" in text for _, text in found), "its statistics"
    assert sum("md5(" in text and one.table in text for _, text in found) == 1, "its fingerprints"
    assert not repeated(found, "postgres")
    of_ranges = [text for system, text in found.elements() if system == "clickhouse"]
    of_ranges = [text for text in of_ranges if "__ferry_" in text or "countIf" in text]
    ranges = len(one.plan().ranges) // 2
    assert len(of_ranges) <= 5 * ranges + 5, (
        "of a range: staged rows, the audit, lock and staged rows, published rows, the lock"
    )
    digests = {question: times for question, times in found.items() if "ferry__d" in question[1]}
    assert len({system for system, _ in digests}) == 3
    assert not repeated(Counter(digests))
    catalogs = ("INFORMATION_SCHEMA", "sys.", "system.tables", "system.columns")
    one.source("UPDATE {t} SET name = 'changed' WHERE id <= 90")
    with asked() as again:
        assert one.run().good
    for run in (found, again):
        catalog = {q: n for q, n in run.items() if any(c in q[1] for c in catalogs)}
        assert max(catalog.values()) <= 4, (
            "to plan, to make or verify it, to record ranges without rows, and to prove it"
        )
    hazards = {q: n for q, n in again.items() if "sys.triggers" in q[1] or "dependencies" in q[1]}
    assert sorted(hazards.values()) == [1, 1], (
        "what each target may do to rows, however many ranges"
    )
    assert not any("sys.triggers" in text or "dependencies" in text for _, text in found), "new"
    columns = [n for (_, text), n in again.items() if f"'{one.table}'" in text and "OLUMN" in text]
    assert columns and max(columns) == 2, "to plan, and what the check of the schema found after"


def recorded(one: Ferry) -> dg.AssetCheckEvaluation:
    """What the last run found of the number of all rows."""
    (hop,) = one.session.transfer(one.table).hops
    found = ledger.evaluations(one.session.instance, asset_key(hop.to), [TOTAL_ROWS])
    evaluation = found[None][TOTAL_ROWS].evaluation
    assert evaluation is not None
    return evaluation


@pytest.mark.parametrize("level", ["count", "checksum"])
@pytest.mark.parametrize("nullable", [False, True])
def test_a_run_of_all_ranges_counts_its_source_once(
    ferry: Make, level: str, *, nullable: bool
) -> None:
    """What its fingerprints have counted proves its ranges, and their sum the whole table."""
    method = {"count": "row_version", "checksum": "content"}[level]
    table = TABLE[0].replace("PRIMARY KEY", "" if nullable else "NOT NULL")
    rows = (TABLE[1], "INSERT INTO {t} VALUES (NULL, 'none')") if nullable else TABLE[1:]
    one = ferry(DIRECT, table, *rows, ranges="{rows: 50}", reconcile=level, fingerprint=method)
    with asked() as found:
        assert one.run().good
    counts = [text for system, text in found.elements() if system == "postgres"]
    counts = [text for text in counts if one.table in text and "count(*)" in text.lower()]
    assert [("percentile_disc" in text, "GROUP BY" in text) for text in counts] == [
        (True, False),
        (False, True),
    ], "the statistics, and the fingerprints of all ranges"
    assert recorded(one).metadata[COUNTED].value == BY_RANGE
    checked = runner.check(one.session, one.table).checks
    (total,) = (one.verdict for one in checked if one.verdict.check == TOTAL_ROWS)
    assert total.source == total.target == {"rows": 200 + nullable}
    one.source("DELETE FROM {t} WHERE id = 7")
    assert one.run().good
    assert COUNTED not in recorded(one).metadata, "that run has read one range alone"


def test_a_run_with_nothing_to_do_asks_each_question_once(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    with asked() as found:
        view = one.run()
    assert view.good and not view.run_ids
    assert found and not repeated(found)


def test_a_check_of_a_range_by_one_of_its_keys_asks_each_question_once(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    with asked() as found:
        checked = runner.check(one.session, one.table, ranges=["7"]).checks
    assert {check.range for check in checked} == {view.range for view in one.plan().ranges[:1]}
    assert found and not repeated(found, "postgres", "clickhouse")
    # what one hop has written and the next has read is measured for each
    assert all("ferry__g" in text for _, text in repeated(found, "sqlserver"))
    with asked() as found:
        checked = runner.check(one.session, one.table).checks
    assert {check.verdict.check for check in checked if check.range is None} > {"schema"}
    assert sum("INFORMATION_SCHEMA.COLUMNS" in text for _, text in found.elements()) == 1
    assert sum("default_kind FROM system.columns" in text for _, text in found.elements()) == 1


def test_the_runs_of_one_command_share_its_plan(ferry: Make) -> None:
    """Ranges that are not neighbours are moved by a Dagster run each."""
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    one.source("UPDATE {t} SET name = 'changed' WHERE id IN (7, 107)")
    planned: Asked = Counter()

    def listen(event: Progress) -> None:
        if event.phase == "planned":
            planned.update(found)

    with asked() as found:
        view = one.run(on_progress=listen)
    assert view.good and len(view.run_ids) == 2
    assert len(one.moved(view)) == 2
    questions = {question for question in planned if question[0] == "postgres"}
    assert sum("md5(" in text for _, text in questions) == 1
    assert {found[question] for question in questions} == {1}


def test_a_plan_that_another_run_has_outdated_is_made_anew(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    one.source("UPDATE {t} SET name = 'before' WHERE id = 7")
    second, moved = open_session(), list[bool]()

    def listen(event: Progress) -> None:
        if event.phase == "planned":
            one.source("UPDATE {t} SET name = 'after' WHERE id = 7")
            moved.append(runner.run(second, one.table).good)

    assert one.run(on_progress=listen).good
    assert moved == [True]
    rows = one.session.servers.endpoints["clickhouse"].query(
        f"SELECT name FROM warehouse.{one.table} WHERE id = 7"
    )
    assert rows == [("after",)], "an older state of the source would have come back"


def test_the_checks_that_a_range_fails_share_its_drill_down(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 50}")
    assert one.run().good
    one.session.servers.endpoints["clickhouse"].execute(
        f"DELETE FROM warehouse.{one.table} WHERE id IN (7, 107)"
    )
    drilled: list[str] = []
    search = Comparison.search

    def counted(comparison: Comparison, *sink: Any) -> Differences:
        drilled.extend(each.name for each in comparison.ranges)
        return search(comparison, *sink)

    monkeypatch.setattr(Comparison, "search", counted)
    found = runner.check(one.session, one.table)
    failed = [check for check in found.checks if check.range and check.failed]
    assert len(failed) == 4, "row count and checksum of two ranges"
    assert all(check.verdict.differences for check in failed)
    assert len(drilled) == 2 * len(set(drilled)) == 4, "and look again at what differs"
