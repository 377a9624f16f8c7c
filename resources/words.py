"""Pieces of text that messages have in common."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Sequence
from difflib import get_close_matches

_UNITS = ("bytes", "kB", "MB", "GB", "TB")

MOST_NAMES = 5
"""How many names a message lists at most."""


def counted(number: int, noun: str) -> str:
    """E.g. `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """List names, the first few of many."""
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def one_line(text: str) -> str:
    """Return a text with its unprintable characters escaped, line breaks among them."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def those_there(wanted: str, names: Collection[str], noun: str, lister: str = "") -> str:
    """Say which of the existing names may have been meant; all of them if they are few.

    Args:
        wanted: the unknown name.
        names: the existing ones.
        noun: what they name, in the singular.
        lister: the command that lists them, if the similar ones are enough to say.
    """
    by_lower = {name.lower(): name for name in names}
    lower = wanted.lower()
    close = get_close_matches(lower, by_lower, n=MOST_NAMES)
    # a part of a name is no close match of a much longer one
    close += [name for name in by_lower if lower and lower in name and name not in close]
    if len(names) <= MOST_NAMES and not (close and lister):
        return f"there are {', '.join(names) or 'none'}"
    if not close:
        said = f"there are {counted(len(names), noun)}, and none has a similar name"
        return f"{said}; {lister} lists them" if lister else said
    said = f"did you mean {' or '.join(by_lower[name] for name in close[:MOST_NAMES])}?"
    return f"{said} {lister} lists all {len(names):,}" if lister else said


def iso_time(timestamp: float | None) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC."""
    if timestamp is None:
        return None
    return dt.datetime.fromtimestamp(timestamp, dt.UTC).isoformat(timespec="seconds")


def duration(seconds: float) -> str:
    """E.g. `0.4 s`, `45 s`, `12 min`, `3.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """Return bytes in decimal units, e.g. `850 bytes`, `1.2 kB`, `410 MB`."""
    if count < 1000:
        return counted(round(count), "byte")
    power = min(4, int(math.log10(count)) // 3)
    value = count / 1000**power
    return f"{value:.1f} {_UNITS[power]}" if value < 10 else f"{value:,.0f} {_UNITS[power]}"
