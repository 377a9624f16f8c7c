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
from tableferry.resources.types.type_map import Column

_STRING_OR_LAST_ZEROS = r'("(?:[^"\\]|\\.)*")|(\.\d*[1-9])0+(?!\d)|\.0+(?!\d)'
"""Matches the strings of a JSON text, and the last zeros behind a point elsewhere."""


class PostgresDialect(Dialect):
    """See `Dialect`."""

    barrier = " OFFSET 0"
    """Without it the planner merges both levels, expects a group per row, and sorts all rows."""

    longest_name = longest_identifier = 63
    """In bytes; longer names are truncated without an error.
    https://www.postgresql.org/docs/current/limits.html"""

    length_unit = "bytes"

    ordered_texts = ("text", "character varying", "character", "citext", "name")

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """See `Dialect.in_key_order`. The order of the collation "C" is that of bytes.

        A column that has it keeps its own: an index serves only its very collation.
        """
        if kind != "text":
            return name
        if has_own_order(column):
            return f'{name}::text COLLATE "C"'
        return name if column.collation == BYTES else f'{name} COLLATE "C"'

    def literal(self, text: str) -> str:
        """A text constant that does not depend on `standard_conforming_strings`."""
        escaped = text.replace("\\", "\\\\")
        return super().literal(text) if escaped == text else f" E{super().literal(escaped)}"

    def binary(self, value: bytes, column: Column) -> str:
        """A constant of bytea. https://www.postgresql.org/docs/16/datatype-binary.html"""
        return self.literal(f"\\x{value.hex()}")

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant of the key's type. See `Dialect.bound`."""
        if isinstance(bound, int) and column.type == CTID:
            return tid(bound)
        if isinstance(bound, uuid.UUID):
            return f"uuid '{bound}'"
        if isinstance(bound, dt.datetime) and column.type.startswith(ZONED):
            return f"timestamptz '{bound.isoformat(sep=' ', timespec='microseconds')}+00'"
        return super().bound(bound, column)

    def rounded(self, number: str, digits: int) -> str:
        """See `Dialect.rounded`. Only a numeric is rounded to digits."""
        return f"round(CAST({number} AS numeric), {digits})"

    def exact_decimal(self, double: str, column: Column) -> str:
        """See `Dialect.exact_decimal`. A numeric without a precision holds all of them."""
        return f"CAST({self.text(double)} AS numeric)"

    def canonical_json(self, text: str) -> str | None:
        """See `Dialect.canonical_json`. A jsonb keeps the last zeros of a number, as 1.50."""
        written = f"CAST(CAST({text} AS jsonb) AS text)"
        pattern, kept = self.literal(_STRING_OR_LAST_ZEROS), self.literal(r"\1\2")
        return f"regexp_replace({written}, {pattern}, {kept}, 'g')"

    def length(self, name: str) -> int:
        """See `Dialect.length`."""
        return len(name.encode())

    def exact_sum(self, number: str) -> str:
        """See `Dialect.exact_sum`. The sum of bigints is a numeric."""
        return f"sum({number})::text"

    def alter_column(self, table: str, name: str, before: Column, after: Column) -> tuple[str, ...]:
        """One statement; a longer varchar or numeric takes no rewrite of the rows."""
        actions = []
        if after.type != before.type:
            own = before.collation not in (None, "default")
            collation = f' COLLATE "{before.collation}"' if own else ""
            actions.append(f"ALTER COLUMN {name} TYPE {after.own_type or after.type}{collation}")
        if after.nullable and not before.nullable:
            actions.append(f"ALTER COLUMN {name} DROP NOT NULL")
        return (f"ALTER TABLE {table} {', '.join(actions)}",)

    def framed_row(self, fields: Sequence[str]) -> str:
        """See `Dialect.framed_row`. Calls of concat() are nested, for functions take at most 100
        arguments."""
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
"""`Column.collation` of columns that are ordered by bytes."""

ZONED = ("timestamp with time zone", "timestamptz")


def has_own_order(column: Column) -> bool:
    """Whether a text type compares in its own way, whatever the collation."""
    return read(column.type).name in ("citext", "name")


DIALECT = PostgresDialect()
