"""Defines the canonical form of a row, which its digest hashes. A change needs a new `VERSION`.

A row is the text of its columns' values in the plan's order, joined by `,`. NULL is `~`. Values are
written so that none can be mistaken for a part of its neighbour:

| kind | canonical form |
|---|---|
| integer | decimal digits |
| boolean | `0`, `1` |
| decimal | digits with as many behind the point as the target declares |
| float | the 64 bits of the double, as a signed integer; NaN is `9221120237041090560` |
| date | days since 1970-01-01 |
| time | microseconds since midnight (100 nanoseconds where seven digits are declared) |
| timestamp | microseconds since 1970-01-01 00:00:00 UTC (or 100 nanoseconds, likewise) |
| uuid | 36 characters in lower case |
| text | number of UTF-8 bytes, `:`, the text; without trailing blanks where the target pads |
| bytes | number of bytes, `:`, their hash as a signed integer |
| array | number of items, `:`, the items in their canonical forms, joined by `,` |

If the target holds a value of another type (an interval, JSON, an enum) as text, its form is that
text. So it is for arrays, and for types that are not listed, if both sides belong to one system and
keep the type. Other values without a form (infinite dates, decimals with more digits) are written
as the server prints them.

The digest is the first 8 bytes of a hash of the text's UTF-8 bytes, as a signed big-endian integer.
"""

from __future__ import annotations

import datetime as dt
import struct

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field
from tableferry.resources.types.kinds import civil

VERSION = 2
"""Version of the definition above; version 1 was each system's own hash of its printed values."""

RECORD_VERSION = 3
"""Version of the digest by a system's own hash; 2 did not notice two rows that exchanged values."""

RECORD: Algorithm = "record"
"""A system's own hash of a record, used between two servers of a system that has one. It hashes
canonical forms only of values that it would not tell apart."""

ALGORITHMS: tuple[Algorithm, ...] = ("md5", "sha256")
"""By preference: for a million rows of 15 columns, MD5 costs PostgreSQL 0.5 CPU seconds, SHA-256
without the processor's instructions for it 1.8. A server in FIPS mode refuses MD5."""

CONVERTED = "converted"
"""The variant that converts texts from another encoding to UTF-8."""

NULL = "~"
SEPARATOR = ","
NAN_BITS = 0x7FF8000000000000
"""All NaNs are one value: PostgreSQL's and ClickHouse's differ in the sign bit."""

SAMPLE = "ä€😀~,:"
"""A text whose UTF-8 bytes every server must agree on."""

UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
LONG_DECIMAL = "-9876543210987654321098765432.109876543"
"""Further values for `digest.probe`."""


def definition(algorithm: Algorithm) -> str:
    """Name a digest's definition: only digests by the same definition can be compared."""
    return f"{algorithm}-{RECORD_VERSION if algorithm == RECORD else VERSION}"


def shown(field: Field, form: str | bytes | None) -> str | None:
    """Make a value that `DigestSql.shown` selected readable; None for NULL."""
    if form is None:
        return None
    if isinstance(form, bytes):
        return form.hex() if field.kind == "bytes" else form.decode(errors="backslashreplace")
    if field.kind in ("integer", "decimal", "uuid", "text"):
        return str(form)
    if field.kind == "array":
        return _array(field, form)
    if field.kind == "boolean":
        return {"0": "false", "1": "true"}.get(form, form)
    try:
        number = int(form)
    except ValueError:
        return form  # without canonical form, e.g. an infinite date
    if field.kind == "float":
        return repr(float(struct.unpack(">d", struct.pack(">q", number))[0]))
    if field.kind == "date":
        return _date(number)
    return _moment(field, number)


def _date(days: int) -> str:
    """Write a day counted from 1970-01-01, also in years that Python's dates do not have."""
    year, month_and_day = civil(days)
    return f"{year:0{5 if year < 0 else 4}d}-{month_and_day}"


def _moment(field: Field, number: int) -> str:
    units = 10_000_000 if field.scale > 6 else 1_000_000
    whole, rest = divmod(number, units)
    width = min(field.scale, 7 if units == 10_000_000 else 6)
    fraction = f"{rest:0{len(str(units)) - 1}d}"
    # show digits beyond the declared ones: they would be a difference
    fraction = fraction[:width] + fraction[width:].rstrip("0")
    days, seconds = (0, whole) if field.kind == "time" else divmod(whole, 86_400)
    moment = str(dt.timedelta(seconds=seconds)).rjust(8, "0")
    if field.kind != "time":
        moment = f"{_date(days)} {moment}"
    return f"{moment}.{fraction}" if fraction else moment


def _array(field: Field, form: str) -> str:
    assert field.item is not None
    rest = form.encode().partition(b":")[2]
    parts: list[str] = []
    while rest:
        if field.item.kind == "text" and rest[:1] != NULL.encode():
            length, _, rest = rest.partition(b":")
            item, rest = rest[: int(length)], rest[int(length) + 1 :]
            parts.append(item.decode(errors="backslashreplace"))
            continue
        word, _, rest = rest.partition(b",")
        text = word.decode()
        if text == NULL:
            parts.append("NULL")
        elif field.item.kind == "bytes":
            size, _, number = text.partition(":")
            parts.append(f"{size} bytes ({int(number) % 2**64:016x})")
        else:
            parts.append(shown(field.item, text) or "")
    return "[" + ", ".join(parts) + "]"
