"""The tables of the workloads, as the bench makes them."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tableferry.resources.errors import InputError
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import COLUMNS, ensure


@pytest.fixture
def place(databases: Servers) -> Iterator[str]:
    """Lineitem at scale factor 0.01."""
    yield f"public.{databases.table('postgres', 'lineitem_0_01').name}"
    databases.drop(databases.table("postgres", "lineitem_0_01"))


def test_lineitem_is_complete_and_the_same_every_time(databases: Servers, place: str) -> None:
    figures = f"SELECT count(*), sum(l_quantity), max(l_orderkey), min(l_shipdate) FROM {place}"
    table = ensure(databases, "lineitem:0.01")
    # The specification's own cardinality of lineitem at scale factor 0.01.
    expected = (60_175, Decimal("1536127.00"), 60_000, dt.date(1992, 1, 4))
    assert databases.postgres.query(figures) == [expected]
    assert table.rows == 60_175
    assert table.text_bytes > 7_000_000


def test_a_generator_that_fails_leaves_no_table(
    databases: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "tpchgen-cli"
    broken.write_text("#!/bin/sh\necho l_orderkey\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(broken))
    with pytest.raises(InputError, match=r"tpchgen-cli failed at scale factor 0\.5"):
        ensure(databases, "lineitem:0.5")
    place = databases.table("postgres", "lineitem_0_5")
    assert databases.postgres.query(f"SELECT to_regclass('public.{place.name}')") == [(None,)]


def test_a_table_that_was_kept_is_used_again(databases: Servers) -> None:
    first = ensure(databases, "columns:50")
    place = databases.table("postgres", first.name)
    try:
        assert len(databases.postgres.columns(place)) == COLUMNS
        before = databases.postgres.query(f"SELECT 'public.{place.name}'::regclass::oid")
        assert ensure(databases, "columns:50") == first
        assert databases.postgres.query(f"SELECT 'public.{place.name}'::regclass::oid") == before
        assert first.rows == 50
        # one that was not completed has no mark, and is made anew
        databases.postgres.execute(f"COMMENT ON TABLE public.{place.name} IS NULL")
        assert ensure(databases, "columns:50") == first
        assert databases.postgres.query(f"SELECT 'public.{place.name}'::regclass::oid") != before
    finally:
        databases.drop(place)
