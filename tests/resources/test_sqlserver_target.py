"""What the SQL Server target refuses before a run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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
    # a process asks each connection once
    host = f"host-{babelfish}-{len(says)}"
    target = SqlServerTarget(SqlServerResource(url=f"mssql://sa:secret@{host}/shop"))
    swap, plan = TargetOptions(mode=WriteMode.SWAP), replace(PLAN, target=replace(TARGET, **odd))
    target.require(PLAN, swap)
    target.require(plan, TargetOptions())
    assert not asked
    with pytest.raises(InputError, match=says) if babelfish else nullcontext():
        target.require(plan, swap)
    assert len(asked) == 1
