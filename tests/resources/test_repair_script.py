"""The constants that the script of a repair is written with."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.delta import _constants
from tableferry.resources.types.type_map import Column


@pytest.mark.parametrize(
    ("target", "written"),
    [
        (TableRef("sqlserver", "dbo", "t"), ["0x00ff", "NULL", "0x"]),
        (TableRef("postgres", "copies", "t"), [r" E'\\x00ff'", "NULL", r" E'\\x'"]),
    ],
)
@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_bytes_are_written_for_the_targets_column(
    target: TableRef, written: list[str], type_: pa.DataType
) -> None:
    columns = [Column("id", "integer", nullable=False), Column("data", "bytea")]
    plan = plan_copy(TableRef("postgres", "public", "t"), columns, target, key="id")
    values = pa.array([b"\x00\xff", None, b""], type_)
    assert _constants(plan, plan.target_columns[1], values) == written


@pytest.mark.parametrize(
    "target", [TableRef("sqlserver", "dbo", "t"), TableRef("postgres", "copies", "t")]
)
def test_decimals_are_written_without_an_exponent(target: TableRef) -> None:
    columns = [Column("id", "integer", nullable=False), Column("x", "numeric(38,10)")]
    plan = plan_copy(TableRef("postgres", "public", "t"), columns, target, key="id")
    values = [Decimal("0E-10"), None, Decimal("0.0000001000"), Decimal("-12.5000000000")]
    written = _constants(plan, plan.target_columns[1], pa.array(values, pa.decimal128(38, 10)))
    texts = [text.strip("N'") for text in written]
    assert texts == ["0.0000000000", "ULL", "0.0000001000", "-12.5000000000"]
