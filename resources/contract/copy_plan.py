"""What one hop copies: its columns, and the SQL that selects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tableferry.resources.contract.dialects import filtered, predicate, qualified
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.own_names import own_prefix
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.steps import OverflowPolicy

WireFormat = Literal["arrow", "text", "pgcopy"]
Format = Literal["pgcopy", "copy_text", "arrow", "tab_separated", "delimited"]
"""What rows are on the wire: record batches, or bytes. `pgcopy` is PostgreSQL's binary COPY, and
`copy_text` its COPY text as PostgreSQL alone reads it, which both pass unparsed. `tab_separated` is
what PostgreSQL's COPY text and ClickHouse's TabSeparated have in common; `delimited` has
terminators of its own for each attempt, see `resources.contract.delimited`."""

WireChoice = Literal["auto", "arrow", "text", "pgcopy"]


@dataclass(frozen=True)
class ColumnPlan:
    """How one column travels. Made by `resources.types` only."""

    source: Column
    target: Column
    arrow_sql: str | None
    """Expression in the source's SQL that yields the column for the wire format `arrow`; None where
    there is no exact one."""
    arrow_type: pa.DataType
    """What the column is in the batches that the sink receives."""
    text_sql: str | None = None
    """Expression that yields it for the wire format `text`; None where there is no exact one."""
    binary_sql: str | None = None
    """The same for `pgcopy`."""
    on_overflow: OverflowPolicy = "refuse"
    fitted: str = ""
    """The type that `on_overflow` makes values fit into: the target's as it was planned, where the
    table that is there may have a wider one."""

    def sql(self, wire: WireFormat) -> str | None:
        """The expression for a wire format; None where there is no exact one."""
        return {"arrow": self.arrow_sql, "text": self.text_sql, "pgcopy": self.binary_sql}[wire]


@dataclass(frozen=True)
class CopyPlan:
    """One hop of one table: where from, where to, and what becomes of every column."""

    source: TableRef
    target: TableRef
    columns: tuple[ColumnPlan, ...]
    key: ColumnPlan
    primary_key: tuple[str, ...] = ()
    """Target names of the source's primary key columns, in key order."""
    figures: tuple[str, ...] = ()
    """Target names of the columns of which a checksum also shows sum, least and greatest value."""
    text_format: Format | None = None
    """What the wire format `text` is between these two systems; None if they share none."""
    target_version: str = ""
    """The target's release, where what its columns hold depends on it; else empty."""
    where: str | None = None
    """Which rows of the source there are to copy, in its SQL; None: all."""
    observed: bool = False
    """The target's columns are those of its catalog, see `resources.digest.fields.observed`."""
    excluded: tuple[str, ...] = ()
    """Columns of the source that are not copied."""
    ignored: tuple[str, ...] = ()
    """Those of them that nobody has excluded: they are new, and the drift policy passes them by."""
    only_in_target: tuple[str, ...] = ()
    """Columns of the target that no column of the source goes to, once it is observed."""

    @property
    def target_columns(self) -> tuple[Column, ...]:
        return tuple(column.target for column in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Of the batches that the sink receives."""
        return pa.schema([(column.target.name, column.arrow_type) for column in self.columns])

    def select(self, key_range: KeyRange, wire: WireFormat, *, rows_of: str | None = None) -> str:
        """The query, in the source's SQL, that exports a key range.

        Delimited text is one column of framed rows, see `resources.contract.delimited`.

        Args:
            key_range: the rows.
            wire: the wire format.
            rows_of: a table expression in the place of the source table.
        """
        found = [str(column.sql(wire)) for column in self.columns]
        where = self.source_key(key_range) if rows_of else self.source_range(key_range)
        if self.framed(wire):
            selected = self.source.system.dialect.framed_row(found)
        else:
            # Babelfish counts an emoji in the name of a result's column once, against the protocol
            own = own_prefix(where, *found)
            selected = ", ".join(f"{sql} AS {own}{at}" for at, sql in enumerate(found))
        table = rows_of or qualified(self.source)
        query = f"SELECT {selected} FROM {table} WHERE {where}"
        return self.source.system.dialect.exported(query) if wire == "text" else query

    def framed(self, wire: WireFormat) -> bool:
        """Whether the rows travel with terminators that are chosen for each attempt."""
        return wire == "text" and self.text_format == "delimited"

    def source_key(self, key_range: KeyRange) -> str:
        """The condition on the source's key."""
        return predicate(self.key.source, key_range, self.source.system)

    def source_range(self, key_range: KeyRange) -> str:
        """The condition that a row of the source meets which belongs to a key range."""
        return filtered(self.source_key(key_range), self.where)

    def target_range(self, key_range: KeyRange) -> str:
        """The condition on the target's key."""
        return predicate(self.key.target, key_range, self.target.system)
