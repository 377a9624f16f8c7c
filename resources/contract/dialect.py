"""A system's SQL."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Sequence

from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.types.column import Column


class Dialect:
    """A system's SQL. What stands here is standard SQL; a system replaces where its own differs."""

    count = "count(*)"
    """The number of rows, however many there are."""

    barrier = ""
    """What ends a subquery so that the planner does not merge it into the query around it."""

    longest_name = 128
    """Characters of a table's name. ClickHouse's is a file's name, with the database's in it."""

    not_in_shadows = ""
    """Characters that the shadow of a table goes without in its name."""

    most_branches: int | None = None
    """Of a CASE that is nested as a balanced tree; None: as many as one likes."""

    def quote(self, identifier: str) -> str:
        """An identifier that no server-side rule changes: neither case nor blanks nor quotes."""
        return '"' + identifier.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """A text constant."""
        return "'" + text.replace("'", "''") + "'"

    ordered_texts: Collection[str] = ()
    """The types of texts, by `ColumnType.name`, that `in_key_order` orders by their UTF-8 bytes."""

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """A key that compares as ranges are cut: uuids bytewise, texts as `keys.text` says.

        Args:
            name: the quoted column.
            column: the same, for its type and collation.
            kind: of the key.
        """
        return name

    def below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """The condition that a key is below a bound."""
        return f"{self.in_key_order(name, column, kind)} < {self.bound(bound, column)}"

    def not_below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """The condition that a key is a bound, or above it."""
        return f"{self.in_key_order(name, column, kind)} >= {self.bound(bound, column)}"

    def key_value(self, name: str, column: Column, kind: KeyKind) -> str:
        """A key as statistics read it: in key order, instants as wall clocks in UTC."""
        return self.in_key_order(name, column, kind)

    def key_extent(self, name: str, column: Column, kind: KeyKind) -> str:
        """A key as MIN and MAX take it."""
        if kind == "text":
            return self.in_key_order(name, column, kind)
        return f"CAST({name} AS char(36))" if kind == "uuid" else name

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with.

        Args:
            bound: timestamps are naive and mean UTC.
            column: the key, for its type.
        """
        if isinstance(bound, int):
            return str(bound)
        if isinstance(bound, str):
            return self.literal(bound)
        if isinstance(bound, uuid.UUID):
            return f"'{bound}'"
        if isinstance(bound, dt.datetime):
            return f"timestamp '{bound.isoformat(sep=' ', timespec='microseconds')}'"
        return f"date '{bound.isoformat()}'"

    def of_file(self, name: str, file: str, column: Column) -> str:
        """The condition that a row is of a file.

        Args:
            name: the quoted column with the files' names.
            file: the file's name.
            column: the same, for its type.
        """
        return f"{name} = {self.literal(file)}"

    def limited(self, rows: int) -> tuple[str, str]:
        """What stands behind SELECT and what ends the query, for at most so many rows."""
        return "", f" LIMIT {rows}"

    def exact_sum(self, number: str) -> str:
        """The sum of 64-bit integers, as text; it may take more than 64 bits itself."""
        raise NotImplementedError

    def text(self, value: str) -> str:
        """A value as the server prints it."""
        return f"CAST({value} AS text)"

    def constants(self, rows: Sequence[Sequence[str]], names: Sequence[str]) -> str:
        """A table expression of constants.

        Args:
            rows: SQL of the values.
            names: the quoted names of its columns.
        """
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"(VALUES {values}) AS probe({', '.join(names)})"

    def told_apart(self, name: str, column: Column) -> str:
        """A column so that GROUP BY tells apart what differs in case, accents or blanks."""
        return name

    def folded(self, name: str) -> str:
        """A column's name, the same for names that the system takes for one."""
        return name

    def exported(self, query: str) -> str:
        """The query that exports rows as text, as the system's tool wants it."""
        return query

    def framed_row(self, fields: Sequence[str]) -> str:
        """A text of a row, its fields (texts) ended by the terminators of `wires.delimited`,
        NULL as nothing; of a system whose source sends such."""
        raise NotImplementedError

    def add_column(self, table: str, name: str, column: Column) -> str:
        """ALTER TABLE with a new column, nullable; '' where there is nothing to do.

        Args:
            table: the quoted table.
            name: the quoted column.
            column: what to add.
        """
        return f"ALTER TABLE {table} ADD {name} {column.type} NULL"

    def drop_table(self, table: str) -> str:
        """DROP TABLE, if it exists; its name is free when the answer comes.

        Args:
            table: the quoted table.
        """
        return f"DROP TABLE IF EXISTS {table}"
