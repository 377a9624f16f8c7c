"""Guesses why values differ, as a person would who sees both."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tableferry.checks.verdict import Difference
from tableferry.resources.contract.fields import Field

EXAMPLES = 3
"""Maximum number of rows that are named for a cause."""

UNHELD = "NULL, or more digits than a double has"
"""What is shown of such a number."""
UNKNOWN = "another value"
_MOST_ZONE_SECONDS = 14 * 3600
_EXACT = decimal.Context(prec=400)


@dataclass(frozen=True)
class Cause:
    """What likely made some values of a column differ."""

    says: str
    """E.g. `cut to milliseconds`: what became of the first table's values in the second."""
    values: int
    """The number of values that show it, among those that were examined."""
    examples: tuple[Difference, ...]


def likely_causes(
    differences: Iterable[Difference], fields: Mapping[str, Field]
) -> dict[str, tuple[Cause, ...]]:
    """Guess the causes of differing values by column, the most frequent first.

    Args:
        differences: values that differ; rows that only one side has are passed over.
        fields: what is compared, by column.
    """
    by_column: dict[str, list[Difference]] = {}
    for difference in differences:
        if difference.column is not None:
            by_column.setdefault(difference.column, []).append(difference)
    return {column: _causes(fields[column], each) for column, each in by_column.items()}


def _causes(field: Field, differences: Sequence[Difference]) -> tuple[Cause, ...]:
    """Guess the causes of a column's differing values."""
    grouped: dict[str, list[Difference]] = {}
    for difference in differences:
        says = cause_of(field, difference.source, difference.target)
        grouped.setdefault(says, []).append(difference)
    numeric = field.kind in _NUMERIC
    reduced = [says for says in grouped if numeric and _REDUCED.match(says)]
    if len(reduced) > 1:
        # 1.5 alone may seem to be rounded to one digit, beside 1.57 it is one of two
        values = [
            each for each in differences if cause_of(field, each.source, each.target) in reduced
        ]
        common = _common(field, [(str(each.source), str(each.target)) for each in values])
        if common is not None:
            grouped = {says: each for says, each in grouped.items() if says not in reduced}
            grouped[common] = values
    return tuple(
        Cause(says, len(shown), tuple(shown[:EXAMPLES]))
        for says, shown in sorted(grouped.items(), key=lambda item: -len(item[1]))
    )


_REDUCED = re.compile("(cut|rounded) to ")
_NUMERIC = ("integer", "decimal", "float", "time", "timestamp")


def _common(field: Field, pairs: Sequence[tuple[str, str]]) -> str | None:
    """Say to how many digits all values were cut or rounded; None if there is no such number."""
    moments = field.kind in ("time", "timestamp")
    if moments and all(_to_minutes(_ticks(first)) == _ticks(second) for first, second in pairs):
        return TO_MINUTES
    read = (lambda text: decimal.Decimal(_ticks(text)).scaleb(-7)) if moments else decimal.Decimal
    numbers = [(read(first), read(second)) for first, second in pairs]
    least = max(_places(second) for _, second in numbers)
    tried = sorted(each for each in _UNITS if each >= least) if moments else [least]
    for digits in tried:
        for verb, how in _REDUCTIONS:
            if all(_reduced(first, digits, how) == second for first, second in numbers):
                return f"{verb} to {_second(digits) if moments else _decimals(digits)}"
    return None


_REDUCTIONS = (
    ("cut", decimal.ROUND_DOWN),
    ("cut", decimal.ROUND_FLOOR),
    ("rounded", decimal.ROUND_HALF_UP),
    ("rounded", decimal.ROUND_HALF_EVEN),
)


def _reduced(number: decimal.Decimal, digits: int, how: str) -> decimal.Decimal:
    return number.quantize(decimal.Decimal(1).scaleb(-digits), how, _EXACT)


def cause_of(field: Field, first: str | None, second: str | None) -> str:
    """Say what likely became of one value, as both sides show it.

    Args:
        field: what is compared of the column.
        first: the first table's value; None is NULL.
        second: the second table's.
    """
    if UNHELD in (first, second):
        return "a number that no double holds, or NULL"
    if first is None or second is None:
        return _with_null(first, second)
    if "" in (first, second):
        return "'' instead of a value" if second == "" else "a value instead of ''"
    guess = _GUESSES.get(field.kind, _text)
    try:
        return guess(first, second) or UNKNOWN
    except (ValueError, ArithmeticError):
        return _text(first, second) or UNKNOWN


def _with_null(first: str | None, second: str | None) -> str:
    if first is None:
        return "'' instead of NULL" if second == "" else "a value instead of NULL"
    return "NULL instead of ''" if first == "" else "NULL instead of a value"


def _number(first: str, second: str) -> str | None:
    a, b = decimal.Decimal(first), decimal.Decimal(second)
    if not (a.is_finite() and b.is_finite()):
        return None
    if a == -b:
        return "the sign"
    if float(a) == _single(a) == _single(b) != float(b):
        return "passed through a 32-bit float"
    digits = max(0, -int(b.normalize(_EXACT).as_tuple().exponent))
    if _places(a) > digits:
        # most tools round numbers
        for verb, how in reversed(_REDUCTIONS):
            if _reduced(a, digits, how) == b:
                return f"{verb} to {_decimals(digits)}"
    if float(a) == float(b):
        return "passed through a double"
    if _single(a) == _single(b):
        return "passed through a 32-bit float"
    if a and b:
        factor = (b / a).normalize()
        if factor.as_tuple().digits == (1,):
            return f"multiplied by {factor:f}"
    return None


def _places(number: decimal.Decimal) -> int:
    return max(0, -int(number.normalize(_EXACT).as_tuple().exponent))


