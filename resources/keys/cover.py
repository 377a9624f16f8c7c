"""Bounds of key ranges, and whether ranges hold all keys, and each key once."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import (
    NULL_NAME,
    WHOLE_NAME,
    Bound,
    KeyKind,
    KeyRange,
    parse_range,
)

KINDS: tuple[KeyKind, ...] = ("integer", "date", "timestamp", "uuid", "text")
"""The kinds of keys that ranges have bounds of."""


def in_key_order(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return ranges in the order of their keys; that of NULL is last."""
    return sorted(ranges, key=_place)


def gaps(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the ranges that lack between some ranges, and below and above them, in key order.

    Of a file that is cut, these are parts of it. Whether there should be one of NULL, or of another
    file, the ranges do not tell.
    """
    ordered = in_key_order(ranges)
    if not ordered:
        return []
    if ordered[0].kind == "file":
        parts = groupby(ordered, key=lambda each: each.lower)
        return [gap for _, of_file in parts for gap in _gaps_of_file([*of_file])]
    if ordered[0].null:
        return [replace(ordered[0], null=False)]
    bounded = [each for each in ordered if not each.null]
    first, reached = bounded[0], bounded[0].lower
    missing = [replace(first, lower=None, upper=reached)] if reached is not None else []
    for key_range in bounded:
        lower: Any = key_range.lower
        if lower is not None and lower > reached:
            missing.append(replace(first, lower=reached, upper=lower))
            reached = lower
        if key_range.upper is None:
            return missing
        reached = key_range.upper if reached is None else max(reached, key_range.upper)
    return [*missing, replace(first, lower=reached, upper=None)]


def _gaps_of_file(parts: Sequence[KeyRange]) -> Iterator[KeyRange]:
    reached: int | None = 1
    for part in parts:
        first, past = part.rows or (1, None)
        if reached is not None and first > reached:
            yield replace(part, rows=(reached, first))
        reached = None if None in (reached, past) else past
    if reached is not None:
        yield replace(parts[-1], rows=(reached, None))


def overlapping(ranges: Iterable[KeyRange]) -> tuple[KeyRange, KeyRange] | None:
    """Return the first two ranges that share a key; None if there are no two."""
    reaching: KeyRange | None = None
    for key_range in in_key_order(ranges):
        if reaching is not None and reaching.overlaps(key_range):
            return reaching, key_range
        reaching = key_range
    return None


def lacking(names: Sequence[str], moved: Iterable[str], *, of_files: bool) -> list[str]:
    """Name the ranges that lack among those of a table, as far as names tell.

    Args:
        names: the names of the table's ranges.
        moved: the names of ranges that were moved at any time, the last ones first.
        of_files: whether the ranges are files.
    """
    earlier = list(moved)
    if not names and earlier and not of_files:
        return [WHOLE_NAME]
    ranges = _read(names, of_files=of_files)
    if of_files:
        before = _of_kind(earlier, "file").values()
        files = {key_range.lower for key_range in ranges.values()}
        lost = sorted(each.name for each in before if each.lower not in files)
        return [gap.name for gap in gaps(ranges.values())] + lost
    nulls = [NULL_NAME] if NULL_NAME in earlier and NULL_NAME not in names else []
    if not (missing := gaps(ranges.values())):
        return nulls
    # earlier ranges may be of another key
    before = _of_kind(earlier, missing[0].kind).values()
    return [part.name for gap in missing for part in filled(gap, before)] + nulls


def strangers(names: Sequence[str], *, of_files: bool) -> list[str]:
    """Return the names that name no range like the others, and one that has keys of another."""
    ranges = _read(names, of_files=of_files)
    both = overlapping(ranges.values()) or ()
    later = [name for name in names if ranges.get(name) in both][1:]
    return [*(name for name in names if name not in ranges), *later]


def names_in_key_order(names: Sequence[str], *, of_files: bool) -> list[str]:
    """Return the names of ranges as `in_key_order`; those that name none are last."""
    ranges = _read(names, of_files=of_files)
    ordered = sorted(ranges, key=lambda name: _place(ranges[name]))
    return [*ordered, *(name for name in names if name not in ranges)]


def _read(names: Sequence[str], *, of_files: bool) -> dict[str, KeyRange]:
    """Read names by the kind of which most are."""
    most: dict[str, KeyRange] = {}
    kinds: Sequence[KeyKind] = ("file",) if of_files else KINDS
    for kind in kinds:
        read = _of_kind(names, kind)
        if len(read) > len(most):
            most = read
        if len(most) == len(names):
            break
    return most


def _of_kind(names: Iterable[str], kind: KeyKind) -> dict[str, KeyRange]:
    read = ((name, parse_range(name, kind)) for name in names)
    return {name: key_range for name, key_range in read if key_range is not None}


def partition(ranges: Sequence[KeyRange], *, nullable: bool) -> bool:
    """Whether every key is in exactly one of some ranges, by their bounds alone.

    Args:
        ranges: ranges of one table. False if they are files: there may be others.
        nullable: whether a key may be NULL.
    """
    if not ranges or ranges[0].kind == "file":
        return False
    if any(key_range.null for key_range in ranges) != nullable:
        return False
    return not gaps(ranges) and overlapping(ranges) is None


def filled(missing: KeyRange, known: Iterable[KeyRange]) -> list[KeyRange]:
    """Cut a range that lacks at the bounds of known ranges; what these leave is one range.

    Args:
        missing: the range.
        known: ranges that may have been there; of several that begin alike, the first is taken.
    """
    begins: dict[Any, KeyRange] = {}
    end: Any = missing.upper
    for each in known:
        if not each.null and (end is None or (each.upper is not None and each.upper <= end)):
            begins.setdefault(each.lower, each)
    if missing.kind == "file":
        return [missing]
    parts: list[KeyRange] = []
    reached = missing.lower
    while not parts or reached != end:
        each = begins.get(reached) or replace(missing, lower=reached)
        parts.append(each)
        reached = each.upper
    return parts


def _place(key_range: KeyRange) -> tuple[Any, ...]:
    lower = key_range.lower
    first, _ = key_range.rows or (0, None)
    return key_range.null, lower is not None, 0 if lower is None else lower, first


LARGEST = {3: 255, 5: 2**15 - 1, 10: 2**31 - 1, 19: 2**63 - 1, 20: 2**64 - 1}
"""The largest integer bound by decimal digits: its literal has the type of the column."""

DEFAULT_DIGITS = 10
_EPOCH = dt.datetime(1, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def to_number(bound: Bound) -> int:
    """Return a bound as an integer: itself, days, microseconds since 0001-01-01, or 128 bits."""
    if isinstance(bound, int):
        return bound
    if isinstance(bound, uuid.UUID):
        return bound.int
    assert not isinstance(bound, str), "texts and names of files have no number"
    if isinstance(bound, dt.datetime):
        return (bound - _EPOCH) // _MICROSECOND
    return bound.toordinal()


def from_number(number: int, kind: KeyKind) -> Bound:
    """Return the bound of a number, the inverse of `to_number`."""
    if kind == "integer":
        return number
    if kind == "uuid":
        return uuid.UUID(int=number)
    if kind == "timestamp":
        return _EPOCH + number * _MICROSECOND
    return dt.date.fromordinal(number)


def largest_number(kind: KeyKind, digits: int) -> int:
    """The largest number of a bound."""
    if kind == "integer":
        return LARGEST.get(digits, 10**digits - 1)
    if kind == "uuid":
        return 2**128 - 1
    return to_number(dt.datetime.max if kind == "timestamp" else dt.date.max)


def to_bound(value: object, kind: KeyKind) -> Bound:
    """Convert a value from a server, a driver or a YAML file to a bound.

    Timestamps with a zone become naive UTC.

    Raises:
        InputError: the value is not a key of this kind.
    """
    try:
        if kind == "file":
            return str(value)
        if kind == "text":
            if isinstance(value, str):
                return value
            raise ValueError
        if kind == "integer":
            return _integer(value)
        if kind == "uuid":
            return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
        if kind == "timestamp":
            return _naive(value)
        if isinstance(value, dt.datetime):
            value = value.date()
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)[:10])
    except (ValueError, OverflowError):  # in UTC, the first day may be before the first year
        raise InputError(f"{value!r} should be a key of kind {kind}") from None


def _integer(value: object) -> int:
    if isinstance(value, decimal.Decimal) and value.is_finite() and value == int(value):
        return int(value)
    return int(str(value))


def _naive(value: object) -> dt.datetime:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
