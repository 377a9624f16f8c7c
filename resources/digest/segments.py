"""Segments of a range: equal stretches of its integer keys, whose digests tell where it changed."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.keys.range import KeyRange

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
