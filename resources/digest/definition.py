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

from tableferry.resources.contract.digest_writer import Algorithm

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
