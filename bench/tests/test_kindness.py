"""The suite kindness: what its table shows."""

from __future__ import annotations

from tableferry_bench.kindness import HEAD, Row, line, percentile
from tableferry_bench.sampler import Seen


def test_a_row_has_as_many_cells_as_the_head() -> None:
    cells = HEAD.splitlines()[0].count("|")
    full = Row("ferry: check", 4.2, 900, 0.5, 3.25, 40, Seen(2.1, 4.2, 1700, 0, 1.5, 12_345, 8.0))
    assert line(full).count("|") == cells
    assert "| 3.25 |" in line(full) and "| 12,345 |" in line(full)
    assert line(Row("dlt", failed="left out: not installed")).count("|") == cells
    assert line(Row("nothing", 10.0)).count("|") == cells


def test_percentiles_of_few_values() -> None:
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([float(at) for at in range(100)], 0.5) == 50.0
    assert percentile([float(at) for at in range(100)], 0.99) == 99.0
