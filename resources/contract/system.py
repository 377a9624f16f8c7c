"""What a system has to offer: its SQL, its types, its row digest, and how rows leave and enter it.

Adding a system is writing these parts in a folder of its own and naming it in `resources.registry`;
docs/adding-a-system.md shows how.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Protocol

from tableferry.resources.connecting.address import Scheme, Server
from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.health import Finding, Use
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.target import RangeLoad, Target, TargetOptions
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.digest.definition import Algorithm
from tableferry.resources.digest.fields import Field, Valued
from tableferry.resources.digest.overflow_sql import OverflowSql
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.tables import Column, TableRef
from tableferry.resources.types.type_map import TypeMap


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


class DigestWriter(Protocol):
    """The canonical form of a row, and its digest, in a system's SQL: see `digest.definition`.

    A module of these functions is one.
    """

    @property
    def VARIANTS(self) -> Sequence[str]:
        """The ways in which it can be written, the preferred first; what a server has is found by
        trying."""

    @property
    def CONSTANTS(self) -> Mapping[str, tuple[str, str]]:
        """By name of `digest.probe.VALUES`: the declared type and the literal of what it has."""

    def whole(self, field: Field, column: Column, x: str) -> str | None:
        """A 64-bit integer that stands for the value and sorts like it; None if there is none."""

    def text(self, field: Field, column: Column, x: str) -> str:
        """The value's canonical form; of text, the text alone."""

    def framed(
        self, field: Field, column: Column, x: str, algorithm: Algorithm, variant: str
    ) -> str:
        """The canonical form as it stands in a row; NULL for NULL."""

    def sent_exactly(self, field: Field, column: Column) -> bool:
        """Whether the driver's record batches hold the very values, in the kind that is compared;
        asked where the client computes digests."""

    def row(self, values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
        """The text of a row: the framed values, and `NULL` for those that are NULL."""

    def digest(self, row_text: str, algorithm: Algorithm, variant: str) -> str:
        """The digest of a row's text, a 64-bit integer."""

    def exact_sum(self, field: Field, x: str) -> str:
        """The sum of integers or decimals, as text."""


Rehearsal = Callable[[Any, CopyPlan, TargetOptions], AbstractContextManager[RangeLoad]]


@dataclass(frozen=True)
class Loader:
    """How rows enter a system."""

    open: Callable[[Any], Target]
    """The load target of a resource."""
    accepts: Sequence[Format]
    """The formats that it takes."""
    modes: Sequence[WriteMode] = tuple(WriteMode)
    """The ways in which it writes."""
    table_problem: Callable[[TableRef], str | None] = lambda table: None
    """Why a table cannot be written to, by its name alone, to be put after it; None if it can."""
    options: Mapping[str, Callable[[Any], str | None]] = field(default_factory=dict)
    """Of a hop: which of `engine`, `order_by`, `partition_by` mean something there, each with what
    says why a value cannot be, or None."""
    orders_key: Callable[[CopyPlan], bool] = lambda plan: True
    """Whether the table that is made for a plan has an index for the order of a key that is a
    text."""
    require_tools: Callable[[Any, WireFormat], None] = lambda resource, wire: None
    """Raises `InputError` if a tool that takes the wire format is not installed."""
    rehearsals: Mapping[Format, Rehearsal] = field(default_factory=dict)
    """By format that is believed only after edge values arrived by it, see `resources.wires.loads`:
    how a load is opened whose rows nobody gets to see, for a table that need not be there."""
    trial: Callable[[Any, TableRef, Format], str | None] = lambda resource, table, format: None
    """Why nothing gets into the server in a format, whatever its type, as a row has shown that was
    loaded and read back beside a table, once per server; None where it does, or where that could
    not be tried."""


@dataclass(frozen=True)
class System:
    """One kind of server: what it is called, and its parts."""

    name: str
    """As it stands in `name://schema.table`."""
    title: str
    """As its makers write it."""
    resource: type[Server]
    """What reaches a server; an `Endpoint`. A `ServerResource`, or else `dagster` names one."""
    schemes: Mapping[str, Scheme]
    """Of connection URLs; the usual one comes first."""
    database: str
    """The database that each server has."""
    dialect: Dialect
    types: TypeMap
    digest: DigestWriter
    slow_digests: Collection[str] = ()
    """Variants of `digest` that were measured to cost the server more than it costs to send the
    rows and to digest them: there the client does, unless the connection's `digest_by` decides."""
    record_digest: int | None = None
    """The digest of the row of all `digest.probe.VALUES` that it has, where `digest` also writes it
    by the system's own hash of a record; see `digest.definition.RECORD`."""
    overflow: OverflowSql | None = None
    """How its SQL tells what `on_overflow` makes of values; None where it cannot, and such columns
    are not compared."""
    by_path: str | None = None
    """A table is `name://folder/pattern`, the files of a folder whose names match; and the pattern
    that is meant where none is given."""
    is_transient: Callable[[BaseException], bool | None] = lambda error: None
    """Whether what failed with a driver's error may succeed later; None for what is not one of the
    system's drivers."""
    health: Callable[[Any, Use], Iterator[Finding]] = lambda resource, use: iter(())
    """What is well and what is not, of a server that can be reached: see `ferry doctor`."""
    unique_by: Callable[[Any, TableRef, Sequence[str]], str | None] = lambda *_: None
    """The name of what keeps a table of a resource from having two rows alike in all of some
    columns; None where nothing does."""
    hidden: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Why a resource's login does not see, or may not write, all rows of a table: its row-level
    security, and the remedies; None if it does, or nobody can tell."""
    source: Source | None = None
    no_source: str = "there is no export from it"
    """Why `source` is None."""
    extra: str | None = None
    """Tableferry's extra that brings its driver, where not every installation has it."""
    dagster: str = ""
    """`module:class` of `resource` as Dagster's; imported by those who need Dagster only."""
    loader: Loader | None = None
    no_loader: str = "there is no loader for it"
    """Why `loader` is None."""

    @property
    def url_variable(self) -> str:
        """The environment variable that addresses its usual server."""
        return f"TABLEFERRY_{self.name.upper()}_URL"

    @property
    def dagster_resource(self) -> Any:
        """What reaches a server, as a class of Dagster's resources."""
        return resolve_name(self.dagster) if self.dagster else self.resource

    def quote(self, identifier: str) -> str:
        """See `Dialect.quote`.

        Raises:
            InputError: the identifier is empty or holds NUL, which no server can name.
        """
        if not identifier or "\0" in identifier:
            raise InputError(f"{identifier!r} is not a possible name in {self.name}")
        return self.dialect.quote(identifier)

    def as_source(self) -> Source:
        """How rows leave it.

        Raises:
            InputError: they do not.
        """
        if self.source is None:
            raise InputError(f"{self.name} cannot be a source of rows: {self.no_source}")
        return self.source

    def as_target(self) -> Loader:
        """How rows enter it.

        Raises:
            InputError: they do not.
        """
        if self.loader is None:
            raise InputError(f"{self.name} cannot be a target of rows: {self.no_loader}")
        return self.loader
