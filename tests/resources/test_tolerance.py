"""Tolerances: what they make of values, as DuckDB computes it, and what they refuse."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources import registry
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.tolerance import MICROSECONDS, Tolerance
from tableferry.resources.errors import InputError
from tableferry.resources.types.type_map import Column

FILES = registry.system("files")


def field(kind: Any, type_: str, scale: int = 0) -> Field:
    column = Column("x", type_)
    return Field("x", kind, column, column, scale=scale)


def computed(tolerance: dict[str, Any], of: Field, literal: str) -> list[Any]:
    """The values that are compared, of the source's side and the target's."""
    changed = Tolerance.read(tolerance).applied(of, FILES, FILES)
    values = (changed.value(side, FILES.dialect) for side in ("source", "target"))
    sql = f"SELECT {', '.join(values)} FROM (SELECT {literal} AS x)"
    row = duckdb.sql(sql).fetchone()
    assert row is not None
    return [*row]


@pytest.mark.parametrize(
    ("tolerance", "text", "compared"),
    [
        ({"trim": True}, "' A b '", "A b"),
        ({"case": "ignore"}, "' A b '", " a b "),
        ({"trim": True, "case": "ignore"}, "' A b '", "a b"),
        ({"null": ""}, "''", None),
        ({"null": ""}, "' '", " "),
        ({"null": "''", "trim": "true"}, "' '", None),
    ],
)
def test_texts(tolerance: dict[str, Any], text: str, compared: str | None) -> None:
    assert computed(tolerance, field("text", "VARCHAR"), text) == [compared, compared]


@given(st.integers(-(10**17), 10**17), st.sampled_from([*MICROSECONDS]))
def test_moments_are_cut_downwards(micros: int, unit: str) -> None:
    moment = f"make_timestamp({micros})"
    expected = micros - micros % MICROSECONDS[unit]
    found = computed({"truncate": unit}, field("timestamp", "TIMESTAMP", 6), moment)
    assert found == [expected, expected]


@pytest.mark.parametrize(
    ("number", "digits", "compared"),
    [("1.234", 2, "1.23"), ("1.235", 2, "1.24"), ("-1.5", 0, "-2"), ("1.5", 0, "2"), ("7", 1, "7")],
)
def test_numbers_are_rounded(number: str, digits: int, compared: str) -> None:
    of = field("decimal", "DECIMAL(18,3)", 3)
    for value in computed({"round": digits}, of, f"CAST({number} AS DECIMAL(18,3))"):
        assert float(value) == float(compared)


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        ({"round": 2}, "round: 2"),
        ({"round": "0"}, "round: 0"),
        ({"round": 18}, "round: 18"),
        ({"trim": True, "case": "IGNORE"}, "trim: true, case: ignore"),
        ({"trim": False}, ""),
        ({"ignore": "true"}, "ignore: true"),
        ({"null": '""'}, "null: ''"),
        ({"json": " canonical"}, "json: canonical"),
        ({"truncate": "Days"}, "truncate: days"),
    ],
)
def test_what_is_declared(declared: dict[str, Any], written: str) -> None:
    assert str(Tolerance.read(declared)) == written


@pytest.mark.parametrize(
    "declared",
    [
        {"round": 19},
        {"round": -1},
        {"round": "x"},
        {"truncate": "years"},
        {"trim": "yes"},
        {"ignore": ""},
        {"case": True},
        {"null": "x"},
        {"json": True},
        {"other": 1},
    ],
)
def test_what_means_nothing(declared: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is no tolerance; there are round: digits"):
        Tolerance.read(declared)


@pytest.mark.parametrize(
    ("declared", "of", "name"),
    [
        ({"round": 0}, field("text", "VARCHAR"), "round"),
        ({"round": 0}, field("integer", "BIGINT"), "round"),
        ({"truncate": "days"}, field("date", "DATE"), "truncate"),
        ({"trim": True}, field("decimal", "DECIMAL(5,2)"), "trim"),
        ({"case": "ignore"}, field("integer", "BIGINT"), "case"),
        ({"null": ""}, field("integer", "BIGINT"), "null"),
        ({"json": "canonical"}, field("integer", "BIGINT"), "json"),
    ],
)
def test_what_does_not_go_with_a_column(declared: dict[str, Any], of: Field, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} does not go with it, which is compared as"):
        Tolerance.read(declared).applied(of, FILES, FILES)


def test_json_has_to_have_a_canonical_form_on_both_sides() -> None:
    of, postgres = field("text", "VARCHAR"), registry.system("postgres")
    tolerance = Tolerance.read({"json": "canonical"})
    assert postgres.dialect.canonical_json("x") is not None
    for sides in ((FILES, postgres), (postgres, FILES)):
        with pytest.raises(InputError, match=f"^{FILES.title} has no canonical form of JSON"):
            tolerance.applied(of, *sides)


def test_nothing_declared_changes_nothing() -> None:
    of = field("text", "VARCHAR")
    assert Tolerance().applied(of, FILES, FILES) == of
