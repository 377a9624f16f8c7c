"""Text keys in the order of their UTF-8 bytes: possible bounds, and the names of ranges.

The order of UTF-8 bytes is that of code points, which PostgreSQL's collation "C" and ClickHouse
use. A bound is restricted to texts that every server orders alike:

- no character from U+D800 on, as SQL Server orders nvarchar by UTF-16 code units, in which U+10000
  and above come before U+E000;
- no character below a blank, and no trailing blank, as SQL Server, and char(n) everywhere, pads the
  shorter text with blanks for a comparison.

Keys are not restricted: every server puts any text on the same side of such a bound.
https://learn.microsoft.com/sql/t-sql/language-elements/string-comparison-assignment
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

MOST_CHARACTERS = 200
"""The maximum length of a bound: names of ranges are shown in tables and stored with events."""

LONGEST = MOST_CHARACTERS + 1
"""The characters of a key that `separator` needs."""

_FIRST, _BEYOND = " ", "\ud800"

_ESCAPED = re.compile(r"[%\x7f-\xa0]|^ | (?=[ -.])|\.(?=\.)")
"""What is percent-encoded in a name: Dagster forbids `...`, ` ..` ends a bound, and a
no-break space looks like a blank."""

_MARK = "./"
"""In front of a name whose first character sorts before the dots of the first range."""

_DOTS = re.compile(r"(?:\A| )\.\.(?: |\Z)")


def problem(bound: str) -> str | None:
    """Say why a text cannot be a bound, as a predicate of it; return None if it can."""
    if not bound:
        return "is empty, and no key is below it"
    if len(bound) > MOST_CHARACTERS:
        return f"has {len(bound)} characters; a bound has {MOST_CHARACTERS} at most"
    if bound.endswith(_FIRST):
        return "ends with a blank, which some systems ignore; leave it out"
    char = next((char for char in bound if not _FIRST <= char < _BEYOND), None)
    if char is None:
        return None
    why = "is a control character" if char < _FIRST else "is sorted differently by SQL Server"
    return f"holds U+{ord(char):04X}, which {why}; keys may hold it, a bound ends before it"


def separator(low: str, high: str) -> str | None:
    """Return the shortest prefix of `high` that is a bound above `low`; None if there is none."""
    pairs = zip(low, high, strict=False)
    common = next((at for at, (a, b) in enumerate(pairs) if a != b), len(low))
    for length in range(common + 1, min(len(high), MOST_CHARACTERS) + 1):
        if problem(high[:length]) is None:
            return high[:length]
    return None


def name(lower: str, upper: str) -> str:
    """Name a range: `.. AB`, `AB .. AB-10`, `Z ..`; an open end is an empty text.

    Names sort as text in the order of their lower bounds, because the blank before the dots sorts
    before any longer bound; names with percent-encoded characters may not.
    """
    mark = _MARK if lower and lower[0] <= "." else ""
    parts = (_encoded(lower), "..", _encoded(upper))
    return mark + " ".join(part for part in parts if part)


def bounds(name: str) -> tuple[str | None, str | None]:
    """Return the bounds in a name.

    Raises:
        ValueError: it is not the name of a range.
    """
    text = name.removeprefix(_MARK)
    dots = _DOTS.search(text)
    if dots is None:
        raise ValueError("no ' .. '")
    lower, upper = unquote(text[: dots.start()]), unquote(text[dots.end() :])
    for bound in (lower, upper):
        if bound and (why := problem(bound)):
            raise ValueError(f"{bound!r} {why}")
    return lower or None, upper or None


def _encoded(bound: str) -> str:
    return _ESCAPED.sub(lambda m: "%2E" if m[0] == "." else quote(m[0], safe=""), bound)
