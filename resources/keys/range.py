"""A half-open interval of a key column, and its readable partition key."""

from __future__ import annotations

import datetime as dt
import re
import string
import uuid
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from tableferry.resources.errors import InputError
from tableferry.resources.keys import text as texts

KeyKind = Literal["integer", "date", "timestamp", "uuid", "text", "file"]
"""`text`: in the order of UTF-8 bytes, see `keys.text`. `file`: a range is one file of a folder, or
a stretch of its rows, and its key the file's name."""
Bound = int | dt.date | dt.datetime | uuid.UUID | str

NULL_NAME = "null"
"""Partition key of the rows whose key is NULL; it sorts after every number."""

PADDED = 10
"""Digits to which integers are padded at most: a 32-bit key's. Longer ones have a mark in front."""

WIDTHS = (3, 5, 10, 19, 20)
"""Digits of the integer types."""

ROW = "_row"
"""The column that has the number of a row in its file, from 1, by which files are cut."""

_STRETCH = re.compile(r"#(\d{10,})\.\.(\d{10,})?$")
"""Behind the name of a file, the stretch of its rows."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f%]|\.\.\.")
"""What a file's name has percent-encoded in a partition key: Dagster keeps `...` to itself."""

LETTERS = string.ascii_lowercase[::-1] + string.ascii_uppercase[::-1]
"""By digits, the letter in the mark of a negative number: those of longer ones come earlier."""

_MARK = re.compile(r"(e\d\d|-([a-zA-Z]\d+)?):")


@dataclass(frozen=True)
class KeyRange:
    """The rows with `lower <= key < upper`; a missing bound is open; `null` means `key IS NULL`.

    Of the kind `file`, the rows whose key is `lower`, and whose number is in `rows`, if there is.

    Timestamps are naive and mean UTC. `digits` is the decimal digits of the largest integer that
    the column's type holds.
    """

    kind: KeyKind
    lower: Bound | None = None
    upper: Bound | None = None
    null: bool = False
    digits: int = PADDED
    rows: tuple[int, int | None] | None = None
    """Of a file that is cut, the first `ROW`, and the one behind the last; the last stretch of a
    file is open."""

    @property
    def name(self) -> str:
        """The partition key; those of one table sort as text in key order.

        Integers are padded to ten digits: `..0000000001`, `0000000001..0000250001`. What text
        would put elsewhere has a mark up to a colon, which only keeps the order: the power of ten
        of longer numbers, as in `e12:1700000000000..1700086400000`, and the nines' complement of
        negative ones, after a letter that comes earlier the more digits there are, as in
        `-w499:-500..-250`. Texts are as in `AB .. AC`, see `keys.text.name`, and others as ISO
        8601 and RFC 4122 write them: `2024-01-01..`. A file's is its own name, behind which the
        rows of a stretch stand: `#0000000001..0005000001`.
        """
        if self.null:
            return NULL_NAME
        if self.kind == "file":
            return self._file_name()
        if self.kind == "text":
            return texts.name(_text(self.lower), _text(self.upper))
        if self.kind == "integer":
            return self._integer_name()
        return f"{_text(self.lower)}..{_text(self.upper)}"

    @classmethod
    def parse(cls, name: str, kind: KeyKind, digits: int = PADDED) -> KeyRange:
        """The range that has this name.

        Raises:
            InputError: the text is not the name of a range of this kind.
        """
        if name == NULL_NAME:
            return cls(kind, null=True, digits=digits)
        if kind == "file":
            stretch = _STRETCH.search(name)
            if stretch is None:
                return cls(kind, unquote(name))
            first, past = stretch.groups()
            rows = (int(first), int(past) if past else None)
            return cls(kind, unquote(name[: stretch.start()]), rows=rows)
        try:
            if kind == "text":
                found = cls(kind, *texts.bounds(name), digits=digits)
                if found.name != name:
                    raise ValueError(f"that would be {found.name}")
                return found
            if kind != "integer":
                lower, upper = _split(name)
                return cls(kind, _bound(lower, kind), _bound(upper, kind), digits=digits)
            # the column may have been widened since the range was named
            for width in (digits, *WIDTHS):
                found = cls._marked(name, width)
                if found.name == name:
                    return found
            raise ValueError(f"that would be {cls._marked(name, digits).name}")
        except ValueError as error:
            raise InputError(f"{name!r} is not a key range of {kind} keys: {error}") from None

    def contains(self, key: Bound | None) -> bool:
        """Whether a key falls into this range."""
        if key is None or self.null:
            return key is None and self.null
        if self.kind == "file":
            return key == self.lower
        return (self.lower is None or self.lower <= key) and (  # type: ignore[operator]
            self.upper is None or key < self.upper  # type: ignore[operator]
        )

    def overlaps(self, other: KeyRange) -> bool:
        """Whether a row may be in both."""
        if self.null or other.null:
            return self.null and other.null
        if self.kind == "file":
            rows, others = self.rows or (1, None), other.rows or (1, None)
            return self.lower == other.lower and _meet(rows, others)
        return all(
            one.lower is None or two.upper is None or one.lower < two.upper  # type: ignore[operator]
            for one, two in ((self, other), (other, self))
        )

    @classmethod
    def _marked(cls, name: str, digits: int) -> KeyRange:
        mark = _MARK.match(name)
        lower, upper = _split(name[mark.end() :] if mark else name)
        return cls("integer", _bound(lower, "integer"), _bound(upper, "integer"), digits=digits)

    def _integer_name(self) -> str:
        width = min(self.digits, PADDED)
        lower, upper = (_number(bound) for bound in (self.lower, self.upper))
        mark = _mark(lower, upper, width)
        if mark:
            return f"{mark}:{_text(lower)}..{_text(upper)}"
        return "..".join("" if one is None else f"{one:0{width}d}" for one in (lower, upper))

    def _file_name(self) -> str:
        name = _ESCAPED.sub(_percent, str(self.lower))
        if self.rows is None:
            return _STRETCH.sub(lambda found: f"%23{found[0][1:]}", name)
        first, past = self.rows
        return f"{name}#{first:010d}..{'' if past is None else f'{past:010d}'}"


def _meet(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    (first, past), (start, end) = one, other
    return (end is None or first < end) and (past is None or start < past)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{ord(one):02X}" for one in found[0])


def _split(text: str) -> tuple[str, str]:
    lower, dots, upper = text.partition("..")
    if not dots:
        raise ValueError("no '..'")
    return lower, upper


def _mark(lower: int | None, upper: int | None, width: int) -> str:
    """What has to stand before the bounds, so that names sort in key order."""
    if lower is None:
        return "-" if upper is not None and upper < 0 else ""
    digits = len(str(abs(lower)))
    if lower < 0:
        return f"-{LETTERS[digits]}{10**digits - 1 + lower:0{digits}d}"
    return f"e{digits - 1:02d}" if digits > width else ""


def _number(bound: Bound | None) -> int | None:
    return None if bound is None else int(str(bound))


def _text(bound: Bound | None) -> str:
    if bound is None:
        return ""
    return bound.isoformat() if isinstance(bound, dt.date) else str(bound)


def _bound(text: str, kind: KeyKind) -> Bound | None:
    if not text:
        return None
    if kind == "integer":
        return int(text)
    if kind == "date":
        return dt.date.fromisoformat(text)
    if kind == "timestamp":
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            raise ValueError("timestamps in names are UTC, without an offset")
        return moment
    return uuid.UUID(text)
