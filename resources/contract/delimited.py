"""Rows for bcp's character mode: framed by the source server, moved as opaque bytes."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.errors import TableferryError

FIELD, ROW = "\x01tableferry field\x01", "\x01tableferry row\x01"
"""What stands for the terminators in the SQL of a plan, which is made before they are chosen."""

END = "."
"""Put after every text: freebcp cuts trailing blanks, and an empty field is NULL to both tools."""

END_BYTE = "2e"
"""The same after every binary value, as hexadecimal digits."""

LENGTH = 9
"""Characters after the first: Microsoft's bcp takes terminators of at most 10."""


class TerminatorInData(TableferryError):
    """A value holds a terminator; the next attempt takes others."""

    transient = True


@dataclass(frozen=True)
class Framing:
    """The terminators of one artifact: random, so that data cannot be made to hold them.

    `~` is their first character and occurs in no other place, so that no terminator can begin in a
    value and end in the terminator after it: each is either in a value as a whole, where it is
    counted, or not at all.
    """

    field: str
    row: str

    @classmethod
    def fresh(cls) -> Framing:
        """Two terminators of printable ASCII, as both bcp and freebcp take them."""
        letters = string.ascii_lowercase + string.digits
        middle = "".join(secrets.choice(letters) for _ in range(LENGTH - 1))
        return cls(f"~{middle}f", f"~{middle}r")

    def in_query(self, sql: str) -> str:
        """The SQL of a plan with these terminators."""
        return sql.replace(FIELD, self.field).replace(ROW, self.row)

    def check(self, data: bytes, rows: int, columns: int) -> None:
        """See that every row has its terminators and no other.

        Raises:
            TerminatorInData: a value holds one.
        """
        found = data.count(self.field.encode()), data.count(self.row.encode())
        if found != (rows * (columns - 1), rows):
            raise TerminatorInData(
                f"{rows} rows of {columns} columns hold {found[0]} field and {found[1]} row "
                "terminators: a value holds one; others will be taken"
            )


def framed_rows(
    batches: Iterable[pa.RecordBatch], framing: Framing, columns: int
) -> Iterator[bytes]:
    """The bytes of batches with one text column of framed rows, counted and otherwise untouched.

    Raises:
        TerminatorInData: see `Framing.check`.
    """
    for batch in batches:
        data = text_bytes(batch.column(0))
        framing.check(data, batch.num_rows, columns)
        yield data


def text_bytes(array: pa.Array) -> bytes:
    """The bytes of a text or binary array without NULL, one value after the other."""
    if not len(array):
        return b""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offsets = pa.Array.from_buffers(
        pa.int64() if large else pa.int32(),
        array.offset + len(array) + 1,
        [None, array.buffers()[1]],
    )
    first, last = offsets[array.offset].as_py(), offsets[array.offset + len(array)].as_py()
    values = array.buffers()[2]
    return b"" if values is None else values.slice(first, last - first).to_pybytes()
