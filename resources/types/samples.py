"""Values at the edges of a column's type, as SQL constants, and what must arrive of them.

They are what a wire is probed with. Only kinds that a server might get wrong unseen are here; of a
type that is not, nothing is sampled.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.declared import read
from tableferry.resources.types.kinds import (
    EPOCH,
    MICROSECONDS_PER_DAY,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Kind,
    Text,
    Time,
    Timestamp,
    Uuid,
)

REFUSED = "a refusal"
"""In the place of what arrives: nothing may."""

SECOND = 1_000_000
UUIDS = ("00112233-4455-6677-8899-aabbccddeeff", "ffffffff-ffff-ffff-ffff-ffffffffffff")
FLOATS = (0.1, -1.5, 123456.789, 1e22, 1.7976931348623157e308, 2.2250738585072014e-308)
TEXTS = {
    "an empty text": "",
    "a blank": " ",
    "trailing blanks": "a  ",
    "a lone backslash": "\\",
    "a backslash before a letter": "\\n",
    "the mark of NULL": "\\N",
    "a tab": "a\tb",
    "a line feed": "a\nb",
    "a carriage return": "a\r\nb\r",
    "quotes": "'\"`",
    "percent and question marks": "%s ? {} $1",
}
WIDE_TEXTS = {
    "letters of two bytes": "Ж\u00e9ß",
    "letters of three bytes": "日本",
    "a character beyond U+FFFF": "\U0001f600",
    "a byte order mark": "\ufeffa",
    "a combining character": "e\u0301",
}


@dataclass(frozen=True)
class Sample:
    """One value of a column."""

    what: str
    """For messages."""
    literal: str
    """A constant in the source's SQL, to be cast to the column's type."""
    expected: str
    """What must arrive, as a person would write it; or REFUSED."""
    optional: bool = False
    """The literal is NULL where the server cannot hold the value; then nothing can be lost."""


@dataclass(frozen=True)
class ConstantStyle:
    """How a system writes constants, and what is odd about some of its types."""

    text: Callable[[str], str]
    """A text constant, without any control character in the SQL."""
    booleans: tuple[str, str]
    """Constants of false and true."""
    utc: str
    """What a timestamp in UTC ends with."""
    texts: Mapping[str, bool]
    """The text types that are sampled, and whether they hold every character; others have rules of
    their own for what they hold, or a code page that we do not know."""
    free_notation: bool = False
    """Text made of anything but texts and times is as the server likes."""
    largest: Mapping[str, str] = field(default_factory=dict)
    """Of decimal types that end before their digits do."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Of timestamp types: microseconds between moments that they tell apart, where the digits do
    not say so."""
    fractions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of such types: fractions that arrive as they are, all the same."""
    seventh: str = "{}"
    """Of a value of seven decimals: NULL on a server that holds six."""


def samples(style: ConstantStyle, declared: str, conversion: Conversion) -> list[Sample]:
    """Edge values of a source column of a declared type, for a target as its conversion has it.

    Args:
        style: the source's.
        declared: the column's type.
        conversion: where it goes; its slot says which values have to be refused.

    Returns:
        Those that arrive, and those that must not; empty for a kind of which nothing is sampled.
    """
    kind, room = conversion.source.kind, conversion.slot.kind
    as_text = isinstance(room, Text)
    if as_text:
        if isinstance(kind, Float) or (style.free_notation and not isinstance(kind, Text | Time)):
            return []
        room = kind
    match kind:
        case Boolean():
            return [
                Sample(name, literal, digit)
                for name, literal, digit in zip(
                    ("false", "true"), style.booleans, ("0", "1"), strict=True
                )
            ]
        case Integer():
            return list(_integers(kind, room))
        case Decimal():
            return list(_decimals(kind, room, style.largest.get(declared)))
        case Float():
            return list(_floats(kind))
        case Text():
            return list(_texts(style, declared, kind))
        case Date():
            return list(_dates(kind, room))
        case Time():
            return list(_times(style, declared, kind, room))
        case Timestamp():
            return list(_timestamps(style, declared, kind, room))
        case Uuid():
            return [Sample(one, f"'{one}'", one.upper() if as_text else one) for one in UUIDS]
    return []


