"""Which runs cover which ranges."""

from __future__ import annotations

import pytest

from tableferry.assets.running.runs import MOST_RUNS, segments

ORDER = [f"r{number:02d}" for number in range(20)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (set(), []),
        ({"r03"}, [("r03", "r03")]),
        (set(ORDER), [("r00", "r19")]),
        ({"r00", "r01", "r05"}, [("r00", "r01"), ("r05", "r05")]),
        ({"r00", "r02", "r04", "r06"}, [("r00",) * 2, ("r02",) * 2, ("r04",) * 2, ("r06",) * 2]),
        ({"r00", "r02", "r04", "r06", "r08"}, [("r00", "r08")]),
    ],
)
def test_segments(wanted: set[str], expected: list[tuple[str, str]]) -> None:
    assert segments(ORDER, wanted) == expected
    assert len(segments(ORDER, wanted)) <= MOST_RUNS


def test_segments_that_must_not_span_others_stay_apart() -> None:
    wanted = set(ORDER[::2])
    assert segments(ORDER, wanted, most=len(ORDER)) == [(name, name) for name in ORDER[::2]]
