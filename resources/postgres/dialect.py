"""PostgreSQL's SQL."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

from tableferry.resources.contract.delimited import FIELD, ROW
from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.postgres.places import CTID
from tableferry.resources.postgres.places import bound as tid
from tableferry.resources.postgres.types import read
from tableferry.resources.types.column import Column


class PostgresDialect(Dialect):
    """See `Dialect`."""

    barrier = " OFFSET 0"
    """Else both levels are merged, as many groups as rows are expected, and all rows sorted."""

    longest_name = 63
    """Bytes; what is longer would be cut without an error."""

    ordered_texts = ("text", "character varying", "character", "citext", "name")

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """Texts by the collation "C", whose order is that of bytes.

        An index serves that only if it has the very collation: a column's own is left alone.
        """
        if kind != "text":
            return name
        if has_own_order(column):
            return f'{name}::text COLLATE "C"'
        return name if column.collation == BYTES else f'{name} COLLATE "C"'

    def literal(self, text: str) -> str:
        """A text constant that is the same whatever `standard_conforming_strings` says."""
        escaped = text.replace("\\", "\\\\")
        return super().literal(text) if escaped == text else f" E{super().literal(escaped)}"

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with, of the key's own type."""
        if isinstance(bound, int) and column.type == CTID:
            return tid(bound)
        if isinstance(bound, uuid.UUID):
            return f"uuid '{bound}'"
        if isinstance(bound, dt.datetime) and column.type.startswith(ZONED):
            return f"timestamptz '{bound.isoformat(sep=' ', timespec='microseconds')}+00'"
        return super().bound(bound, column)

    def exact_sum(self, number: str) -> str:
        """The sum of bigints is a numeric."""
        return f"sum({number})::text"

    def framed_row(self, fields: Sequence[str]) -> str:
        """By calls of concat() in one another: a function takes at most 100 arguments."""
        ends = [*[FIELD] * (len(fields) - 1), ROW]
        parts = [
            part for field, end in zip(fields, ends, strict=True) for part in (field, f"'{end}'")
        ]
        while len(parts) > 1:
            parts = [
                f"concat({', '.join(parts[start : start + CONCATENATED])})"
                for start in range(0, len(parts), CONCATENATED)
            ]
        return parts[0]


CONCATENATED = 40
"""Arguments of one concat()."""

BYTES = "C"
"""What `Column.collation` says of a column that is ordered by bytes anyhow."""

ZONED = ("timestamp with time zone", "timestamptz")


def has_own_order(column: Column) -> bool:
    """Whether it is a text whose comparisons are of its own, whatever its collation."""
    return read(column.type).name in ("citext", "name")


DIALECT = PostgresDialect()