def meaning(kind: Kind, text: str) -> object:
    """What a value's text says, whatever the notation: equal for equal values.

    Where the text itself is what arrives, in a column of a text type, it is not to be asked.

    Raises:
        ValueError: it says nothing of that kind.
    """
    match kind:
        case Boolean():
            return {"t": "1", "true": "1", "f": "0", "false": "0"}.get(text.lower(), text)
        case Integer() | Decimal():
            return Fraction(text)
        case Float(bits):
            return struct.pack("<d" if bits == 64 else "<f", float(text))
        case Timestamp() | Time():
            utc = text.removesuffix("+00:00").removesuffix("+00").rstrip()
            head, dot, fraction = utc.replace("T", " ").partition(".")
            digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
            rest = fraction[len(digits) :]
            digits = digits.rstrip("0")
            return f"{head}{dot if digits else ''}{digits}{rest}"
        case Uuid():
            return text.lower()
    return text


def _integers(kind: Integer, room: Kind) -> Iterator[Sample]:
    values = {kind.low, kind.high, 0, -1}
    if isinstance(room, Integer):
        low, high = room.low, room.high
        values |= {low - 1, low, high, high + 1}
    elif isinstance(room, Decimal):
        high = 10 ** ((room.precision or 0) - (room.scale or 0)) - 1
        low = -high
        values |= {low - 1, low, high, high + 1}
    else:
        low, high = kind.low, kind.high
    for value in sorted(values):
        if kind.low <= value <= kind.high:
            good = low <= value <= high
            yield Sample(f"{value}", f"'{value}'", str(value) if good else REFUSED)


def _decimals(kind: Decimal, room: Kind, limit: str | None) -> Iterator[Sample]:
    if kind.precision is None or not isinstance(room, Decimal) or room.precision is None:
        return
    scale, room_scale = kind.scale or 0, room.scale or 0
    whole = min(kind.precision - scale, room.precision - room_scale)
    digits = min(scale, room_scale)
    most = "9" * whole or "0"
    if digits:
        most += "." + "9" * digits
    most = limit or most
    least = "0." + "0" * (digits - 1) + "1" if digits else "1"
    for value in dict.fromkeys(("0", most, "-" + most, least, "-" + least)):
        whole_part, _, fraction = value.partition(".")
        full = f"{whole_part}.{fraction.ljust(scale, '0')}" if scale else whole_part
        yield Sample(full, f"'{full}'", full)
    if room.precision - room_scale < kind.precision - scale:
        value = "1" + "0" * whole
        yield Sample(value, f"'{value}'", REFUSED)


def _floats(kind: Float) -> Iterator[Sample]:
    narrow = [
        struct.unpack("<f", struct.pack("<f", value))[0]
        for value in FLOATS
        if 1e-37 < abs(value) < 1e38
    ]
    for value in narrow if kind.bits == 32 else FLOATS:
        yield Sample(repr(value), f"'{value!r}'", repr(value))


def _texts(style: ConstantStyle, declared: str, kind: Text) -> Iterator[Sample]:
    name, room = read(declared).name, kind.characters or kind.units
    if name not in style.texts:
        return
    fixed = kind.padded
    for what, value in (TEXTS | (WIDE_TEXTS if style.texts[name] else {})).items():
        units = len(value.encode("utf-16-le")) // 2
        if room is None or units <= room:
            arrives = value.ljust(room) if fixed and room else value
            if fixed and units < len(value.encode()):
                # padded in units by one server and in characters by the other
                continue
            yield Sample(what, style.text(value), arrives)
    if room and room > 1:
        yield Sample("nothing but backslashes", style.text("\\" * room), "\\" * room)


