"""Texts in which PostgreSQL writes rows, and what guards them."""

from __future__ import annotations

import pytest

from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

SOURCE = TableRef("postgres", "public", "t")


LIMITS = [
    ("without", "postgres", "timestamp(3) without time zone", "4714-11-24 00:00:00.000000 BC"),
    ("with", "postgres", "timestamp(3) with time zone", "4714-11-24 00:00:00.000000+00 BC"),
    ("without", "clickhouse", "DateTime64(3, 'UTC')", "1900-01-01 00:00:00.000000"),
]


@pytest.mark.parametrize(("zone", "system", "to", "limit"), LIMITS)
def test_text_is_guarded_against_what_the_target_would_cut(
    zone: str, system: str, to: str, limit: str
) -> None:
    columns = [Column("id", "integer", False), Column("x", f"timestamp {zone} time zone")]
    overrides = {"x": ColumnOverride(type=to)}
    target = TableRef(system, "copied", "t")
    text = plan_copy(SOURCE, columns, target, key="id", overrides=overrides).columns[1].text_sql
    assert text is not None
    assert f"'{limit}'" in text
    assert "::bigint % 1000 <> 0" in text
