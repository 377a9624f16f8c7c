"""Kinds of values that columns hold, in terms that all systems share."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

EPOCH = dt.date(1970, 1, 1)
MICROSECONDS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class Boolean:
    """True or false."""


@dataclass(frozen=True)
class Integer:
    """Whole numbers from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class Decimal:
    """`precision` decimal digits, `scale` of them after the point; None if not declared.

    `nan`: NaN is a value, too.
    """

    precision: int | None
    scale: int | None
    nan: bool = False


@dataclass(frozen=True)
class Float:
    """IEEE 754 binary numbers; `finite`: without NaN and the infinities."""

    bits: Literal[32, 64]
    finite: bool = False


@dataclass(frozen=True)
class Text:
    """Unicode text of at most `units` UTF-16 code units, as SQL Server counts.

    `characters`: its maximum number of characters; those beyond U+FFFF are two units each.
    `replaced`: the driver may have replaced half a surrogate pair by U+FFFD.
    `padded`: shorter text is padded with blanks, so that trailing ones carry no meaning.
    `unchecked`: the system takes any bytes for text.
    """

    units: int | None = None
    characters: int | None = None
    replaced: bool = False
    padded: bool = False
    unchecked: bool = False


@dataclass(frozen=True)
class Binary:
    """At most `length` bytes, or exactly `length` if `fixed`."""

    length: int | None = None
    fixed: bool = False


@dataclass(frozen=True)
class Date:
    """Days since 1970-01-01 (proleptic Gregorian), from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class Time:
    """Time of day with `digits` decimals of a second; `midnight`: 24:00:00 is a value, too."""

    digits: int
    midnight: bool = False


@dataclass(frozen=True)
class Timestamp:
    """Microseconds since 1970-01-01 00:00:00, from `low` to `high`, with `digits` decimals.

    `zone`: `none` is a wall clock, `utc` an instant, `offset` an instant with its own UTC offset.
    """

    digits: int
    low: int
    high: int
    zone: Literal["none", "utc", "offset"] = "none"


@dataclass(frozen=True)
class Uuid:
    """128 bits."""


@dataclass(frozen=True)
class Array:
    """A list of `item`; any element may be NULL."""

    item: Kind


Kind = Boolean | Integer | Decimal | Float | Text | Binary | Date | Time | Timestamp | Uuid | Array


def days(text: str) -> int:
    """Days from 1970-01-01 to an ISO date."""
    return (dt.date.fromisoformat(text) - EPOCH).days


def written_day(number: int) -> str:
    """Write a day since 1970-01-01, of any year."""
    year, month_and_day = civil(number)
    return f"{year:04d}-{month_and_day}" if year > 0 else f"{1 - year:04d}-{month_and_day} BC"


def civil(days: int) -> tuple[int, str]:
    """The proleptic Gregorian year of a day since 1970-01-01, and its month and day as `mm-dd`."""
    # the calendar repeats every 400 years
    eras, day = divmod(days + EPOCH.toordinal() - 1, 146_097)
    date = dt.date.fromordinal(day + 1)
    return date.year + 400 * eras, f"{date:%m-%d}"


def iso(number: int) -> str:
    """Write a number of microseconds since 1970-01-01 as an ISO timestamp."""
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number)
    return moment.isoformat(sep=" ", timespec="microseconds")


def microseconds(first_day: int, last_day: int) -> tuple[int, int]:
    """The first and the last microsecond of some days."""
    return first_day * MICROSECONDS_PER_DAY, (last_day + 1) * MICROSECONDS_PER_DAY - 1


def signed(bits: int) -> Integer:
    """The integers of a two's complement type."""
    return Integer(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unsigned(bits: int) -> Integer:
    """The integers of an unsigned type."""
    return Integer(0, 2**bits - 1)