def _dates(kind: Date, room: Kind) -> Iterator[Sample]:
    low, high = (room.low, room.high) if isinstance(room, Date) else (kind.low, kind.high)
    # ISO has years of four digits only
    first, last = ((day - EPOCH).days for day in (dt.date.min, dt.date.max))
    for value in sorted({kind.low, kind.high, first, last, low - 1, low, high, high + 1, 0}):
        if max(kind.low, first) <= value <= min(kind.high, last):
            text = (EPOCH + dt.timedelta(days=value)).isoformat()
            yield Sample(text, f"'{text}'", text if low <= value <= high else REFUSED)


def _times(style: ConstantStyle, declared: str, kind: Time, room: Kind) -> Iterator[Sample]:
    texts = ("00:00:00.000000", "12:34:56.100000", "12:34:56.123456", "23:59:59.999999")
    for cut in dict.fromkeys(_cut(text, kind.digits) for text in texts):
        yield Sample(cut, f"'{cut}'", cut)
    if kind.digits == 7 and not (isinstance(room, Time) and room.digits < 7):
        yield _seventh(style, declared, "12:34:56.1234567", "12:34:56.1234567")


def _timestamps(
    style: ConstantStyle, declared: str, kind: Timestamp, room: Kind
) -> Iterator[Sample]:
    type_ = read(declared).name
    known = room if isinstance(room, Timestamp) else kind
    digits = min(kind.digits, known.digits, 6)
    unit = style.steps.get(type_, 10 ** (6 - digits))
    first = (dt.date.min - EPOCH).days * MICROSECONDS_PER_DAY
    last = ((dt.date.max - EPOCH).days + 1) * MICROSECONDS_PER_DAY - 1
    low, high = max(kind.low, first), min(kind.high, last)
    values = {0, 1_000_000_000 * SECOND}
    for end in (low, known.low):
        values |= {-(-end // unit) * unit, -(-end // unit) * unit - unit}
    for end in (high, known.high):
        values |= {end // unit * unit, end // unit * unit + unit}
    for value in sorted(values):
        if low <= value <= high and value % unit == 0:
            good = known.low <= value <= known.high
            yield _moment(style, kind, room, _cut(_iso(value), kind.digits), good)
    for fraction in style.fractions.get(type_, ()):
        yield _moment(style, kind, room, f"2024-01-02 12:34:56.{fraction}", True)
    if digits > 0 and type_ not in style.fractions:
        text = _cut("2024-01-02 12:34:56.123456"[: 20 + digits], kind.digits)
        yield _moment(style, kind, room, text, True)
    if kind.digits == 7 and known.digits == 7:
        text = "2024-01-02 12:34:56.1234567"
        one = _moment(style, kind, room, text, True)
        yield _seventh(style, declared, one.literal.strip("'"), one.expected)
    if kind.zone == "offset":
        for zone in ("+05:30", "-08:00", "+14:00"):
            text = _cut("2024-01-02 12:34:56.5", kind.digits)
            good = not isinstance(room, Timestamp) or room.zone == "offset"
            arrives = f"{text} {zone}" if good else REFUSED
            yield Sample(f"{text} {zone}", f"'{text.replace(' ', 'T')}{zone}'", arrives)


def _moment(style: ConstantStyle, kind: Timestamp, room: Kind, text: str, good: bool) -> Sample:
    zone = "" if kind.zone == "none" else style.utc
    offset = isinstance(room, Timestamp) and room.zone == "offset"
    arrives = text + f" {zone}" * offset if good else REFUSED
    return Sample(text, f"'{text.replace(' ', 'T')}{zone}'", arrives)


def _seventh(style: ConstantStyle, declared: str, literal: str, arrives: str) -> Sample:
    held = style.seventh.format(f"CAST('{literal}' AS {declared})")
    return Sample("a seventh digit", held, arrives, optional=True)


def _iso(number: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number)
    return moment.isoformat(sep=" ", timespec="microseconds")


def _cut(text: str, digits: int) -> str:
    """The text of a time with so many decimals, if it has any."""
    head, _, fraction = text.partition(".")
    return f"{head}.{fraction[:digits].ljust(digits, '0')}" if digits and fraction else head
