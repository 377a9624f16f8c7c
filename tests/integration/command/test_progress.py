"""What the progress bar is told while ranges move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tableferry.assets.running.progress import Progress
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT g, E'line\\nanother\\\\' FROM generate_series(1, 1000) g",
)


@pytest.mark.parametrize(
    "hops",
    [
        "[{{to: 'clickhouse://warehouse.{t}', wire: arrow}}]",
        "[{{to: 'clickhouse://warehouse.{t}', wire: text}}]",
        "[{{to: 'sqlserver://dbo.{t}', wire: text}}, "
        "{{to: 'clickhouse://warehouse.{t}', wire: text}}]",
    ],
    ids=["arrow", "text", "bcp"],
)
def test_every_row_is_told_once_per_hop(
    request: pytest.FixtureRequest, ferry: Callable[..., Ferry], hops: str
) -> None:
    if "sqlserver" in hops:
        request.getfixturevalue("text_into_sqlserver")
    one = ferry(hops, *TABLE, ranges="{rows: 400}")
    told: list[Progress] = []
    view = one.run(on_progress=told.append)
    assert view.good, view.errors
    targets = {row.target for row in view.ranges}
    rows = {t: sum(one.rows for one in told if one.target == t) for t in targets}
    assert rows == dict.fromkeys(targets, 1000)
    assert [one.total for one in told if one.phase == "planned"] == [len(view.ranges)]
    committed = [(one.target, one.range) for one in told if one.phase == "committed"]
    assert sorted(committed) == sorted((row.target, row.range) for row in view.ranges)
