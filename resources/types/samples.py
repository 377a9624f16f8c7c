"""Values at the edges of a column's type, as SQL constants, to probe wires with.

Only kinds that a server might silently get wrong are sampled.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tableferry.resources.types import kinds
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import EPOCH, MICROSECONDS_PER_DAY, Kind, iso
from tableferry.resources.types.type_map import read

REFUSED = "a refusal"
"""Expected instead of a value that the target cannot hold."""

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
    """A value of a column."""

    what: str
    """A description for messages."""
    literal: str
    """A constant in the source's SQL, to be cast to the column's type."""
    expected: str
    """The value that must arrive, as a person would write it; or REFUSED."""
    optional: bool = False
    """Whether the literal is NULL on a server that cannot hold the value."""


@dataclass(frozen=True)
class ConstantStyle:
    """How a system writes constants, and peculiarities of some of its types."""

    text: Callable[[str], str]
    """Writes a text constant without control characters in the SQL."""
    booleans: tuple[str, str]
    """The constants for false and true."""
    utc: str
    """The suffix of timestamps in UTC."""
    texts: Mapping[str, bool]
    """The text types to sample, and whether they hold every character; others have rules of their
    own, or a code page that we do not know."""
    free_notation: bool = False
    """Whether the server's texts of other types than texts and times vary."""
    largest: Mapping[str, str] = field(default_factory=dict)
    """The largest values of decimal types that cannot hold all numbers of their digits."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Microseconds between the moments of timestamp types, if their digits do not tell."""
    fractions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Fractions that such types nevertheless keep."""
    seventh: str = "{}"
    """The template for values of seven decimals: NULL on a server that holds six."""


def samples(style: ConstantStyle, declared: str, conversion: Conversion) -> list[Sample]:
    """Choose edge values of a source column of a declared type, for the target of a conversion.

    Values that the target cannot hold are expected to be REFUSED. The list is empty for kinds that
    are not sampled.
    """
    kind, target_kind = conversion.source.kind, conversion.slot.kind
    as_text = isinstance(target_kind, kinds.Text)
    if as_text:
        if isinstance(kind, kinds.Float) or (
            style.free_notation and not isinstance(kind, kinds.Text | kinds.Time)
        ):
            return []
        target_kind = kind
    match kind:
        case kinds.Boolean():
            false, true = style.booleans
            return [Sample("false", false, "0"), Sample("true", true, "1")]
        case kinds.Integer():
            return list(_integers(kind, target_kind))
        case kinds.Decimal():
            return list(_decimals(kind, target_kind, style.largest.get(declared)))
        case kinds.Float():
            return list(_floats(kind))
        case kinds.Text():
            return list(_texts(style, declared, kind))
        case kinds.Date():
            return list(_dates(kind, target_kind))
        case kinds.Time():
            return list(_times(style, declared, kind, target_kind))
        case kinds.Timestamp():
            return list(_timestamps(style, declared, kind, target_kind))
        case kinds.Uuid():
            return [Sample(text, f"'{text}'", text.upper() if as_text else text) for text in UUIDS]
    return []


def meaning(kind: Kind, text: str) -> object:
    """Normalize a value's text, so that equal values are equal whatever their notation.

    It is not meant for a target column of a text type, where the text itself counts.

    Raises:
        ValueError: the text is no value of that kind.
    """
    match kind:
        case kinds.Boolean():
            return {"t": "1", "true": "1", "f": "0", "false": "0"}.get(text.lower(), text)
        case kinds.Integer() | kinds.Decimal():
            return Fraction(text)
        case kinds.Float(bits):
            return struct.pack("<d" if bits == 64 else "<f", float(text))
        case kinds.Timestamp() | kinds.Time():
            utc = text.removesuffix("+00:00").removesuffix("+00").rstrip()
            head, dot, fraction = utc.replace("T", " ").partition(".")
            offset = fraction.lstrip("0123456789")
            digits = fraction.removesuffix(offset).rstrip("0")
            return f"{head}{dot if digits else ''}{digits}{offset}"
        case kinds.Uuid():
            return text.lower()
    return text


def _integers(kind: kinds.Integer, target_kind: Kind) -> Iterator[Sample]:
    values = {kind.low, kind.high, 0, -1}
    low, high = kind.low, kind.high
    if isinstance(target_kind, kinds.Integer):
        low, high = target_kind.low, target_kind.high
    elif isinstance(target_kind, kinds.Decimal):
        high = 10 ** ((target_kind.precision or 0) - (target_kind.scale or 0)) - 1
        low = -high
    for value in sorted(values | {low - 1, low, high, high + 1}):
        if kind.low <= value <= kind.high:
            fits = low <= value <= high
            yield Sample(f"{value}", f"'{value}'", str(value) if fits else REFUSED)


def _decimals(kind: kinds.Decimal, target_kind: Kind, largest: str | None) -> Iterator[Sample]:
    if kind.precision is None or not isinstance(target_kind, kinds.Decimal):
        return
    if target_kind.precision is None:
        return
    scale, target_scale = kind.scale or 0, target_kind.scale or 0
    source_whole, target_whole = kind.precision - scale, target_kind.precision - target_scale
    whole, digits = min(source_whole, target_whole), min(scale, target_scale)
    most = largest or ("9" * whole or "0") + ("." + "9" * digits if digits else "")
    least = "0." + "0" * (digits - 1) + "1" if digits else "1"
    for value in dict.fromkeys(("0", most, "-" + most, least, "-" + least)):
        whole_part, _, fraction = value.partition(".")
        full = f"{whole_part}.{fraction.ljust(scale, '0')}" if scale else whole_part
        yield Sample(full, f"'{full}'", full)
    if target_whole < source_whole:
        value = "1" + "0" * whole
        yield Sample(value, f"'{value}'", REFUSED)


def _floats(kind: kinds.Float) -> Iterator[Sample]:
    values = FLOATS
    if kind.bits == 32:
        values = tuple(
            struct.unpack("<f", struct.pack("<f", value))[0]
            for value in FLOATS
            if 1e-37 < abs(value) < 1e38
        )
    for value in values:
        yield Sample(repr(value), f"'{value!r}'", repr(value))


def _texts(style: ConstantStyle, declared: str, kind: kinds.Text) -> Iterator[Sample]:
    name, length = read(declared).name, kind.characters or kind.units
    if name not in style.texts:
        return
    for what, value in (TEXTS | (WIDE_TEXTS if style.texts[name] else {})).items():
        units = len(value.encode("utf-16-le")) // 2
        # some servers pad in units, others in characters
        if kind.padded and units < len(value.encode()):
            continue
        if length is None or units <= length:
            arrives = value.ljust(length) if kind.padded and length else value
            yield Sample(what, style.text(value), arrives)
    if length and length > 1:
        yield Sample("nothing but backslashes", style.text("\\" * length), "\\" * length)


def _dates(kind: kinds.Date, target_kind: Kind) -> Iterator[Sample]:
    held = target_kind if isinstance(target_kind, kinds.Date) else kind
    low, high = held.low, held.high
    # ISO has only years of four digits
    first, last = ((day - EPOCH).days for day in (dt.date.min, dt.date.max))
    for value in sorted({kind.low, kind.high, first, last, low - 1, low, high, high + 1, 0}):
        if max(kind.low, first) <= value <= min(kind.high, last):
            text = (EPOCH + dt.timedelta(days=value)).isoformat()
            yield Sample(text, f"'{text}'", text if low <= value <= high else REFUSED)


def _times(
    style: ConstantStyle, declared: str, kind: kinds.Time, target_kind: Kind
) -> Iterator[Sample]:
    texts = ("00:00:00.000000", "12:34:56.100000", "12:34:56.123456", "23:59:59.999999")
    for text in dict.fromkeys(_cut(text, kind.digits) for text in texts):
        yield Sample(text, f"'{text}'", text)
    if kind.digits == 7 and not (isinstance(target_kind, kinds.Time) and target_kind.digits < 7):
        yield _seventh(style, declared, "12:34:56.1234567", "12:34:56.1234567")


def _timestamps(
    style: ConstantStyle, declared: str, kind: kinds.Timestamp, target_kind: Kind
) -> Iterator[Sample]:
    type_ = read(declared).name
    held = target_kind if isinstance(target_kind, kinds.Timestamp) else kind
    digits = min(kind.digits, held.digits, 6)
    unit = style.steps.get(type_, 10 ** (6 - digits))
    first = (dt.date.min - EPOCH).days * MICROSECONDS_PER_DAY
    last = ((dt.date.max - EPOCH).days + 1) * MICROSECONDS_PER_DAY - 1
    low, high = max(kind.low, first), min(kind.high, last)
    values = {0, 1_000_000_000 * SECOND}
    for end in (low, held.low):
        values |= {-(-end // unit) * unit, -(-end // unit) * unit - unit}
    for end in (high, held.high):
        values |= {end // unit * unit, end // unit * unit + unit}
    keeps_offset = isinstance(target_kind, kinds.Timestamp) and target_kind.zone == "offset"

    def moment(text: str, fits: bool = True) -> Sample:
        zone = "" if kind.zone == "none" else style.utc
        arrives = text + f" {zone}" * keeps_offset if fits else REFUSED
        return Sample(text, f"'{text.replace(' ', 'T')}{zone}'", arrives)

    for value in sorted(values):
        if low <= value <= high and value % unit == 0:
            yield moment(_cut(iso(value), kind.digits), held.low <= value <= held.high)
    for fraction in style.fractions.get(type_, ()):
        yield moment(f"2024-01-02 12:34:56.{fraction}")
    if digits > 0 and type_ not in style.fractions:
        yield moment(_cut("2024-01-02 12:34:56.123456"[: 20 + digits], kind.digits))
    if kind.digits == 7 and held.digits == 7:
        sample = moment("2024-01-02 12:34:56.1234567")
        yield _seventh(style, declared, sample.literal.strip("'"), sample.expected)
    if kind.zone == "offset":
        for zone in ("+05:30", "-08:00", "+14:00"):
            text = _cut("2024-01-02 12:34:56.5", kind.digits)
            fits = not isinstance(target_kind, kinds.Timestamp) or keeps_offset
            arrives = f"{text} {zone}" if fits else REFUSED
            yield Sample(f"{text} {zone}", f"'{text.replace(' ', 'T')}{zone}'", arrives)


def _seventh(style: ConstantStyle, declared: str, literal: str, arrives: str) -> Sample:
    sql = style.seventh.format(f"CAST('{literal}' AS {declared})")
    return Sample("a seventh digit", sql, arrives, optional=True)


def _cut(text: str, digits: int) -> str:
    """Cut or pad the decimals of a time, if it has any."""
    head, _, fraction = text.partition(".")
    return f"{head}.{fraction[:digits].ljust(digits, '0')}" if digits and fraction else head
