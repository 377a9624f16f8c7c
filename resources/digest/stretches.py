"""Cuts what is read of a source's ranges: into statements of bounded length, and into segments."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.contract.source import source_of
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

AIM = 0.7
"""The share of the longest statement that one should take, as some rows take longer than others."""

FIRST_VALUES = 7_500_000
"""Values of the first statement that digests rows: of 15 columns, a slow server's core writes
them as text in two seconds."""

FIRST_ROWS = 2_000_000
"""Rows of the first statement that reads no values."""

LEAST_SHARE = 0.1
"""The share of a first statement that a later one reads, and is learned from, at least: what a few
rows take is mostly the way to a server, or the other side of a comparison."""

FEW = 4
"""So many ranges, or fewer, are read by one statement unless their rows are known."""

USUAL_ROWS = 250_000
"""The rows of a range by default."""

GROWTH = 4
"""A statement has at most so many times the rows of the one before."""

SIZE_SECONDS = 60.0
"""How long the size of a table is taken for what it was."""


def stretches(
    endpoint: Endpoint,
    table: TableRef,
    key: Column,
    ranges: Sequence[KeyRange],
    *,
    columns: int = 0,
    rows: Mapping[str, int] | None = None,
    most: int | None = None,
) -> Iterator[Sequence[KeyRange]]:
    """Yield ranges as one statement should read them; it is to be run before the next are taken.

    How many rows a statement can read is learned from how long the ones before took. A range is
    the least that a statement reads. Where no index finds the rows of a range, or they lie all over
    the table, each statement would read all of it, so that there is one for all ranges.

    Args:
        endpoint: the table's server.
        table: the table.
        key: its key column.
        ranges: all ranges to read, in key order.
        columns: how many columns the statement reads; 0 if it reads no values.
        rows: how many rows are expected, by range, as far as they are known.
        most: the maximum ranges of a statement, if it has one.
    """
    most = most or max(1, len(ranges))
    expected = _expected(ranges, rows or {})
    limits = endpoint.limits
    longest = limits.longest_statement if limits and len(ranges) > 1 else None
    # rows per second of the last statements
    learned = "rows per second", str(table), columns
    rate = endpoint.settings().facts.latest(learned, 0.0) if longest else 0.0
    first = FIRST_VALUES / columns if columns else float(FIRST_ROWS)
    least = LEAST_SHARE * first
    budget = rate * AIM * (longest or 0.0) or first
    if longest and sum(expected) > budget and not rows:
        expected = expected_rows(endpoint, table, ranges, {})
    whole = longest is None or sum(expected) <= budget
    whole = whole or not _found_by_key(endpoint, table, key, ranges)
    start = 0
    while start < len(ranges):
        end, sum_ = start + 1, expected[start]
        while end < min(len(ranges), start + most) and (whole or sum_ + expected[end] <= budget):
            sum_ += expected[end]
            end += 1
        if limits is not None:
            endpoint.guarded()
        began = time.monotonic()
        yield ranges[start:end]
        took = max(time.monotonic() - began, 0.001)
        if longest and sum_ and (sum_ >= least or took > longest):
            rate = sum_ / took
            budget = max(min(rate * AIM * longest, GROWTH * budget), least)
            if rows:
                endpoint.settings().facts.note(learned, budget / (AIM * longest))
        start = end


def expected_rows(
    endpoint: Endpoint, table: TableRef, ranges: Sequence[KeyRange], known: Mapping[str, int]
) -> list[float]:
    """Return about how many rows each range has.

    If nothing is known of many ranges, the catalog is asked for the size of the table.
    """
    expected = _expected(ranges, known)
    if known or len(ranges) <= FEW:
        return expected
    rows, closed = _rows(endpoint, table), sum(map(bool, expected))
    return expected if rows is None else [rows / closed if each else 0.0 for each in expected]


def _found_by_key(
    endpoint: Endpoint, table: TableRef, key: Column, ranges: Sequence[KeyRange]
) -> bool:
    """Whether the rows of some ranges are read without those of all others."""
    source = source_of(table.system)
    if source.place is not None and key.name == source.place.column.name:
        return True
    if ranges[0].kind == "text":
        indexed = source.serves_order(endpoint, table, key)
    else:
        indexed = key.name in source.leading(endpoint, table)
    return indexed and not table.query and not source.scattered(endpoint, table, key)


def _rows(endpoint: Endpoint, table: TableRef) -> int | None:
    """The rows of a table as its catalog has them; None if it has none."""
    facts, subject = endpoint.settings().facts, ("rows", str(table))
    nothing: tuple[float, int | None] = (-SIZE_SECONDS, None)
    at, rows = facts.latest(subject, nothing)
    if time.monotonic() - at >= SIZE_SECONDS and not table.query:
        size = source_of(table.system).sizes(endpoint, [table]).get(table)
        rows = size.rows if size is not None else None
        facts.note(subject, (time.monotonic(), rows))
    return rows


def _expected(ranges: Sequence[KeyRange], rows: Mapping[str, int]) -> list[float]:
    """The rows of each range: those that are known, else the usual ones.

    An open range at an end, or of NULL keys, has few: the cuts follow the keys.
    """
    return [
        float(
            rows.get(each.name, 0 if each.null or None in (each.lower, each.upper) else USUAL_ROWS)
        )
        for each in ranges
    ]


COUNT = 128
"""Number of segments of a range."""

FEWEST_ROWS = 10_000
"""A range of fewer rows is compared in no time, and has no segments."""

HASH_BYTES = 3
"""Length of a segment's hash, for the sake of the event log. Two that are equal by chance hide a
change from the search, but not from the proof, which is of all rows of the range."""

LARGEST_BOUND = 1 << 62
"""The difference of two bounds below it is a 64-bit integer."""


def segment_width(key_range: KeyRange) -> int | None:
    """Return how many keys each segment of a range spans; None if the range has no segments."""
    bounds = key_range.lower, key_range.upper
    if any(not isinstance(bound, int) or abs(bound) > LARGEST_BOUND for bound in bounds):
        return None
    keys = span(key_range)
    return -(-keys // COUNT) if keys >= FEWEST_ROWS else None


def span(key_range: KeyRange) -> int:
    """Return how many integer keys lie between the bounds of a range."""
    lower, upper = key_range.lower, key_range.upper
    assert isinstance(lower, int) and isinstance(upper, int)
    return upper - lower


def put_together(
    ranges: Sequence[KeyRange], measured: Mapping[int, Figures], digest: str
) -> tuple[dict[int, Figures], dict[int, str]]:
    """Sum up the figures of segments by range, and write their hashes as a text.

    Args:
        ranges: the ranges.
        measured: rows and digests of each segment that has rows, by its number, see
            `Grouped.by_segment`.
        digest: the definition of the row digest.

    Returns:
        Figures, and hashes where a range has segments, by the range's position.
    """
    by_range: dict[int, dict[int, Figures]] = {}
    for number, figures in measured.items():
        position, segment = divmod(number, COUNT)
        by_range.setdefault(position, {})[segment] = figures
    # rows of no range
    by_range.pop(-1, None)
    sums: dict[int, Figures] = {}
    hashes: dict[int, str] = {}
    for position, segments in by_range.items():
        rows = sum(figures["rows"] for figures in segments.values())
        total = sum(int(figures["digest"]) for figures in segments.values())
        sums[position] = {"rows": rows, "digest": str(total)}
        if rows >= FEWEST_ROWS and segment_width(ranges[position]):
            hashes[position] = _written(digest, segments)
    return sums, hashes


def changed_segments(key_range: KeyRange, before: str, now: str) -> list[KeyRange] | None:
    """Return the segments whose hashes differ, neighbours as one; None if that is not known.

    Args:
        key_range: the range.
        before: its hashes when it was committed; '' if it had none.
        now: those of its present rows.
    """
    width = segment_width(key_range)
    if width is None or not before or not now or len(before) != len(now):
        return None
    assert isinstance(key_range.lower, int) and isinstance(key_range.upper, int)
    changed: list[KeyRange] = []
    for number, (old, new) in enumerate(zip(_hashes(before), _hashes(now), strict=True)):
        if old == new:
            continue
        lower = key_range.lower + number * width
        upper = min(lower + width, key_range.upper)
        if changed and changed[-1].upper == lower:
            changed[-1] = replace(changed[-1], upper=upper)
        else:
            changed.append(replace(key_range, lower=lower, upper=upper))
    return changed


def _hashes(text: str) -> list[bytes]:
    hashes = base64.b64decode(text)
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def _written(digest: str, segments: Mapping[int, Figures]) -> str:
    hashes = (
        blake2b(f"{digest} {segments[number]}".encode(), digest_size=HASH_BYTES).digest()
        if number in segments
        else bytes(HASH_BYTES)
        for number in range(COUNT)
    )
    return base64.b64encode(b"".join(hashes)).decode()
