"""Suite files of Great Expectations: what is read of them, and what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.checks.suites import ExpectationSpec, read_suite
from tableferry.resources.errors import InputError

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}
SUITE: dict[str, Any] = {
    "name": "orders",
    "id": "5ba5df01-cda2-479f-a457-1f16d7a934b5",
    "expectations": [
        {**NOT_NULL, "meta": {"ticket": 7}, "severity": "warning", "id": "b3325e97"},
        {
            "type": "unexpected_rows_expectation",
            "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE amount < 0"},
            "description": "no refunds",
            "meta": {},
        },
    ],
    "meta": {"great_expectations_version": "1.24.1"},
    "notes": None,
}
ORDERS = """\
transfer: orders
source: postgres://shop.orders
hops: ["clickhouse://warehouse.orders"]
key: id
expectations: {expectations}
"""


def written(folder: Path, suite: object) -> Path:
    path = folder / "suite.json"
    path.write_text(suite if isinstance(suite, str) else json.dumps(suite), encoding="utf-8")
    return path


def test_a_suite_has_its_expectations_with_what_is_said_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, SUITE)
    first, second = read_suite(path)
    assert first == ExpectationSpec(
        NOT_NULL["type"],
        {"column": "id"},
        notes={"meta": {"ticket": 7}, "severity": "warning"},
        file=path,
    )
    assert second.label == "no refunds"


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ("{'expectations': []}", "suite.json:1: should be JSON"),
        ([], "suite.json: should be a suite, with a list of expectations"),
        ({**SUITE, "expectations": []}, "should be a suite, with a list of expectations"),
        (
            {"expectations": [NOT_NULL, {"expectation_type": "expect_column_to_exist"}]},
            "suite.json: expectations.1: expectation_type is of Great Expectations 0.x",
        ),
        (
            {"expectations": [{**NOT_NULL, "type": "expect_column_values_to_not_be_nul"}]},
            "expectations.0: there is no expectation 'expect_column_values_to_not_be_nul'; did you "
            "mean 'expect_column_values_to_not_be_null'?",
        ),
        ({"expectations": [{**NOT_NULL, "kwargs": []}]}, "kwargs, a mapping"),
        ({"expectations": ["expect_column_to_exist"]}, "should be a mapping with type"),
    ],
)
def test_a_file_that_is_no_suite_is_named_with_what_is_wrong(
    tmp_path: Path, suite: object, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_suite(written(tmp_path, suite))
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("expectations", "expected"),
    [
        ("{suite: suite.json}", ""),
        ("[{suite: suite.json}, {type: expect_column_to_exist, kwargs: {column: id}}]", ""),
        ("{suite: none.json}", "orders.yaml:5: expectations.0: "),
        ("{suite: none.json}", "none.json: No such file or directory"),
        ("[{suite: suite.json, type: sql}]", "suite stands alone, without type"),
        ("[{kwargs: {column: id}}]", "type is required"),
    ],
)
def test_a_suite_is_named_by_its_path_from_the_transfer_file(
    tmp_path: Path, expectations: str, expected: str
) -> None:
    written(tmp_path, SUITE)
    (tmp_path / "orders.yaml").write_text(ORDERS.replace("{expectations}", expectations))
    folder = load_transfers(tmp_path)
    problems = "\n".join(map(str, folder.invalid))
    assert expected in problems and bool(problems) is bool(expected), problems
    if not expected:
        labels = [spec.label for spec in folder.transfers["orders"].suite]
        assert labels[:2] == ["expect_column_values_to_not_be_null(id)", "no refunds"]