def _decimals(digits: int) -> str:
    return "whole numbers" if digits == 0 else f"{digits} decimal{'s' if digits > 1 else ''}"


def _single(number: decimal.Decimal) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", float(number)))[0])
    except OverflowError:
        return math.nan


_FRACTION = re.compile(r"(?P<whole>.*?)(?:\.(?P<part>\d+))?")
_UNITS = {7: "100 ns", 6: "microseconds", 3: "milliseconds", 0: "seconds"}
_TICK = 10_000_000 // 300
_MINUTE = 60 * 10_000_000
TO_MINUTES = "rounded to minutes"


def _second(digits: int) -> str:
    return _UNITS.get(digits, f"{_decimals(digits)} of a second")


def _moment(first: str, second: str) -> str | None:
    if ":" in first and ":" in second and (" " in first) != (" " in second):
        return "a date added" if " " in second else "the date lost"
    a, b = _ticks(first), _ticks(second)
    for digits in range(7):
        unit = 10 ** (7 - digits)
        if b % unit or not a % unit:
            continue
        if a - a % unit == b:
            return f"cut to {_second(digits)}"
        if (a + unit // 2) // unit * unit == b:
            return f"rounded to {_second(digits)}"
    for unit, name in ((60, "minutes"), (3600, "hours"), (86_400, "days")):
        if b % (unit * 10**7) == 0 and a - a % (unit * 10**7) == b:
            return f"cut to {name}"
    if a != b == _to_minutes(a):
        return TO_MINUTES
    if 0 < abs(a - b) <= _TICK:
        return "rounded to 1/300 of a second"
    shift = b - a
    seconds, rest = divmod(abs(shift), 10**7)
    if not rest and seconds % 900 == 0 and seconds <= _MOST_ZONE_SECONDS:
        hours = decimal.Decimal(seconds) / 3600
        return f"shifted by {'-' if shift < 0 else '+'}{hours.normalize():f} hours (time zone)"
    if not rest and seconds % 86_400 == 0:
        return f"shifted by {seconds // 86_400 * (1 if shift > 0 else -1):+d} days"
    return None


def _to_minutes(ticks: int) -> int:
    """Round a moment as a `smalldatetime` does."""
    return (ticks + _MINUTE // 2) // _MINUTE * _MINUTE


def _ticks(text: str) -> int:
    """A time, or a date and a time, as a number of 100 ns."""
    match = _FRACTION.fullmatch(text)
    assert match is not None
    whole, part = match["whole"], (match["part"] or "").ljust(7, "0")
    if " " in whole:
        moment = dt.datetime.fromisoformat(whole)
        seconds = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
    else:
        hours, minutes, rest = map(int, whole.split(":"))
        seconds = (hours * 60 + minutes) * 60 + rest
    return seconds * 10**7 + int(part)


def _date(first: str, second: str) -> str | None:
    a, b = (dt.date.fromisoformat(text) for text in (first, second))
    days = (b - a).days
    if a.month == b.day and a.day == b.month and a.year == b.year:
        return "day and month exchanged"
    if abs(days) == 1:
        return f"shifted by {days:+d} day (time zone)"
    return f"shifted by {days:+d} days"


def _text(first: str, second: str) -> str | None:
    tests: Mapping[str, Callable[[str, str], bool]] = {
        "trailing blanks": lambda a, b: a.rstrip(" ") == b.rstrip(" "),
        "blanks around it": lambda a, b: a.strip() == b.strip(),
        "line ends": lambda a, b: _lines(a) == _lines(b),
        "upper and lower case": lambda a, b: a.casefold() == b.casefold(),
        "Unicode normalization": lambda a, b: _normal(a) == _normal(b),
        "encoding: UTF-8 read as another code page": _misread,
        "encoding: characters replaced": _replaced,
        "JSON written otherwise": _same_json,
    }
    for says, holds in tests.items():
        if holds(first, second):
            return says
    if second and first.startswith(second):
        return f"cut to {len(second)} characters"
    if first and second.startswith(first):
        return "something added at the end"
    return None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _misread(first: str, second: str) -> bool:
    pairs = ((first, second), (second, first))
    return any(_read_as(a, page) == b for a, b in pairs for page in ("cp1252", "latin-1"))


def _read_as(text: str, page: str) -> str | None:
    try:
        return text.encode().decode(page)
    except UnicodeError:
        return None


def _replaced(first: str, second: str) -> bool:
    if first.isascii() or not re.search("[?\ufffd]", second):
        return False
    pattern = re.escape(second).replace(r"\?", "(?:[^\\x00-\\x7f]+|\\?)")
    return re.fullmatch(pattern.replace("\ufffd", ".+?"), first, re.DOTALL) is not None


def _same_json(first: str, second: str) -> bool:
    if first[:1] not in "{[" or second[:1] not in "{[":
        return False
    try:
        return bool(json.loads(first) == json.loads(second))
    except ValueError:
        return False


def _uuid(first: str, second: str) -> str | None:
    a, b = (text.replace("-", "") for text in (first, second))
    swapped = b[6:8] + b[4:6] + b[2:4] + b[:2] + b[10:12] + b[8:10] + b[14:16] + b[12:14] + b[16:]
    return "byte order of the first three parts" if a == swapped else None


def _bytes(first: str, second: str) -> str | None:
    a, b = (re.sub("(00)+$", "", text) if len(text) % 2 == 0 else text for text in (first, second))
    if a == b:
        return "trailing zero bytes"
    if second and first.startswith(second):
        return f"cut to {len(second) // 2} bytes"
    return None


_GUESSES: Mapping[str, Callable[[str, str], str | None]] = {
    "integer": _number,
    "decimal": _number,
    "float": _number,
    "date": _date,
    "time": _moment,
    "timestamp": _moment,
    "uuid": _uuid,
    "bytes": _bytes,
}
