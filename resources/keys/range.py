"""Key ranges: half-open intervals of a key column, and their partition keys."""

from __future__ import annotations

import datetime as dt
import functools
import re
import string
import uuid
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from tableferry.resources.errors import InputError
from tableferry.resources.keys import text as texts

KeyKind = Literal["integer", "date", "timestamp", "uuid", "text", "file"]
"""`text` is ordered by UTF-8 bytes, see `keys.text`. A `file` range is a file of a folder or a part
of its rows, and its key is the file's name."""
Bound = int | dt.date | dt.datetime | uuid.UUID | str

WHOLE_NAME = ".."
"""The partition key of a range without bounds: the only one of a table, beside that of NULL."""

NULL_NAME = "null"
"""The partition key of rows whose key is NULL; it sorts after every number."""

PADDED = 10
"""The digits of a 32-bit integer, to which numbers are padded; longer ones have a mark in front."""

WIDTHS = (3, 5, 10, 19, 20)
"""The decimal digits of the integer types."""

ROW = "_row"
"""The column with the number of a row in its file, from 1, by which files are cut."""

_ROWS = re.compile(r"#(\d{10,})\.\.(\d{10,})?$")
"""The rows of a range, after the name of its file."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f%]|\.\.\.")
"""What is percent-encoded in the name of a file; Dagster reserves `...`."""

LETTERS = string.ascii_lowercase[::-1] + string.ascii_uppercase[::-1]
"""The letter in the mark of a negative number, by its digits: longer numbers sort first."""

_MARK = re.compile(r"(e\d\d|-([a-zA-Z]\d+)?):")


@dataclass(frozen=True)
class KeyRange:
    """The rows with `lower <= key < upper`, or with `key IS NULL`; a bound of None is open.

    A `file` range has the rows whose key is `lower`, or the `rows` among them. Timestamps are naive
    and mean UTC. `digits` is the number of decimal digits of the column's largest integer.
    """

    kind: KeyKind
    lower: Bound | None = None
    upper: Bound | None = None
    null: bool = False
    digits: int = PADDED
    rows: tuple[int, int | None] | None = None
    """If a file is cut, the range's first `ROW` and the one after its last; None: to the end."""

    @property
    def name(self) -> str:
        """The partition key; the keys of a table sort as text in key order.

        Integers are padded to ten digits: `..0000000001`, `0000000001..0000250001`. Others begin
        with a mark that keeps the order, up to a colon: the power of ten of longer numbers, as in
        `e12:1700000000000..1700086400000`, and the nines' complement of negative numbers after a
        letter for their length, as in `-w499:-500..-250`. Texts look like `AB .. AC`, see
        `keys.text.name`; dates, timestamps and uuids are written by ISO 8601 and RFC 4122. A file
        has its own name, followed by the rows if it is cut: `#0000000001..0005000001`.
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
        """Read the name of a range.

        Raises:
            InputError: it does not name a range of this kind.
        """
        if name == NULL_NAME:
            return cls(kind, null=True, digits=digits)
        if kind == "file":
            match = _ROWS.search(name)
            if match is None:
                return cls(kind, unquote(name))
            first, end = match.groups()
            rows = (int(first), int(end) if end else None)
            return cls(kind, unquote(name[: match.start()]), rows=rows)
        try:
            # the column may have been widened since the range was named
            for width in (digits, *WIDTHS) if kind == "integer" else (digits,):
                key_range = cls(kind, *_bounds(name, kind), digits=width)
                if key_range.name == name:
                    return key_range._with_keys()
            raise ValueError(f"that would be {key_range.name}")
        except ValueError as error:
            raise InputError(f"{name!r} is not a key range of {kind} keys: {error}") from None

    def contains(self, key: Bound | None) -> bool:
        """Whether a row with this key belongs to the range; of a cut file, any of its rows."""
        if key is None or self.null:
            return key is None and self.null
        if self.kind == "file":
            return key == self.lower
        return (self.lower is None or self.lower <= key) and (  # type: ignore[operator]
            self.upper is None or key < self.upper  # type: ignore[operator]
        )

    def overlaps(self, other: KeyRange) -> bool:
        """Whether a row may belong to both ranges."""
        if self.null or other.null:
            return self.null and other.null
        spans: list[tuple[Any, Any]] = [(r.lower, r.upper) for r in (self, other)]
        if self.kind == "file":
            if self.lower != other.lower:
                return False
            spans = [r.rows or (1, None) for r in (self, other)]
        (lower, upper), (start, end) = spans
        return (lower is None or end is None or lower < end) and (
            start is None or upper is None or start < upper
        )

    def _with_keys(self) -> KeyRange:
        lower: Any = self.lower
        if None not in (lower, self.upper) and lower >= self.upper:
            raise ValueError("it ends where it begins, or before")
        return self

    def _integer_name(self) -> str:
        width = min(self.digits, PADDED)
        bounds = (self.lower, self.upper)
        lower, upper = (None if bound is None else int(str(bound)) for bound in bounds)
        if mark := _mark(lower, upper, width):
            return f"{mark}:{_text(lower)}..{_text(upper)}"
        return "..".join("" if bound is None else f"{bound:0{width}d}" for bound in (lower, upper))

    def _file_name(self) -> str:
        name = _ESCAPED.sub(_percent, str(self.lower))
        if self.rows is None:
            return _ROWS.sub(lambda match: f"%23{match[0][1:]}", name)
        first, end = self.rows
        return f"{name}#{first:010d}..{'' if end is None else f'{end:010d}'}"


@functools.lru_cache(maxsize=20_000)
def parse_range(name: str, kind: KeyKind, digits: int = PADDED) -> KeyRange | None:
    """Return `KeyRange.parse`; None if the name is invalid for the kind of keys."""
    try:
        return KeyRange.parse(name, kind, digits)
    except InputError:
        return None


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{ord(char):02X}" for char in match[0])


def _bounds(name: str, kind: KeyKind) -> tuple[Bound | None, Bound | None]:
    if kind == "text":
        return texts.bounds(name)
    mark = _MARK.match(name) if kind == "integer" else None
    lower, dots, upper = (name[mark.end() :] if mark else name).partition("..")
    if not dots:
        raise ValueError("no '..'")
    return _bound(lower, kind), _bound(upper, kind)


def _mark(lower: int | None, upper: int | None, width: int) -> str:
    """The mark in front of the bounds that makes names sort in key order."""
    if lower is None:
        return "-" if upper is not None and upper < 0 else ""
    digits = len(str(abs(lower)))
    if lower < 0:
        return f"-{LETTERS[digits]}{10**digits - 1 + lower:0{digits}d}"
    return f"e{digits - 1:02d}" if digits > width else ""


def _text(bound: Bound | None) -> str:
    if bound is None:
        return ""
    return bound.isoformat() if isinstance(bound, dt.date) else str(bound)


def _bound(text: str, kind: KeyKind) -> Bound | None:
    if not text:
        return None
    try:
        if kind == "integer":
            return int(text)
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind == "uuid":
            return uuid.UUID(text)
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is none") from None
    if moment.tzinfo is not None:
        raise ValueError("timestamps in names are UTC, without an offset")
    return moment
