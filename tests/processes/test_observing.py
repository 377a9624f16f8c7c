"""Workers that ask a catalog for the columns of a table."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tableferry.assets.running.work import Work
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


def test_a_slow_catalog_holds_only_those_that_ask_it() -> None:
    columns = [Column("id", "Int32")]
    asked, answer = threading.Event(), threading.Event()

    def slowly(*_: object) -> list[Column]:
        asked.set()
        assert answer.wait(60)
        return columns

    work: Any = object.__new__(Work)
    for field in fields(Work):
        if field.name.startswith("_") and field.default_factory is not MISSING:
            object.__setattr__(work, field.name, field.default_factory())
    loaders = {
        1: SimpleNamespace(staged_columns=slowly),
        2: SimpleNamespace(staged_columns=lambda *_: columns),
    }
    object.__setattr__(work, "loaders", loaders)
    planned = ColumnPlan(Column("id", "integer"), columns[0], "id", pa.int32())
    plan = CopyPlan(
        TableRef("postgres", "public", "t"),
        TableRef("clickhouse", "warehouse", "t"),
        (planned,),
        planned,
    )
    one, other = (SimpleNamespace(number=number, plan=plan, written_plan=plan) for number in (1, 2))
    staged = TableRef("clickhouse", "warehouse", "staged")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(work.observed, one, staged)
        assert asked.wait(60)
        try:
            quick = pool.submit(work.observed, other, staged)
            assert quick.result(10).target == staged
        finally:
            answer.set()
        assert slow.result(60).target == staged
