"""Declared expectations, as far as Great Expectations itself is not needed."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pytest

from tableferry.checks.expectations import shown
from tableferry.checks.suites import ExpectationSpec, labels


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (ExpectationSpec("expect_column_values_to_be_unique", {"column": "id"}, "ids"), "ids"),
        (
            ExpectationSpec("expect_column_values_to_be_unique", {"column": "id"}),
            "expect_column_values_to_be_unique(id)",
        ),
        (
            ExpectationSpec(
                "sql", {"query": "SELECT *\n FROM {table}\n WHERE ({range}) and a <= 0"}
            ),
            "sql: a <= 0",
        ),
        (
            ExpectationSpec("sql", {"query": "SELECT 1 FROM {table} WHERE a AND {range}"}),
            "sql: SELECT 1 FROM {table} WHERE a AND {range}",
        ),
        (ExpectationSpec("sql", {"query": "SELECT 1"}, "no ones"), "no ones"),
    ],
)
def test_an_expectation_has_a_name(spec: ExpectationSpec, label: str) -> None:
    assert spec.label == label
    assert labels([spec, spec]) == [label, f"{label} (2)"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's", "it's"),
        (None, "NULL"),
        (b"\x00\xff", "0x00ff"),
        (
            {"id": 1, "day": dt.date(2024, 1, 2), "n": Decimal("1.50"), "x": None, "b": b"a"},
            '{"id": 1, "day": "2024-01-02", "n": "1.50", "x": null, "b": "0x61"}',
        ),
        (("Ж", 2), '["Ж", 2]'),
        (True, "true"),
    ],
)
def test_values_are_shown_without_python(value: object, text: str) -> None:
    assert shown(value) == text


def test_great_expectations_is_imported_late() -> None:
    code = (
        "import sys, checks, checks.expectations\n"
        "assert 'great_expectations' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
