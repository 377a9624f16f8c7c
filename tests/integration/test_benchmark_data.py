"""TPC-H's lineitem, as the benchmarks load it."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

from benchmarks.data import load_lineitem
from resources.errors import InputError
from tests.servers import Servers


def test_lineitem_is_complete_and_the_same_every_time(stack: Servers) -> None:
    figures = "SELECT count(*), sum(l_quantity), max(l_orderkey), min(l_shipdate) FROM lineitem"
    seen = set()
    for _ in range(2):
        rows = load_lineitem(stack.postgres_url, 0.01)
        with psycopg.connect(stack.postgres_url) as connection:
            row = connection.execute(figures).fetchone()
        assert row is not None
        assert row[0] == rows
        seen.add(row)
    # The specification's own cardinality of lineitem at scale factor 0.01.
    assert len(seen) == 1
    assert rows == 60_175
    assert row[1] == Decimal("1536127.00")
    with psycopg.connect(stack.postgres_url) as connection:
        connection.execute("DROP TABLE lineitem")


def test_impossible_scale(stack: Servers) -> None:
    with pytest.raises(InputError, match="tpchgen-cli failed at scale factor -1"):
        load_lineitem(stack.postgres_url, -1)
    with psycopg.connect(stack.postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('lineitem')").fetchone() == (None,)
