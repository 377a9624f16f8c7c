"""A range without rows on either side is recorded, and nothing is staged for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.running import actions, moving
from tableferry.assets.transfer import target_asset
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

TARGETS = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": "copies"}
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 20) i",
)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ranges that are moved, in the order in which they begin."""
    names: list[str] = []
    move = moving.move

    def noting(rows: actions.RowSet, reason: actions.Reason) -> actions.RangeOutcome:
        names.append(rows.attempt.name)
        return move(rows, reason)

    monkeypatch.setattr(actions, "move", noting)
    return names


@pytest.mark.parametrize("system", TARGETS)
def test_only_ranges_with_rows_are_staged(
    ferry: Callable[..., Ferry], copies: str, moved: list[str], system: str
) -> None:
    schema = copies if system == "postgres" else TARGETS[system]
    one = ferry(f"['{system}://{schema}.{{t}}']", *TABLE, ranges="{bounds: [1, 100]}")
    first = one.run()
    assert first.good, first.errors
    assert [(range_.rows, range_.checks) for range_ in first.ranges] == [
        (rows, {"row_count": True, "checksum": True}) for rows in (0, 20, 0)
    ]
    below, middle, above = (range_.range for range_ in first.ranges)
    assert moved == [middle]
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}
    one.source("INSERT INTO {t} VALUES (200, 'new')")
    assert one.run().good and moved == [middle, above]
    one.source("DELETE FROM {t} WHERE id = 200")
    gone = one.run()
    assert gone.good and moved == [middle, above, above], "the target still had the row"
    table = f"{schema}.{one.table}"
    looking.run(one.stack, system, f"INSERT INTO {table} (id, note) VALUES (-5, 'stray')")
    mended = one.run(force=True)
    assert mended.good and moved[-2:] in ([below, middle], [middle, below]), mended.errors


def test_later_hops_record_them_too(ferry: Callable[..., Ferry], moved: list[str]) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        *TABLE,
        ranges="{bounds: [1, 100]}",
        reconcile="full_hash",
    )
    first = one.run()
    assert first.good, first.errors
    assert len(moved) == 2 and len(set(moved)) == 1
    assert len(first.ranges) == 6


def test_the_range_that_is_recorded_last_has_the_columns(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """Dagster shows those of an asset's newest materialization, whatever its key is."""
    one = ferry(
        f"[postgres://{copies}.{{t}}]",
        "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
        "INSERT INTO {t} SELECT i, repeat('n', 100) FROM generate_series(1, 150000) i",
        ranges="{bounds: [200001, 200002, 200003, 200004, 200005, 200006]}",
        parallel="{export: 2, load: 2}",
        schedule="0 2 * * *",
    )
    assert one.run().good
    asset = asset_key(one.session.transfer(one.table).hops[0].to)
    (newest,) = one.session.instance.fetch_materializations(asset, limit=1).records
    assert newest.asset_materialization is not None
    assert "dagster/column_schema" in newest.asset_materialization.metadata
    spec = target_asset(one.session.transfer(one.table), one.session.transfer(one.table).hops[0])
    assert "Run by the schedule `0 2 * * *` (UTC)." in str(spec.description)
