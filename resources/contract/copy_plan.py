"""What a hop copies: its columns, and the SQL that selects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.table_sql import alias_prefix, filtered, predicate, read_from
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import CHANGES, Change, OverflowPolicy
from tableferry.resources.types.type_map import Column

WireFormat = Literal["arrow", "text", "pgcopy"]
Format = Literal["pgcopy", "copy_text", "arrow", "tab_separated", "delimited"]
"""The form of rows on the wire: record batches, or bytes. `pgcopy` is PostgreSQL's binary COPY and
`copy_text` its COPY text, both of which only PostgreSQL reads, so that they pass unparsed.
`tab_separated` is the common part of PostgreSQL's COPY text and ClickHouse's TabSeparated;
`delimited` has new terminators for each attempt, see `resources.contract.delimited`."""

WireChoice = Literal["auto", "arrow", "text", "pgcopy"]


@dataclass(frozen=True)
class ColumnPlan:
    """How a column travels."""

    source: Column
    target: Column
    arrow_sql: str | None
    """The source's SQL of the column for the wire format `arrow`; None if none is exact."""
    arrow_type: pa.DataType
    """The type of the column in the batches that the target receives."""
    text_sql: str | None = None
    """The source's SQL for the wire format `text`."""
    binary_sql: str | None = None
    """The same for `pgcopy`."""
    on_overflow: OverflowPolicy = "refuse"
    lossy: str = ""
    """The condition, in the source's SQL, that a declared cast has lost part of the value; empty
    without a cast."""
    fitted: str = ""
    """The planned type, which `on_overflow` makes values fit even if a table has a wider one."""
    compared: Field | None = None
    """What is compared of the column, if the types of a hop do not decide that."""

    @property
    def change(self) -> Change | None:
        """What values become that the target cannot hold; None if they are refused."""
        return CHANGES.get(self.on_overflow)

    def sql(self, wire: WireFormat) -> str | None:
        """The expression for a wire format; None if none is exact."""
        return {"arrow": self.arrow_sql, "text": self.text_sql, "pgcopy": self.binary_sql}[wire]


@dataclass(frozen=True)
class CopyPlan:
    """A hop of a table: its source, its target, and what becomes of every column."""

    source: TableRef
    target: TableRef
    columns: tuple[ColumnPlan, ...]
    key: ColumnPlan
    primary_key: tuple[str, ...] = ()
    """The target names of the source's primary key columns, in key order."""
    figures: tuple[str, ...] = ()
    """The target names of the columns whose sum, minimum and maximum a checksum shows."""
    text_format: Format | None = None
    """The format that `text` stands for between the two systems; None if they share none."""
    target_version: str = ""
    """The target's release, if the values of its columns depend on it; else empty."""
    where: str | None = None
    """The row filter, in the source's SQL; None: all rows."""
    target_where: str | None = None
    """The condition, in the target's SQL, of the rows that are the source's: all but marked ones,
    or those that a comparison is about."""
    final: tuple[TableRef, ...] = ()
    """Those of the tables that are read with FINAL: of each row's versions the newest."""
    fitting: str | None = None
    """The condition, in the source's SQL, that the target can hold all values of a row, if other
    rows are kept beside the target; None if they are an error."""
    observed: bool = False
    """Whether the target's columns come from its catalog, see `digest.fields.observed`."""
    excluded: tuple[str, ...] = ()
    """Columns of the source that are not copied."""
    ignored: tuple[str, ...] = ()
    """Those of them that the drift policy has left out because they are new."""
    only_in_target: tuple[str, ...] = ()
    """Columns of the observed target that get no values from the source."""

    @property
    def condition(self) -> str | None:
        """The condition on the rows that the target gets; None: all rows."""
        return filtered(self.fitting, self.where) if self.fitting else self.where

    @property
    def row_identity(self) -> tuple[str, ...]:
        """The target columns of the source's primary key; empty unless all of them travel."""
        names = {column.name for column in self.target_columns}
        return self.primary_key if names.issuperset(self.primary_key) else ()

    @property
    def row_key(self) -> list[int]:
        """The positions of the columns that name a row in messages: the primary key's, or else the
        key's."""
        names, key = [column.name for column in self.target_columns], self.key.target.name
        return [*map(names.index, self.primary_key if key in self.primary_key else [key])]

    @property
    def target_columns(self) -> tuple[Column, ...]:
        return tuple(column.target for column in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches that the target receives."""
        return pa.schema([(column.target.name, column.arrow_type) for column in self.columns])

    def select(self, key_range: KeyRange, wire: WireFormat, *, rows_of: str | None = None) -> str:
        """Write the query, in the source's SQL, that exports a key range.

        Delimited text is a single column of framed rows, see `resources.contract.delimited`.

        Args:
            key_range: the rows.
            wire: the wire format.
            rows_of: a table expression that replaces the source table and its row filter.
        """
        fields = [str(column.sql(wire)) for column in self.columns]
        key = predicate(self.key.source, key_range, self.source.system)
        where = key if rows_of else filtered(key, self.condition)
        if self.framed(wire):
            selected = self.source.system.dialect.framed_row(fields)
        else:
            # plain aliases: Babelfish counts an emoji in the name of a result's column as one
            # UTF-16 unit, where the protocol counts two
            prefix = alias_prefix(where, *fields)
            selected = ", ".join(f"{sql} AS {prefix}{at}" for at, sql in enumerate(fields))
        table = rows_of or read_from(self.source)
        query = f"SELECT {selected} FROM {table} WHERE {where}"
        return self.source.system.dialect.exported(query) if wire == "text" else query

    def framed(self, wire: WireFormat) -> bool:
        """Whether the rows are framed by terminators that are chosen for each attempt."""
        return wire == "text" and self.text_format == "delimited"

    def source_range(self, key_range: KeyRange) -> str:
        """The condition that selects the rows of a key range in the source."""
        return filtered(predicate(self.key.source, key_range, self.source.system), self.condition)

    def target_range(self, key_range: KeyRange) -> str:
        """The condition that selects the rows of a key range in the target."""
        return filtered(self.target_keys(key_range), self.target_where)

    def target_keys(self, key_range: KeyRange) -> str:
        """The condition that the key of a row of the target is in a range, marked or not."""
        return predicate(self.key.target, key_range, self.target.system)
