"""The edge values that wires are probed with, and when two texts mean the same value."""

from __future__ import annotations

import pytest

from tableferry.resources.columns.conversions import conversion_between
from tableferry.resources.contract.source import source_of
from tableferry.resources.registry import system
from tableferry.resources.types.kinds import Boolean, Decimal, Float, Text, Timestamp, Uuid
from tableferry.resources.types.samples import REFUSED, Sample, meaning, samples

TARGETS: dict[str, str] = {"sqlserver": "clickhouse", "postgres": "clickhouse"}


def found(source: str, declared: str, target_type: str | None = None) -> list[Sample]:
    export = system(source).types.export(declared)
    chosen = target_type or system("clickhouse").types.default(export.kind)  # type: ignore[union-attr]
    assert chosen is not None
    style = source_of(system(source)).style
    assert style is not None
    return samples(
        style, declared, conversion_between(system(source), declared, system("clickhouse"), chosen)
    )


@pytest.mark.parametrize(
    ("source", "declared"),
    [(source, one) for source in TARGETS for one in source_of(system(source)).examples],
)
def test_every_type_of_the_doctor_has_values_that_arrive(source: str, declared: str) -> None:
    arriving = [one for one in found(source, declared) if one.expected != REFUSED]
    assert len(arriving) >= 2
    assert len({one.what for one in arriving}) == len(arriving)


@pytest.mark.parametrize(
    "declared", ["datetime2(0)", "datetime2(3)", "datetime2(6)", "datetime2(7)", "date"]
)
def test_moments_beyond_clickhouses_calendar_are_to_be_refused(declared: str) -> None:
    refused = {one.what[:10] for one in found("sqlserver", declared) if one.expected == REFUSED}
    assert {"0001-01-01", "1899-12-31", "2300-01-01", "9999-12-31"} <= refused
    arriving = {one.what[:10] for one in found("sqlserver", declared) if one.expected != REFUSED}
    assert {"1900-01-01", "2299-12-31"} <= arriving


def test_an_offset_is_to_be_refused_unless_it_travels_as_text() -> None:
    zones = ("+05:30", "-08:00")
    refused = [
        one.what for one in found("sqlserver", "datetimeoffset(3)") if one.expected == REFUSED
    ]
    assert {one[-6:] for one in refused} >= set(zones)
    as_text = found("sqlserver", "datetimeoffset(3)", "String")
    assert not any(one.expected == REFUSED for one in as_text)
    assert any(one.expected.endswith(zones) for one in as_text)


def test_a_narrower_integer_is_to_be_refused() -> None:
    expected = {one.what: one.expected for one in found("sqlserver", "int", "Int16")}
    assert expected["32767"] == "32767"
    assert expected["32768"] == expected["-32769"] == REFUSED


@pytest.mark.parametrize("declared", ["nvarchar(1)", "varchar(3)", "nchar(2)", "char(1)"])
def test_no_text_is_longer_than_its_column(declared: str) -> None:
    length = int(declared.partition("(")[2][:-1])
    for one in found("sqlserver", declared):
        assert len(one.expected.encode("utf-16-le")) <= 2 * length


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        (Boolean(), "t", "1", True),
        (Boolean(), "false", "0", True),
        (Boolean(), "true", "0", False),
        (Decimal(9, 2), "1.50", "1.5", True),
        (Decimal(9, 2), "-0.01", "0.01", False),
        (Float(64), "1e22", "10000000000000000000000", True),
        (Float(64), "0.1", "0.10000000000000002", False),
        (Float(64), "-0.0", "0", False),
        (Float(32), "0.1", "0.10000000149011612", True),
        (Timestamp(3, 0, 1), "2020-01-01 00:00:00.100", "2020-01-01T00:00:00.1", True),
        (Timestamp(3, 0, 1), "2020-01-01 00:00:10", "2020-01-01 00:00:1", False),
        (Timestamp(3, 0, 1, "utc"), "2020-01-01 00:00:00.5+00", "2020-01-01 00:00:00.500", True),
        (Timestamp(3, 0, 1, "offset"), "2020-01-01 00:00:00 +05:30", "2020-01-01 00:00:00", False),
        (Uuid(), "AB", "ab", True),
        (Text(), "a ", "a", False),
    ],
)
def test_the_same_value_is_recognised(kind: object, one: str, other: str, same: bool) -> None:
    assert (meaning(kind, one) == meaning(kind, other)) is same  # type: ignore[arg-type]
