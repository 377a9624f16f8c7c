"""Expectations on key ranges of a real table, and what is wrong with a suite before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tableferry.checks import expectations
from tableferry.checks.expectations import run_suite
from tableferry.checks.suites import ExpectationSpec, validate_suite
from tableferry.checks.table_side import TableSide
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.servers import own

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("great_expectations") is None, reason="needs the extra"),
]

NAME = own("expected")
GOOD, BAD = KeyRange("integer", 0, 1000), KeyRange("integer", 1000, 2000)


def side(plan: CopyPlan, clickhouse: ClickHouseResource) -> TableSide:
    return TableSide(plan, "target", clickhouse)


@pytest.fixture(scope="module")
def clickhouse(ch_url: str) -> Iterator[ClickHouseResource]:
    resource = ClickHouseResource(url=ch_url)
    resource.execute(f"DROP TABLE IF EXISTS {NAME}")
    resource.execute(
        f"CREATE TABLE {NAME} (id Int64, origin Nullable(String), low Int32, high Int32, u UUID) "
        "ENGINE = MergeTree ORDER BY id"
    )
    resource.execute(
        f"INSERT INTO {NAME} SELECT number, ['EWR', 'JFK', 'LGA'][number % 3 + 1], number, "
        "number + 1, generateUUIDv4() FROM numbers(2000)"
    )
    resource.execute(
        f"ALTER TABLE {NAME} UPDATE origin = if(id = 1500, NULL, 'X9'), low = 9999 "
        "WHERE id IN (1500, 1501) SETTINGS mutations_sync = 2"
    )
    resource.execute(f"INSERT INTO {NAME} SELECT * FROM {NAME} WHERE id = 1700")
    yield resource
    resource.execute(f"DROP TABLE {NAME}")


@pytest.fixture(scope="module")
def plan(clickhouse: ClickHouseResource) -> CopyPlan:
    target = TableRef("clickhouse", "warehouse", NAME)
    columns = tuple(
        ColumnPlan(Column(c.name, "text"), c, c.name, pa.string())
        for c in clickhouse.columns(target)
    )
    return CopyPlan(TableRef("postgres", "public", NAME), target, columns, columns[0])


SUITE = {
    "not_null": ("expect_column_values_to_not_be_null", {"column": "origin"}, 1),
    "unique": ("expect_column_values_to_be_unique", {"column": "id"}, 2),
    "between": ("expect_column_values_to_be_between", {"column": "low", "max_value": 5000}, 2),
    "in_set": (
        "expect_column_values_to_be_in_set",
        {"column": "origin", "value_set": ["EWR", "JFK", "LGA"]},
        1,
    ),
    "regex": ("expect_column_values_to_match_regex", {"column": "origin", "regex": "^[A-Z]+$"}, 1),
    "pair_order": (
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "high", "column_B": "low"},
        2,
    ),
    "row_count": ("expect_table_row_count_to_equal", {"value": 1000}, None),
    "columns": ("expect_table_column_count_to_equal", {"value": 5}, None),
    "sql": ("sql", {"query": "SELECT id, low FROM {table} WHERE {range} AND low > high"}, 2),
}


def suite(*names: str) -> list[ExpectationSpec]:
    return [ExpectationSpec(SUITE[name][0], SUITE[name][1]) for name in names]


def test_a_good_range_meets_all(clickhouse: ClickHouseResource, plan: CopyPlan) -> None:
    verdict = run_suite(suite(*SUITE), side(plan, clickhouse), GOOD)
    assert verdict.passed, verdict.metadata["results"]
    assert verdict.summary() == "expectations passed: 9 met"
    assert [result["passed"] for result in verdict.metadata["results"]] == [True] * 9


@pytest.mark.parametrize("name", [name for name in SUITE if name != "columns"])
def test_a_bad_range_fails_each(clickhouse: ClickHouseResource, plan: CopyPlan, name: str) -> None:
    verdict = run_suite(suite(name, "columns"), side(plan, clickhouse), BAD)
    failed, good = verdict.metadata["results"]
    assert (failed["passed"], good["passed"], verdict.passed) == (False, True, False)
    assert SUITE[name][0] in verdict.summary()
    assert failed["unexpected"] == SUITE[name][2]
    if name in ("in_set", "regex"):
        assert failed["examples"] == ["X9"]
    if name == "sql":
        assert failed["examples"] == ['{"id": 1500, "low": 9999}', '{"id": 1501, "low": 9999}']


def test_a_large_range_is_sampled_and_says_so(
    clickhouse: ClickHouseResource, plan: CopyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_suite(suite("not_null", "row_count"), side(plan, clickhouse), GOOD).remarks == ()
    monkeypatch.setattr(expectations, "MAX_ROWS", 100)
    verdict = run_suite(suite("not_null", "row_count"), side(plan, clickhouse), GOOD)
    assert verdict.passed
    assert verdict.metadata["one_row_in"] == 10
    results: list[dict[str, Any]] = verdict.metadata["results"]
    assert results[1]["observed"] == "1000"
    assert verdict.remarks == ("1 of them saw about one row in 10",)


def test_a_range_of_large_rows_is_sampled_by_their_bytes(
    clickhouse: ClickHouseResource, plan: CopyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectations, "MAX_BYTES", 2_000)
    verdict = run_suite(suite("not_null", "row_count"), side(plan, clickhouse), GOOD)
    assert verdict.passed
    one_in = verdict.metadata["one_row_in"]
    assert 3 < one_in < 20
    assert verdict.remarks == (f"1 of them saw about one row in {one_in}",)


@pytest.mark.filterwarnings("ignore:.*(condition_parser|row_condition) parameter is deprecated")
def test_the_whole_result_is_kept_beside_its_line(
    clickhouse: ClickHouseResource, plan: CopyPlan
) -> None:
    notes = {"meta": {"ticket": 7}, "severity": "warning"}
    in_low_rows = {"column": "origin", "value_set": ["EWR"], "row_condition": "low < 1003"}
    verdict = run_suite(
        [
            ExpectationSpec(*SUITE["regex"][:2], notes=notes),
            ExpectationSpec(
                "expect_column_values_to_be_in_set",
                {**in_low_rows, "condition_parser": "pandas"},
            ),
            ExpectationSpec(
                "unexpected_rows_expectation",
                {"unexpected_rows_query": "SELECT id FROM {batch} WHERE low > high"},
                "order",
            ),
            ExpectationSpec(*SUITE["row_count"][:2]),
        ],
        side(plan, clickhouse),
        BAD,
    )
    whole = verdict.metadata["great_expectations"]
    regex, conditional, rows, count = whole["results"]
    assert regex["expectation_config"] == {
        "type": "expect_column_values_to_match_regex",
        "kwargs": SUITE["regex"][1],
        **notes,
    }
    assert regex["result"]["element_count"] == 1001 and regex["result"]["missing_count"] == 1
    assert regex["result"]["partial_unexpected_counts"] == [{"value": "X9", "count": 1}]
    assert conditional["result"]["element_count"] == 3, "the rows that meet its condition"
    assert rows["result"]["partial_unexpected_list"] == [{"id": 1500}, {"id": 1501}]
    assert count["result"] == {"observed_value": 1001}
    assert whole["statistics"]["unsuccessful_expectations"] == 4
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    assert [result["expectation"] for result in verdict.metadata["results"]][2] == "order"


def test_a_query_that_returns_a_large_table_is_not_read_whole(pg_url: str) -> None:
    postgres, view = PostgresResource(url=pg_url), TableRef("postgres", "public", own("huge"))
    postgres.execute(
        f"CREATE VIEW public.{view.name} AS SELECT g AS id, repeat('x', 1000000) AS note "
        "FROM generate_series(1, 100000) g"
    )
    try:
        columns = tuple(
            ColumnPlan(Column(c.name, "text"), c, c.name, pa.string())
            for c in postgres.columns(view)
        )
        plan = CopyPlan(TableRef("postgres", "public", NAME), view, columns, columns[0])
        began = time.monotonic()
        verdict = run_suite(
            [ExpectationSpec("sql", {"query": "SELECT * FROM {table} WHERE {range}"})],
            TableSide(plan, "target", postgres),
            KeyRange("integer", 1, 100001),
        )
    finally:
        postgres.execute(f"DROP VIEW public.{view.name}")
    (result,) = verdict.metadata["results"]
    assert not verdict.passed and result["observed"] == f"{result['unexpected']} rows and more"
    assert 128 <= result["unexpected"] <= 150 and time.monotonic() - began < 300
    assert len(json.dumps(verdict.metadata)) < 100_000


WRONG = [
    (
        ExpectationSpec("expect_column_values_to_not_be_nul", {"column": "id"}),
        "no expectation 'expect_column_values_to_not_be_nul'; "
        "did you mean 'expect_column_values_to_not_be_null'",
    ),
    (
        ExpectationSpec("expect_column_values_to_not_be_null", {"column": "orgin"}),
        "there is no column 'orgin'",
    ),
    (ExpectationSpec("expect_column_values_to_not_be_null", {}), "column: field required"),
    (
        ExpectationSpec(
            "expect_column_values_to_be_between", {"column": "id", "minimum": 1, "max_value": 2}
        ),
        "minimum: extra fields not permitted",
    ),
    (
        ExpectationSpec("expect_column_values_to_be_between", {"column": "id"}),
        "min_value and max_value cannot both be None",
    ),
    (ExpectationSpec("sql", {"query": "SELECT 1"}), "should contain {table} and {range}"),
    (ExpectationSpec("sql", {}), "sql should have one argument, query"),
]
"""Declarations, and what is said of each."""


def test_wrong_declarations_are_named_alone_and_all_at_once() -> None:
    good = ExpectationSpec("expect_column_values_to_be_unique", {"column": "id"})

    def said(*specs: ExpectationSpec) -> str:
        with pytest.raises(InputError) as caught:
            validate_suite([good, *specs], ["id", "origin"])
        return str(caught.value)

    alone = {message: said(spec) for spec, message in WRONG}
    assert not [(message, line) for message, line in alone.items() if message not in line]
    assert not [line for line in alone.values() if "\n" in line]
    together = said(*(spec for spec, _ in WRONG))
    assert not [message for message in alone if message not in together]


def test_a_wrong_argument_of_a_suite_file_is_named_with_the_file() -> None:
    spec = ExpectationSpec("expect_column_values_to_not_be_null", {}, file=Path("orders.json"))
    with pytest.raises(InputError, match=r"orders\.json: .*column: field required"):
        validate_suite([spec])
