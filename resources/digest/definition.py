"""Defines the canonical form of a row, which its digest hashes. A change needs a new `VERSION`.

A row is the text of its columns' values in the plan's order, joined by `,`. NULL is `~`. A value is
written so that none can pass for a part of its neighbour:

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

What the target holds as text of another type (an interval, JSON, an enum) is that text; so are
arrays, and types without a form, where both sides are of one system and keep the type. Values that
have no form here (infinite dates, decimals with more digits) are written as the server prints them.

The digest is the first 8 bytes of a hash of the text's UTF-8 bytes, as a signed big-endian integer.
"""

from __future__ import annotations

from tableferry.resources.contract.digest_writer import Algorithm

VERSION = 2
"""Version of the definition above; 1 was each system's own hash of what it prints."""

RECORD_VERSION = 3
"""Version of the digest by a system's own hash; 2 did not see two rows that exchange values."""

RECORD: Algorithm = "record"
"""A system's own hash of a record, used between two servers of a system that has one. The canonical
form above stands in for values only where such a hash would not tell them apart."""

ALGORITHMS: tuple[Algorithm, ...] = ("md5", "sha256")
"""In order of preference: of a million rows of 15 columns, MD5 costs PostgreSQL 0.5 CPU seconds and
SHA-256, without the processor's instructions for it, 1.8. A server in FIPS mode refuses MD5."""

CONVERTED = "converted"
"""Name of the variant that converts texts from another encoding to UTF-8."""

NULL = "~"
SEPARATOR = ","
NAN_BITS = 0x7FF8000000000000
"""All NaNs are one value: PostgreSQL's and ClickHouse's differ in the sign bit."""

SAMPLE = "ä€😀~,:"
"""A text whose UTF-8 bytes every server must agree on."""

UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
LONG_DECIMAL = "-9876543210987654321098765432.109876543"
"""Further values that each server is tried with: see `digest.probe`."""


def definition(algorithm: Algorithm) -> str:
    """Name the definition that a fingerprint was made by: only equal ones can be compared."""
    return f"{algorithm}-{RECORD_VERSION if algorithm == RECORD else VERSION}"
