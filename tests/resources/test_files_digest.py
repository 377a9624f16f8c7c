"""The canonical form of files' values: what DuckDB writes, however it gets there."""

from __future__ import annotations

import duckdb
import pytest

from tableferry.resources.contract.fields import Field
from tableferry.resources.files.digest import text
from tableferry.resources.types.type_map import Column


def written(kind: str, type_: str, literal: str, scale: int = 0) -> str:
    """The canonical form of a literal in a column of a type."""
    column = Column("x", type_)
    field = Field("x", kind, column, column, scale=scale)  # type: ignore[arg-type]
    sql = f"SELECT {text(field, column, 'x')} FROM (SELECT {literal} AS x)"
    with duckdb.connect(":memory:") as database:
        return str(database.execute(sql).fetchall()[0][0])


@pytest.mark.parametrize(
    ("type_", "literal", "scale", "form"),
    [
        ("DECIMAL(18,4)", "-99999999999999.9999", 4, "-99999999999999.9999"),
        ("DECIMAL(18,4)", "99999999999999.9999", 6, "99999999999999.999900"),
        ("DECIMAL(5,4)", "-0.5", 4, "-0.5000"),
        ("DECIMAL(5,4)", "9.9999", 17, "9.99990000000000000"),
        ("DECIMAL(5,4)", "9.9999", 18, "9.999900000000000000"),
        ("DECIMAL(19,2)", "99999999999999999.99", 2, "99999999999999999.99"),
        ("DECIMAL(38,10)", "9999999999999999999999999999.9999999999", 10, None),
        ("DECIMAL(18,2) FROM TEXT", "'9999999999999999.99'", 2, "9999999999999999.99"),
        ("HUGEINT", "99999999999999999999999999999999999999::HUGEINT", 0, None),
        ("BIGINT", "(-9223372036854775808)::BIGINT", 2, "-9223372036854775808.00"),
    ],
)
def test_decimals_keep_all_digits(type_: str, literal: str, scale: int, form: str | None) -> None:
    assert written("decimal", type_, literal, scale) == (form or literal.partition(":")[0])


@pytest.mark.parametrize("type_", ["UUID", "VARCHAR", "UUID FROM TEXT"])
def test_uuids_are_written_in_lower_case(type_: str) -> None:
    literal = "'00112233-4455-6677-8899-AABBCCDDEEFF'" + ("::UUID" if type_ == "UUID" else "")
    assert written("uuid", type_, literal) == "00112233-4455-6677-8899-aabbccddeeff"
