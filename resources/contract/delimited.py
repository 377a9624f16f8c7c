"""Rows for bcp's character mode: the source's server frames them; they move as opaque bytes."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.errors import TableferryError

FIELD, ROW = "\x01tableferry field\x01", "\x01tableferry row\x01"
"""Placeholders of the terminators in a plan's SQL, which is written before they are chosen."""

END = "."
"""Follows every text: freebcp cuts trailing blanks, and both tools take an empty field for NULL."""

END_BYTE = "2e"
"""Follows every binary value: the same as hexadecimal digits."""

LENGTH = 9
"""Characters of a terminator after the first; Microsoft's bcp takes at most 10 in all."""


class TerminatorInData(TableferryError):
    """A value holds a terminator; the next attempt chooses others."""

    transient = True


@dataclass(frozen=True)
class Framing:
    """The terminators of an artifact. They are random, so that nobody can put them into the data.

    `~` is their first character and none of the others, so that no terminator can begin in a value
    and end in the terminator behind it: one that occurs is in the value as a whole, and counted.
    """

    field: str
    row: str

    @classmethod
    def fresh(cls) -> Framing:
        """Choose terminators of printable ASCII, which both bcp and freebcp accept."""
        letters = string.ascii_lowercase + string.digits
        middle = "".join(secrets.choice(letters) for _ in range(LENGTH - 1))
        return cls(f"~{middle}f", f"~{middle}r")

    def in_query(self, sql: str) -> str:
        """Put the terminators into the SQL of a plan."""
        return sql.replace(FIELD, self.field).replace(ROW, self.row)

    def check(self, data: bytes, rows: int, columns: int) -> None:
        """Make sure that the rows hold their terminators and no others.

        Raises:
            TerminatorInData: a value holds one.
        """
        fields, ends = data.count(self.field.encode()), data.count(self.row.encode())
        if (fields, ends) != (rows * (columns - 1), rows):
            raise TerminatorInData(
                f"{rows} rows of {columns} columns hold {fields} field and {ends} row "
                "terminators: a value holds one; others will be chosen"
            )


def framed_rows(
    batches: Iterable[pa.RecordBatch], framing: Framing, columns: int
) -> Iterator[bytes]:
    """Yield the bytes of batches with a single column of framed rows, after counting terminators.

    Raises:
        TerminatorInData: see `Framing.check`.
    """
    for batch in batches:
        data = text_bytes(batch.column(0))
        framing.check(data, batch.num_rows, columns)
        yield data


def text_bytes(array: pa.Array) -> bytes:
    """Join the values of a text or binary array without NULL."""
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
