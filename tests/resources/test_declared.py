"""Declared types are taken apart as their servers write them."""

from __future__ import annotations

import pytest

from tableferry.resources.types.type_map import TypeText, clickhouse, read, unwrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numeric(38, 10)", TypeText("numeric", (38, 10))),
        ("NVARCHAR(MAX)", TypeText("nvarchar", (-1,))),
        ("time(3)  without time zone", TypeText("time without time zone", (3,))),
        ("character varying(20)[]", TypeText("character varying", (20,), True)),
        ("integer[3][]", TypeText("integer", (), True)),
        ('"Odd (type)"', TypeText('"Odd (type)"')),
        (" enum('a' ", TypeText("enum('a'")),
    ],
)
def test_sql_types(text: str, expected: TypeText) -> None:
    assert read(text) == expected


def test_a_missing_argument_has_the_systems_default() -> None:
    assert [read(text).number(0, 6) for text in ("timestamp(3)", "timestamp")] == [3, 6]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Int32", ("Int32", [])),
        (" DateTime64(6, 'UTC') ", ("DateTime64", ["6", "'UTC'"])),
        ("Map(String, Decimal(9, 2))", ("Map", ["String", "Decimal(9, 2)"])),
        ("Enum8('a,(' = 1, 'b' = 2)", ("Enum8", ["'a,(' = 1", "'b' = 2"])),
    ],
)
def test_clickhouse_types(text: str, expected: tuple[str, list[str]]) -> None:
    assert clickhouse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("String", ("String", False, False)),
        ("LowCardinality(Nullable(String))", ("String", True, True)),
        ("Array(Nullable(Int8))", ("Array(Nullable(Int8))", False, False)),
    ],
)
def test_wrappers_are_removed(text: str, expected: tuple[str, bool, bool]) -> None:
    assert unwrap(text) == expected
