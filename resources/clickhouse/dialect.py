"""ClickHouse's SQL."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from tableferry.resources.clickhouse.types import MOST_DIGITS, declared_type, read
from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.types.kinds import Decimal
from tableferry.resources.types.type_map import Column

BITS = {9: 32, 18: 64, 38: 128, MOST_DIGITS: 256}
"""Bits of a decimal, by its maximum number of digits."""


def escaped_length(name: str) -> int:
    """Length of a name in ClickHouse's file names, which escape other characters as `%D0`."""
    return len(re.sub(rb"[^A-Za-z0-9_]", b"%00", name.encode()))


def _decimal(number: int, precision: int) -> str:
    """A whole number to compare a decimal with: a constant of more than 64 bits would be a float,
    and only one as wide as the column can use its index."""
    digits = max(precision, len(str(abs(number))))
    bits = next(bits for most, bits in BITS.items() if digits <= most)
    return f"toDecimal{bits}('{number}', 0)"


RANGE_COLUMN = "_range"
"""Hidden column with the key range's number in tables that we create."""

FILE_NAME = 255
"""Maximum bytes of a file's name, by which ClickHouse limits those of tables: of a dropped one it
keeps `<database>.<table>.<36 digits of its uuid>.sql`."""


class ClickHouseDialect(Dialect):
    """See `Dialect`."""

    taken = MappingProxyType(
        {
            RANGE_COLUMN: "is our own",
            "_part": "ClickHouse has of its own: it cannot count rows by partition where there are "
            "two",
            **dict.fromkeys(
                ("_row_exists", "_block_number", "_block_offset"), "ClickHouse has of its own"
            ),
        }
    )

    def unfit_table(self, schema: str, name: str) -> str:
        """See `Dialect.unfit_table`."""
        longest = FILE_NAME - len(f".{'-' * 36}..sql") - escaped_length(schema)
        if (length := escaped_length(name)) <= longest:
            return ""
        return f"its name has {length} characters in that of a file, and may have {longest}"

    def unfit_names(self, columns: Sequence[Column]) -> dict[str, tuple[str, str]]:
        """ClickHouse takes arrays with a dot in their names for parts of a Nested column.

        https://clickhouse.com/docs/sql-reference/data-types/nested-data-structures/nested
        """
        unfit = super().unfit_names(columns)
        parts: dict[str, list[str]] = {}
        for column in columns:
            before, _, after = column.name.partition(".")
            if before and after and column.type.startswith("Array("):
                parts.setdefault(before, []).append(column.name)
        names = {column.name for column in columns}
        for nested, arrays in parts.items():
            others = [name for name in (nested, *arrays) if name in names]
            if len(others) > 1:
                why = f"ClickHouse takes for a part of {nested!r}, as it does not go with "
                for name in arrays:
                    without = ", ".join(repr(other) for other in others if other != name)
                    unfit.setdefault(name, (f"{why}{without}", name.replace(".", "_")))
        return unfit

    def quote(self, identifier: str) -> str:
        """Backslashes are escapes, between backticks too."""
        return "`" + identifier.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, text: str) -> str:
        """Backslashes are escapes."""
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def cast(self, value: str, column: Column) -> str:
        """NULL is of no type without Nullable."""
        return f"CAST({value} AS {declared_type(column)})"

    def exact_decimal(self, double: str, column: Column) -> str:
        """See `Dialect.exact_decimal`. CAST raises an error instead."""
        kind = read(column.type).kind
        assert isinstance(kind, Decimal)
        return f"toDecimal256OrNull({self.text(double)}, {kind.scale})"

    def rounded(self, number: str, digits: int) -> str:
        """See `Dialect.rounded`. Halves of floats would be rounded to even."""
        text = f"toString({number})"
        exact = f"round(toDecimal256OrNull({text}, {MOST_DIGITS // 2}), {digits})"
        return f"ifNull(toString({exact}), {text})"

    ordered_texts = ("String",)

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """UUID is ordered by its second half first, so uuids compare as text."""
        return f"toString({name})" if kind == "uuid" else name

    def key_value(self, name: str, column: Column, kind: KeyKind) -> str:
        """Instants as text in UTC, whatever the time zone of the column."""
        if kind == "timestamp":
            return f"toString(toDateTime64({name}, 6, 'UTC'))"
        return super().key_value(name, column, kind)

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with."""
        if isinstance(bound, dt.datetime):
            text = bound.isoformat(sep=" ", timespec="microseconds")
            return f"toDateTime64('{text}', 6, 'UTC')"
        if isinstance(bound, dt.date):
            return f"toDate32('{bound.isoformat()}')"
        kind = read(column.type).kind
        if isinstance(bound, int) and isinstance(kind, Decimal):
            return _decimal(bound, kind.precision or MOST_DIGITS)
        return super().bound(bound, column)

    def whole_steps(self, name: str, first: int, width: int) -> str:
        """`/` would make a float."""
        return f"intDiv(toInt64({name}) - toInt64({first}), toInt64({width}))"

    def exact_sum(self, number: str) -> str:
        """A sum of Int64 would wrap around."""
        return f"toString(sum(toInt128({number})))"

    def text(self, value: str) -> str:
        """A value as the server prints it; NULL stays NULL."""
        return f"toString({value})"

    def lower(self, text: str) -> str:
        """`lower` knows ASCII only."""
        return f"lowerUTF8({text})"

    def constants(self, rows: Sequence[Sequence[str]], names: Sequence[str]) -> str:
        """VALUES is a table function that requires declared types."""
        selects = (
            ", ".join(f"{value} AS {name}" for value, name in zip(row, names, strict=True))
            for row in rows
        )
        return f"(SELECT {' UNION ALL SELECT '.join(selects)})"

    def add_column(self, table: str, name: str, column: Column) -> str:
        """The new column is nullable."""
        type_ = declared_type(replace(column, nullable=True))
        return f"ALTER TABLE {table} ADD COLUMN {name} {type_}"

    def alter_column(self, table: str, name: str, before: Column, after: Column) -> tuple[str, ...]:
        """Rows are rewritten before the statement ends."""
        type_ = declared_type(after)
        return (f"ALTER TABLE {table} MODIFY COLUMN {name} {type_} SETTINGS alter_sync = 2",)

    def empty_column(self, table: str, name: str) -> str:
        """A mutation, which has ended when the answer comes."""
        return f"ALTER TABLE {table} UPDATE {name} = NULL WHERE 1 SETTINGS mutations_sync = 2"

    def drop_table(self, table: str) -> str:
        """SYNC: the table's parts are gone, too, when the answer comes."""
        return f"{super().drop_table(table)} SYNC"


DIALECT = ClickHouseDialect()
literal = DIALECT.literal
