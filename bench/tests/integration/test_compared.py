"""What `ferry compare` is measured beside."""

from __future__ import annotations

from tableferry_bench.compared import FERRY, RELADIFF, measure
from tableferry_bench.servers import Servers


def test_each_tool_finds_the_rows_that_differ(databases: Servers) -> None:
    measured = measure(databases, 2_000, [0, 10], runs=1)
    assert {one.tool for one in measured} <= {FERRY, RELADIFF}
    assert [(one.different, one.found) for one in measured if one.tool == FERRY] == [
        (0, 0),
        (10, 10),
    ]
    for one in measured:
        assert one.seconds > 0
        assert one.peak_mb > 1
