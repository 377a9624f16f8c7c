"""The summary of several transfers."""

from __future__ import annotations

from tableferry.assets.log.records import State
from tableferry.pipelines.command.range_views import RangeView, TransferView
from tableferry.pipelines.command.several import TransferOutcome


def test_rows_of_a_range_count_once_whatever_the_hops() -> None:
    views = [
        RangeView(name, State.COMMITTED, hop=hop, target="", rows=rows, rows_moved=moved)
        for hop, moved in ((1, 7), (2, 5))
        for name, rows in (("a", 10), ("b", 20))
    ]
    assert TransferOutcome(TransferView("t", views), 1.0).rows == 14
