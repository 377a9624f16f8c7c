"""Ranges as the statements of a source read them: few, but none for longer than it may take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.facts import Facts
from tableferry.resources.contract.limits import SourceLimits
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest import stretches as module
from tableferry.resources.digest.stretches import FIRST_ROWS, FIRST_VALUES, GROWTH, stretches
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

TABLE, KEY = TableRef("postgres", "public", "t"), Column("id", "integer")


class Clock:
    """The time, which passes as the rows are read."""

    def __init__(self, rows_per_second: float) -> None:
        self.now, self.rate = 0.0, rows_per_second

    def monotonic(self) -> float:
        return self.now


class Server:
    """A server that is asked for nothing but what `stretches` needs."""

    def __init__(self, longest: float | None = 3.0) -> None:
        self.limits = SourceLimits.of({"longest_statement": longest})
        self.guards = 0
        self.known = Facts()

    def settings(self) -> Any:
        return SimpleNamespace(facts=self.known)

    def guarded(self) -> dict[str, float]:
        self.guards += 1
        return {}


@pytest.fixture(autouse=True)
def found_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    source = type(source_of(TABLE.system))
    monkeypatch.setattr(source, "scattered", lambda *_: False)
    monkeypatch.setattr(source, "leading", lambda *_: ("id",))


def ranges_of(count: int) -> list[KeyRange]:
    middle = [KeyRange("integer", at * 10, at * 10 + 10) for at in range(count)]
    ends = KeyRange("integer", None, 0), KeyRange("integer", count * 10, None)
    return [ends[0], *middle, ends[1], KeyRange("integer", null=True)]


def read(
    monkeypatch: pytest.MonkeyPatch,
    server: Any,
    ranges: Sequence[KeyRange],
    rows: Mapping[str, int],
    rate: float,
    columns: int = 0,
    most: int | None = None,
) -> list[tuple[list[KeyRange], float]]:
    """The ranges of each statement, and what it took."""
    clock = Clock(rate)
    monkeypatch.setattr(module, "time", clock)
    taken = []
    for part in stretches(server, TABLE, KEY, ranges, columns=columns, rows=rows, most=most):
        took = sum(rows.get(each.name, 0) for each in part) / rate
        clock.now += took
        taken.append(([*part], took))
    return taken


def test_a_table_that_takes_less_is_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = ranges_of(100)
    rows = dict.fromkeys((each.name for each in ranges), 1_000)
    assert [len(part) for part, _ in read(monkeypatch, Server(), ranges, rows, 1e6, 15)] == [103]
    few = ranges_of(2)
    assert len(read(monkeypatch, Server(), few, {}, 1e6, 15)) == 1, "nobody asks how large it is"


@pytest.mark.parametrize("rate", [50_000, 500_000, 5_000_000])
def test_no_statement_but_the_first_takes_longer(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    ranges = ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    parts = read(monkeypatch, Server(), ranges, rows, rate, 15)
    assert [each for part, _ in parts for each in part] == ranges
    taken = [took for _, took in parts]
    assert taken[0] <= FIRST_VALUES / 15 / rate
    assert max(taken[1:]) <= 3.0
    assert len(parts) <= 40_000_000 / rate / 3.0 * 2 + 5, "and they are no more than needed"


def test_what_one_reading_has_taken_the_next_one_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    server, ranges = Server(), ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    first = read(monkeypatch, server, ranges, rows, 100_000, 15)
    again = read(monkeypatch, server, ranges, rows, 100_000, 15)
    assert first[0][1] > 3.0 >= again[0][1]
    assert len(read(monkeypatch, server, ranges, rows, 100_000)) > 0, "other columns, other speed"


def test_a_long_way_to_a_server_does_not_cut_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    server, ranges = Server(), ranges_of(100)
    rows = {each.name: 100 for each in ranges}
    assert len(read(monkeypatch, server, ranges, rows, 1_000, 15)) == 1
    assert len(read(monkeypatch, server, ranges, rows, 1_000, 15)) == 1
    assert len(read(monkeypatch, server, ranges_of(1), dict.fromkeys(rows, 20), 500)) == 1
    assert len(read(monkeypatch, server, ranges_of(1), {}, 1e6)) == 1, "of unknown size"


def test_a_sudden_speed_is_not_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = ranges_of(1000)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    parts = read(monkeypatch, Server(), ranges, rows, 1e9)
    sizes = [sum(rows.get(each.name, 0) for each in part) for part, _ in parts]
    assert sizes[0] <= FIRST_ROWS and sizes[1] <= GROWTH * FIRST_ROWS


def test_a_table_whose_rows_lie_anywhere_is_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(source_of(TABLE.system)), "scattered", lambda *_: True)
    ranges = ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    assert len(read(monkeypatch, Server(), ranges, rows, 1e5, 15)) == 1
    assert len(read(monkeypatch, Server(), ranges, rows, 1e5, 15, most=100)) == 5


def test_a_key_without_an_index_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(source_of(TABLE.system)), "leading", lambda *_: ("other",))
    ranges = ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    assert len(read(monkeypatch, Server(), ranges, rows, 1e5, 15)) == 1


def test_without_a_limit_the_ranges_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    assert len(read(monkeypatch, Server(None), ranges, rows, 1e4, 15)) == 1
    server = SimpleNamespace(limits=None)
    assert len(read(monkeypatch, server, ranges, rows, 1e4, 15)) == 1, "no source"
    assert [*stretches(Server(), TABLE, KEY, [])] == []  # type: ignore[arg-type]


def test_the_size_of_many_ranges_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def sizes(_: Any, endpoint: Any, tables: Any) -> dict[TableRef, TableSize]:
        asked.append(tables)
        return {TABLE: TableSize(80_000)}

    monkeypatch.setattr(type(source_of(TABLE.system)), "sizes", sizes)
    server = Server()
    small = read(monkeypatch, server, ranges_of(8), {}, 1e6, 15)
    assert (len(small), len(asked)) == (1, 1)
    read(monkeypatch, server, ranges_of(8), {}, 1e6, 15)
    assert len(asked) == 1, "a moment ago"
    monkeypatch.setattr(
        type(source_of(TABLE.system)), "sizes", lambda *_: {TABLE: TableSize(80_000_000)}
    )
    assert len(read(monkeypatch, Server(), ranges_of(8), {}, 1e6, 15)) > 4


def test_the_guard_is_asked_before_each_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    server, ranges = Server(), ranges_of(400)
    rows = {each.name: 100_000 for each in ranges[1:-2]}
    assert len(read(monkeypatch, server, ranges, rows, 1e5, 15)) == server.guards > 10


@given(
    rows=st.lists(st.integers(0, 10**9), min_size=1, max_size=60),
    took=st.floats(0.0, 100.0),
    most=st.integers(1, 20),
    longest=st.floats(0.1, 100),
)
def test_every_range_is_read_once_and_in_order(
    rows: list[int], took: float, most: int, longest: float
) -> None:
    ranges = [KeyRange("integer", at, at + 1) for at in range(len(rows))]
    known = {each.name: number for each, number in zip(ranges, rows, strict=True)}

    def parts() -> Iterator[Sequence[KeyRange]]:
        server: Any = Server(longest)
        return stretches(server, TABLE, KEY, ranges, columns=3, rows=known, most=most)

    read_ranges = []
    for part in parts():
        assert 0 < len(part) <= most
        read_ranges += part
    assert read_ranges == ranges
    assert time.monotonic() > 0
