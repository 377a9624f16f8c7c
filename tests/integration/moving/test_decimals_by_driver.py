"""Decimals that PostgreSQL's driver is given arrive, whatever their digits and scales."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

PATTERN = "1234500067890012345000067890001234567"


def test_decimals_arrive(ferry: Callable[..., Ferry], copies: str) -> None:
    hops = f"[{{{{to: 'postgres://{copies}.{{t}}', wire: arrow}}}}]"
    one = ferry(hops, "CREATE TABLE {t} (id int)")
    table = f"warehouse.{one.table}_decimals"
    values = [
        f"{sign}{PATTERN[start : start + whole]}.{PATTERN[whole : whole + part]}".ljust(1, "0")
        for sign in ("", "-")
        for start in (0, 4, 9)
        for whole in range(1, 20, 3)
        for part in range(1, 10, 2)
    ]
    looking.ask_clickhouse(
        one.stack.clickhouse_url,
        f"CREATE TABLE {table} (id Int32, x Decimal(38, 10)) ENGINE = MergeTree ORDER BY id",
    )
    try:
        rows = ", ".join(f"({at}, '{value}')" for at, value in enumerate(values))
        looking.ask_clickhouse(one.stack.clickhouse_url, f"INSERT INTO {table} VALUES {rows}")
        one.declare(hops, source=f"clickhouse://{table}", key="id", reconcile="count")
        assert one.run().good
        wrong = one.rows(
            f"SELECT v.id, v.x, t.x::text FROM (VALUES {rows}) AS v (id, x) "
            f"JOIN {copies}.{{t}} AS t USING (id) WHERE t.x <> v.x::numeric(38, 10)"
        )
        assert wrong == []
    finally:
        looking.ask_clickhouse(one.stack.clickhouse_url, f"DROP TABLE {table}")
