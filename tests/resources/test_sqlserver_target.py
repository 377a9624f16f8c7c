"""What the SQL Server target refuses before a run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget, too_long
from tableferry.resources.sqlserver.types import fixed_bits
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

SOURCE = TableRef("postgres", "public", "orders")
TARGET = TableRef("sqlserver", "shop]s", "orders")


def _column(name: str, type_: str, nullable: bool = False) -> ColumnPlan:
    column = Column(name, type_, nullable=nullable)
    return ColumnPlan(column, column, name, pa.string())


KEY = _column("id", "bigint")
PLAN = CopyPlan(SOURCE, TARGET, (KEY, _column("note", "nvarchar(40)", True)), KEY, ("id",))


@pytest.mark.parametrize("babelfish", [True, False])
@pytest.mark.parametrize(
    ("odd", "says"),
    [({"name": "Één"}, "small letters of É"), ({"schema": 'a"]b'}, 'no schema with both " and ]')],
)
def test_a_swap_that_babelfish_would_not_find_is_refused(
    odd: dict[str, str], says: str, babelfish: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(_: SqlServerResource, sql: str) -> list[tuple[int | None]]:
        if "__ferry_ranges" in sql:
            return []  # there are no markers
        asked.append(sql)
        return [(1 if babelfish else None,)]

    monkeypatch.setattr(SqlServerResource, "query", answer)
    target = SqlServerTarget(SqlServerResource(url="mssql://sa:secret@host/shop"))
    swap, plan = TargetOptions(mode=WriteMode.SWAP), replace(PLAN, target=replace(TARGET, **odd))
    target.require(PLAN, swap)
    target.require(plan, TargetOptions())
    assert not asked
    with pytest.raises(InputError, match=says) if babelfish else nullcontext():
        target.require(plan, swap)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("type_", "bits"),
    [
        ("bit", 1),
        ("tinyint", 8),
        ("smallint", 16),
        ("int", 32),
        ("bigint", 64),
        ("decimal(9,2)", 40),
        ("decimal(19,2)", 72),
        ("decimal(28)", 104),
        ("numeric(38,10)", 136),
        ("smallmoney", 32),
        ("money", 64),
        ("real", 32),
        ("float(24)", 32),
        ("float", 64),
        ("date", 24),
        ("time(2)", 24),
        ("time", 40),
        ("smalldatetime", 32),
        ("datetime", 64),
        ("datetime2(0)", 48),
        ("datetime2(4)", 56),
        ("datetime2(6)", 64),
        ("datetimeoffset(3)", 72),
        ("uniqueidentifier", 128),
        ("char(10)", 80),
        ("nchar(10)", 160),
        ("binary(10)", 80),
        ("varchar(8000)", 0),
        ("nvarchar(max)", 0),
        ("varbinary(10)", 0),
        ("xml", 0),
    ],
)
def test_bytes_that_a_column_takes_in_each_row(type_: str, bits: int) -> None:
    assert fixed_bits(type_) == bits


def test_rows_end_at_8060_bytes() -> None:
    def columns(*types: str) -> list[Column]:
        return [Column(f"c{number}", type_, True) for number, type_ in enumerate(types)]

    # 7 bytes are the server's own
    assert not too_long(columns("char(8000)", "binary(53)"))
    why = too_long(columns("char(8000)", "binary(53)", "bit"))
    assert "8,061 bytes" in why and "'c0', char(8000)" in why and "exclude" in why
    assert not too_long(columns(*["varchar(8000)"] * 100))
