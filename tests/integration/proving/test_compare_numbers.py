"""Numbers compared between any two servers: no digit is overlooked, and none is made up."""

from __future__ import annotations

import decimal
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tests.servers import Servers

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def servers(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)


def values(system: str, type_: str, numbers: Sequence[str]) -> str:
    """A query of rows `id`, counted from 0, and `a`."""
    if system == "clickhouse":
        rows = ", ".join(f"({number}, '{text}')" for number, text in enumerate(numbers))
        return f"clickhouse:SELECT * FROM values('id Int32, a {type_}', {rows})"
    rows = ", ".join(
        f"({number}, CAST('{text}' AS {type_}))" for number, text in enumerate(numbers)
    )
    return f"{system}:SELECT * FROM (VALUES {rows}) AS v(id, a)"


def differing(first: str, second: str, *options: str) -> set[int]:
    """The rows that differ, whichever table is the first."""
    found = []
    for names in ((first, second), (second, first)):
        result = CliRunner().invoke(main, ["compare", *names, "--key", "id", "--json", *options])
        document: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if document["ok"] else 1), result.output
        examples: list[Mapping[str, Any]] = (document["differences"] or {"examples": []})[
            "examples"
        ]
        found.append({int(each["row"]["id"]) for each in examples})
    assert found[0] == found[1]
    return found[0]


DOUBLES = {"postgres": "float8", "clickhouse": "Float64", "sqlserver": "float"}
DECIMALS = {"postgres": "numeric({})", "clickhouse": "Decimal({})", "sqlserver": "decimal({})"}


@pytest.mark.parametrize("system", DOUBLES)
def test_a_numeric_that_says_its_digits_itself_is_compared_with_doubles(system: str) -> None:
    exact = ["0.1", "1.50", "0.1000000000000000000001", "1e30", "1e-30", "123456789012345678901"]
    doubles = ["0.1", "1.5", "0.1", "1e30", "1e-30", "123456789012345680000"]
    first = values("postgres", "numeric", exact)
    assert differing(first, values(system, DOUBLES[system], doubles)) == {2, 5}


@pytest.mark.parametrize("system", ["postgres", "clickhouse"])
def test_a_numeric_of_any_size_is_compared_with_doubles(system: str) -> None:
    exact = ["1e100", "NaN", "Infinity", "1" * 50]
    first = values("postgres", "numeric", exact)
    second = values(system, DOUBLES[system], ["1e100", "nan", "inf", "1.1111111111111111e49"])
    assert differing(first, second) == {3}


@pytest.mark.parametrize("decimal", DECIMALS)
@pytest.mark.parametrize("double", DOUBLES)
def test_the_double_next_to_the_largest_decimal_is_none_of_its_type(
    decimal: str, double: str
) -> None:
    exact = [f"{'9' * 28}.{'9' * 10}", "0.1", "12345678901234567.125", "-90.01"]
    first = values(decimal, DECIMALS[decimal].format("38, 10"), exact)
    second = values(double, DOUBLES[double], ["1e28", "0.1", "12345678901234568", "-90.01"])
    assert differing(first, second) == {0, 2}


def test_zeros_at_the_end_of_a_numeric_are_no_difference() -> None:
    first = values("postgres", "numeric", ["1.5", "2", "0.10", "1e3", "0"])
    assert not differing(
        first, values("postgres", "numeric", ["1.50", "2.00", "0.1", "1000", "0.0"])
    )
    other = values("postgres", "numeric", ["1.51", "2", "0.1", "1000", "0"])
    assert differing(first, other) == {0}
    narrow = values("sqlserver", "decimal(20, 6)", ["1.5", "2", "0.1", "1000", "0.000001"])
    assert differing(first, narrow) == {4}


HALVES = ["0.5", "1.5", "2.5", "-0.5", "2.675", "1.005", "1e17", "1e-300", "123456789.125"]


@pytest.mark.parametrize("pair", [("postgres", "clickhouse"), ("clickhouse", "sqlserver")])
@pytest.mark.parametrize("digits", [0, 1, 2])
def test_halves_are_rounded_alike(pair: tuple[str, str], digits: int) -> None:
    queries = [values(system, DOUBLES[system], HALVES) for system in pair]
    assert not differing(*queries, "--tolerance", f"a:round={digits}")


@pytest.mark.parametrize(
    ("system", "type_"),
    [
        ("postgres", "numeric"),
        ("postgres", "numeric(38, 6)"),
        ("clickhouse", "Decimal(38, 6)"),
        ("sqlserver", "decimal(38, 6)"),
    ],
)
def test_a_tolerance_rounds_to_its_digits_alone(system: str, type_: str) -> None:
    first = values("postgres", "numeric", ["1.234", "1.5", "1e30", "0.0049999999"])
    second = values(system, type_, ["1.239", "1.9", "1" + "0" * 30, "0"])
    expected: Mapping[int, set[int]] = {0: set(), 1: {1}, 2: {0, 1}, 3: {0, 1, 3}}
    for digits, rows in expected.items():
        assert differing(first, second, "--tolerance", f"a:round={digits}") == rows


def test_numbers_of_files_are_rounded_and_compared_alike(tmp_path: Path) -> None:
    ids = pa.array(range(len(HALVES)), pa.int32())
    floats = pa.table({"id": ids, "a": [float(text) for text in HALVES]})
    pq.write_table(floats, tmp_path / "halves.parquet")
    queries = values("postgres", "float8", HALVES), f"files://{tmp_path}/halves.parquet"
    for digits in (0, 1, 2):
        assert not differing(*queries, "--tolerance", f"a:round={digits}")
    exact = [f"{'9' * 28}.{'9' * 10}", "0.1", "12345678901234567.125"]
    decimals = pa.array([decimal.Decimal(text) for text in exact], pa.decimal128(38, 10))
    pq.write_table(pa.table({"id": ids[:3], "a": decimals}), tmp_path / "exact.parquet")
    doubles = values("postgres", "float8", ["1e28", "0.1", "12345678901234568"])
    assert differing(f"files://{tmp_path}/exact.parquet", doubles) == {0, 2}
