"""Texts as keys, in the order of their UTF-8 bytes: where they can be cut, and what cuts are named.

The order of UTF-8 bytes is that of code points, which PostgreSQL has as the collation "C" and
ClickHouse by itself. A bound holds only what every server puts on the same side of it:

- no character from U+D800 on: SQL Server's nvarchar is ordered by UTF-16 code units, which put
  U+10000 and above below U+E000;
- none below a blank, and no blank at its end: in comparisons SQL Server, and everybody's char(n),
  fills the shorter text up with blanks.

Keys are bound by none of this: any text is above or below such a bound, whatever it holds.
https://learn.microsoft.com/sql/t-sql/language-elements/string-comparison-assignment
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

MOST_CHARACTERS = 200
"""Of a bound: the names of ranges are shown in tables, and stored with every event."""

LONGEST = MOST_CHARACTERS + 1
"""Characters of a key that say where it can be cut from its neighbours."""

_FIRST, _BEYOND = " ", "\ud800"

_ESCAPED = re.compile(r"[%\x7f-\xa0]|^ | (?=[ -.])|\.(?=\.)")
"""What has to be percent-encoded in a name: Dagster forbids `...`, ` ..` ends a bound, and a
no-break space would be read as a blank."""

_MARK = "./"
"""In front of a name whose first character would sort before the dots of the first range."""

_DOTS = re.compile(r"(?:\A| )\.\.(?: |\Z)")


def problem(bound: str) -> str | None:
    """Why a text cannot be a bound, to be put after it; None if it can."""
    if not bound:
        return "is empty, and no key is below it"
    if len(bound) > MOST_CHARACTERS:
        return f"has {len(bound)} characters; a bound has {MOST_CHARACTERS} at most"
    if bound.endswith(_FIRST):
        return "ends with a blank, which some systems do not look at; leave it out"
    odd = next((one for one in bound if not _FIRST <= one < _BEYOND), None)
    if odd is None:
        return None
    why = "is a control character" if odd < _FIRST else "is sorted differently by SQL Server"
    return f"holds U+{ord(odd):04X}, which {why}; keys may hold it, a bound ends before it"


def separator(low: str, high: str) -> str | None:
    """The shortest bound with `low` below it and `high` not; None if there is none.

    Args:
        low: a key.
        high: a greater one, of which the bound is a prefix.
    """
    differs = next(
        (at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low)
    )
    for length in range(differs + 1, min(len(high), MOST_CHARACTERS) + 1):
        if problem(high[:length]) is None:
            return high[:length]
    return None


def name(lower: str, upper: str) -> str:
    """The readable name of a range: `.. AB`, `AB .. AB-10`, `Z ..`; an open end is an empty text.

    Names sort as text in the order of their lower bounds, as the blank in front of the dots is
    less than all that goes on in another one; those with percent-encoded characters may not.
    """
    mark = _MARK if lower and lower[0] <= "." else ""
    parts = (_encoded(lower), "..", _encoded(upper))
    return mark + " ".join(part for part in parts if part)


def bounds(name: str) -> tuple[str | None, str | None]:
    """The inverse of `name`.

    Raises:
        ValueError: it is not the name of a range.
    """
    text = name.removeprefix(_MARK)
    found = _DOTS.search(text)
    if found is None:
        raise ValueError("no ' .. '")
    lower, upper = unquote(text[: found.start()]), unquote(text[found.end() :])
    for bound in (lower, upper):
        if bound and (why := problem(bound)):
            raise ValueError(f"{bound!r} {why}")
    return lower or None, upper or None


def _encoded(bound: str) -> str:
    return _ESCAPED.sub(lambda found: _percent(found[0]), bound)


def _percent(character: str) -> str:
    return quote(character, safe="") if character != "." else "%2E"
