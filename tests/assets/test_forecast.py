"""How long a run takes is learned from the runs before it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.assets.log.forecasts import Forecast, Span, median_error
from tableferry.assets.planning.forecast import Workload, forecast
from tableferry.resources.words import duration, size

WORK = Workload(ranges=10, rows=1_000_000, rows_compared=50_000)


def machine(chance: random.Random) -> Callable[[Workload], float]:
    """Return what a machine of unknown speed takes, a little different each time."""
    run, a_range = chance.uniform(0.2, 3), chance.uniform(0.01, 0.3)
    row = 10 ** chance.uniform(-6.5, -4.5)

    def seconds(work: Workload) -> float:
        compared = work.rows_compared * chance.uniform(0.15, 0.45)
        exact = run + a_range * work.ranges + row * (work.rows + compared)
        return exact * chance.lognormvariate(0, 0.1)

    return seconds


def a_run(chance: random.Random, ranges: int, rows: int) -> Workload:
    """Return one of the runs of a table: of all ranges, or of a few, moved or compared."""
    due = ranges if chance.random() < 0.3 else chance.randint(1, max(1, ranges // 5))
    share, kind = rows * due // ranges, chance.random()
    return Workload(due, share if kind < 0.7 else 0, share if kind > 0.4 else 0)


@pytest.mark.parametrize("seed", range(20))
def test_ten_runs_are_enough_on_any_machine(seed: int) -> None:
    chance = random.Random(seed)
    took, row_bytes = machine(chance), chance.uniform(30, 2000)
    ranges, rows = chance.randint(2, 100), int(10 ** chance.uniform(3, 8))
    past: list[Forecast] = []
    for _ in range(30):
        work = a_run(chance, ranges, rows)
        past.insert(0, replace(forecast(work, past[:20], [], row_bytes), took=took(work)))
    error = median_error(past[:20])
    assert error is not None and error < 0.25, [run.error for run in past]
    inside = [run.seconds.low <= (run.took or 0) <= run.seconds.high for run in past[:20]]
    assert sum(inside) >= 12, "most runs take what they were said to take"


def test_it_says_what_it_is_made_of() -> None:
    first = forecast(WORK, [], [], None)
    assert "nothing has run here yet" in first.basis and first.bytes is None
    elsewhere = replace(first, took=first.seconds.likely * 4)
    second = forecast(WORK, [], [elsewhere], 80)
    assert "other transfers" in second.basis and second.bytes == 80_000_000
    assert second.seconds.likely > 3 * first.seconds.likely, "the machine is that slow"
    third = forecast(WORK, [replace(first, took=first.seconds.likely)], [elsewhere], None)
    assert third.basis == "by its last 1 run"
    assert third.seconds.likely < second.seconds.likely, "its own runs count more than others"


def test_a_machine_that_got_slower_is_noticed() -> None:
    first = forecast(WORK, [], [], None)
    past = [replace(first, took=5.0)] * 10
    for _ in range(8):
        past = [replace(forecast(WORK, past, [], None), took=10.0), *past]
    assert forecast(WORK, past, [], None).seconds.likely > 7.5


works = st.builds(Workload, st.integers(1, 10_000), st.integers(0, 10**10), st.integers(0, 10**10))


@given(st.lists(st.tuples(works, st.floats(0.01, 1e6)), max_size=8), works, st.floats(1, 1e5))
def test_a_forecast_is_a_span_and_survives_its_tag(
    past: list[tuple[Workload, float]], work: Workload, row_bytes: float
) -> None:
    runs = [replace(forecast(each, [], [], row_bytes), took=took) for each, took in past]
    made = forecast(work, runs, [], row_bytes)
    assert 0 <= made.seconds.low <= made.seconds.likely <= made.seconds.high
    read = Forecast.parse(made.text)
    assert read is not None and read.rows == made.rows and read.bytes == made.bytes
    assert read.seconds.likely == pytest.approx(made.seconds.likely, abs=0.01)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", json.dumps({"seconds": [1]}), '"x"'])
def test_a_tag_of_another_release_says_nothing(text: str) -> None:
    assert Forecast.parse(text) is None


def test_errors_are_scored_by_their_median() -> None:
    def run(likely: float, took: float | None) -> Forecast:
        return Forecast(Span(0, likely, 99), (1, 1, 1), 0, None, "", took)

    assert median_error([run(10, None)]) is None
    errors = [run(10, 8), run(10, 10), run(10, 20), run(10, None)]
    assert median_error(errors) == median([0.25, 0, 0.5])


def test_seconds_and_bytes_are_written_for_people() -> None:
    assert [duration(each) for each in (0.04, 9.94, 45, 600, 12_600)] == [
        *("0.0 s", "9.9 s", "45 s", "10 min", "3.5 h")
    ]
    assert [size(each) for each in (0, 1, 999, 1200, 410_000_000, 5e15)] == [
        *("0 bytes", "1 byte", "999 bytes", "1.2 kB", "410 MB", "5,000 TB")
    ]
