"""PostgreSQL to ClickHouse as a whole: what moves, what is skipped, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tableferry.assets.log.ledger import evaluations
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.one.validation import validate
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry, by_range

pytestmark = pytest.mark.integration

DIRECT = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 1000) g",
)
SELECT = "SELECT id, name, amount FROM {t} ORDER BY id"
Make = Callable[..., Ferry]


def target(ferry: Ferry) -> list[tuple[object, ...]]:
    found = ferry.session.servers.endpoints["clickhouse"].query(
        f"SELECT id, name, amount FROM warehouse.{ferry.table} ORDER BY id"
    )
    return [tuple(row) for row in found]


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_a_table_arrives_and_is_then_skipped(ferry: Make, wire: str) -> None:
    hops = "[{{to: 'clickhouse://warehouse.{t}', wire: " + wire + "}}]"
    one = ferry(hops, *TABLE, ranges="{rows: 250}")
    first = one.run()
    assert first.good, first.errors
    assert target(one) == one.rows(SELECT)
    assert sum(view.rows or 0 for view in first.ranges) == 1000
    assert len(one.moved(first)) == 5, "four full ranges and the open one above"
    second = one.run()
    assert second.good
    assert one.moved(second) == []
    assert set(one.materializations("clickhouse", "warehouse").values()) == {1}


def test_exactly_the_changed_range_moves_again(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    one.source("UPDATE {t} SET name = '' WHERE id = 300")
    assert {view.range: view.reason for view in one.plan().ranges if view.state == "run"} == {
        "0000000251..0000000501": "source_changed"
    }
    view = one.run()
    assert one.moved(view) == ["0000000251..0000000501"]
    assert target(one) == one.rows(SELECT)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM {t} WHERE id = 7",
        "DELETE FROM {t} WHERE id BETWEEN 251 AND 500",
        "DELETE FROM {t}",
        "INSERT INTO {t} VALUES (-5, 'late', 1)",
        "INSERT INTO {t} SELECT g, NULL, 0 FROM generate_series(5000, 5999) g",
        "UPDATE {t} SET amount = amount + 0.01 WHERE id % 251 = 0",
    ],
)
def test_the_target_follows_every_change(ferry: Make, change: str) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    one.source(change)
    view = one.run()
    assert view.good, view.errors
    assert target(one) == one.rows(SELECT)


def test_growth_adds_ranges_and_moves_only_them(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    before = one.materializations("clickhouse", "warehouse")
    one.source("INSERT INTO {t} SELECT g, 'new', 0 FROM generate_series(1001, 1600) g")
    assert one.run().good
    after = one.materializations("clickhouse", "warehouse")
    assert target(one) == one.rows(SELECT)
    assert all(after[name] == number for name, number in before.items())
    assert len(after) > len(before)


def test_rows_without_a_key_are_a_range_of_their_own(ferry: Make) -> None:
    one = ferry(
        DIRECT,
        "CREATE TABLE {t} (id integer, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} VALUES (1, 'a', 1), (NULL, 'b', 2), (NULL, 'b', 2)",
    )
    view = one.run()
    assert view.good, view.errors
    assert by_range(view)["null"].rows == 2
    assert sorted(target(one), key=repr) == sorted(one.rows(SELECT), key=repr)


def test_another_dagster_home_repeats_the_move_without_duplicates(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """The event log is lost, and the ranges are cut otherwise: the rows are still there once."""
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    monkeypatch.setenv("DAGSTER_HOME", f"{tmp_path}/other")
    one.declare(DIRECT, ranges="{rows: 330}")
    view = one.run()
    assert view.good, view.errors
    assert target(one) == one.rows(SELECT)


def test_a_refused_value_stops_its_range_alone_and_is_named(ferry: Make) -> None:
    one = ferry(
        DIRECT,
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount date NOT NULL)",
        "INSERT INTO {t} SELECT g, 'x', '2024-01-01' FROM generate_series(1, 100) g",
        "UPDATE {t} SET amount = '0044-03-15 BC' WHERE id = 42",
        ranges="{rows: 25}",
    )
    view = one.run()
    assert not view.good
    failed = [row for row in view.ranges if row.state == "failed"]
    assert [row.range for row in failed] == ["0000000026..0000000051"]
    for part in (one.table, "'amount'", "42", "0000000026..0000000051"):
        assert part in str(failed[0].error)
    assert len(target(one)) == 75, "nothing of the refused range is visible"
    one.source("UPDATE {t} SET amount = '2000-01-01' WHERE id = 42")
    again = one.run(failed=True)
    assert again.good, again.errors
    assert one.moved(again) == ["0000000026..0000000051"]
    assert len(target(one)) == 100


def test_a_damaged_target_is_found_shown_and_mended(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' WHERE id = 77 "
        "SETTINGS mutations_sync = 2"
    )
    found = runner.check(one.session, one.table).checks
    bad = [check for check in found if not check.verdict.passed]
    assert [(check.range, check.verdict.check) for check in bad] == [("..0000000251", "checksum")]
    shown = bad[0].verdict.differences
    assert shown is not None and shown.rows == 1
    assert [(row.key, row.column, row.source, row.target) for row in shown.examples] == [
        ("77", "name", "name 77", "damaged")
    ]
    assert {view.range: view.reason for view in one.plan().ranges if view.state == "run"} == {
        "..0000000251": "last_check_failed"
    }
    assert one.run().good
    assert target(one) == one.rows(SELECT)
    assert all(check.verdict.passed for check in runner.check(one.session, one.table).checks)


def test_rows_that_differ_are_named_by_their_whole_primary_key(ferry: Make, tmp_path: Path) -> None:
    one = ferry(
        DIRECT,
        "CREATE TABLE {t} (line integer, id integer, source text, note text, "
        "PRIMARY KEY (id, line, source))",
        "INSERT INTO {t} SELECT g % 10, g / 10, 's ' || g, 'x' FROM generate_series(1, 100) g",
        ranges="{rows: 50}",
        columns="{line: {rename: position}}",
    )
    assert one.run().good
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE note = 'y' WHERE id = 3 AND position = 4 "
        "SETTINGS mutations_sync = 2"
    )
    name = one.plan().ranges[0].range
    runner.check(one.session, one.table)
    named = {"id": "3", "position": "4", "source": "s 34"}
    found = CliRunner().invoke(main, ["diff", one.table, "--range", name, "--json"])
    assert found.exit_code == 1
    (hop,) = json.loads(found.stdout)["hops"].values()
    assert [example["row"] for example in hop["examples"]] == [named]
    parquet = tmp_path / "all.parquet"
    arguments = ["diff", one.table, "--range", name, "--parquet", str(parquet)]
    text = CliRunner().invoke(main, arguments).output
    assert "primary key (id, position, source)" in text
    assert re.search(r"3 +4 +s 34 +different +note +x +y", text)
    (row,) = pq.read_table(parquet).column("row").to_pylist()
    assert dict(row) == named
    asset = dg.AssetKey(["clickhouse", "warehouse", one.table])
    stored = evaluations(one.session.instance, asset, ["checksum"])[name]["checksum"]
    assert stored.evaluation is not None
    shown: Any = stored.evaluation.metadata["differences"].value
    assert [record.data["key: position"] for record in shown.records] == ["4"]
    text = CliRunner().invoke(main, ["report", one.table, "--format", "md"]).output
    assert "named by their primary key (id, position, source):" in text
    assert "| 3 | 4 | s 34 | different | note | x | y |" in text


def test_an_emptied_target_is_filled_again(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}")
    assert one.run().good
    one.session.servers.endpoints["clickhouse"].execute(f"DROP TABLE warehouse.{one.table} SYNC")
    assert {view.reason for view in one.plan().ranges} == {"target_missing"}
    assert one.run().good
    assert target(one) == one.rows(SELECT)


def test_a_swap_shows_the_old_table_until_all_is_there(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, ranges="{rows: 250}", write="swap")
    assert one.run().good
    before = target(one)
    one.source("UPDATE {t} SET name = name || '!'")
    some = one.run(ranges=["..0000000251"])
    assert not some.good
    assert "a swap needs all of them" in some.errors[0]
    assert target(one) == before
    rest = one.run()
    assert rest.good, rest.errors
    assert target(one) == one.rows(SELECT)


def test_unknown_ranges_and_hops_are_input_errors(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE)
    with pytest.raises(InputError, match="has no range 'nope'"):
        one.run(ranges=["nope"])
    with pytest.raises(InputError, match="has hops 1 to 1, not 2"):
        one.run(hop=2)


def test_validate_names_each_refused_column_and_what_would_work(ferry: Make) -> None:
    one = ferry(
        DIRECT,
        "CREATE TYPE {t}_pair AS (a integer, b integer)",
        "CREATE TABLE {t} (id integer PRIMARY KEY, loose numeric, pair {t}_pair)",
        "INSERT INTO {t} VALUES (1, 12.345, NULL)",
    )
    problems = validate(one.session, [one.table])[one.table]
    text = "\n".join(problems)
    assert "'loose'" in text and "numeric" in text
    assert "'pair'" in text
    assert "Decimal(" in text or "decimal(" in text
    one.declare(DIRECT, columns='{loose: {type: "Decimal(12, 3)"}}', exclude="[pair]")
    assert validate(one.session, [one.table])[one.table] == []
    assert one.run().good
    one.source("DROP TABLE {t}", "DROP TYPE {t}_pair")


def test_expectations_are_a_check_of_each_range(ferry: Make) -> None:
    suite = (
        "[{type: expect_column_values_to_not_be_null, kwargs: {column: name}}, "
        "{type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 0}}]"
    )
    one = ferry(DIRECT, *TABLE, ranges="{rows: 500}", expectations=suite)
    assert validate(one.session, [one.table])[one.table] == []
    assert one.run().good
    one.source("UPDATE {t} SET name = NULL WHERE id = 700")
    view = one.run()
    checked = {row.range: row.checks["expectations"] for row in view.ranges}
    assert checked["..0000000501"] is True
    assert checked["0000000501..0000001001"] is False
    assert not view.good
    one.declare(DIRECT, expectations="[{type: expect_column_values_to_be_nul, kwargs: {}}]")
    with pytest.raises(InputError) as refused:
        validate(one.session, [one.table])
    assert "expect_column_values_to_be_nul'" in str(refused.value)
    assert "expect_column_values_to_be_null" in str(refused.value), "the right spelling"
