"""How rows leave a system."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract import catalog, copy_plan, fields, looking_ahead
from tableferry.resources.contract.catalog import (
    Catalogued,
    Described,
    Listed,
    Structure,
    TableSize,
)
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.limits import NAMES
from tableferry.resources.contract.refusals import Where
from tableferry.resources.contract.snapshots import HeldSnapshot, SetSnapshot, SharedSnapshot
from tableferry.resources.contract.system import System
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    TableferryError,
)
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.samples import ConstantStyle
from tableferry.resources.types.type_map import Column

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import pyarrow as pa


@dataclass(frozen=True)
class Place:
    """The place of a row in its table's storage, which is the key of a table that has none."""

    column: Column
    """The column of the places in SQL, the primary key of the rows; see `ranges: {by: ...}`."""
    name: str
    """The name of the target's column, in which a place is an integer."""
    per_block: int
    """The number of places in a block; ranges end between blocks."""


class Source:
    """How rows leave a system. This class serves any server of standard SQL, by Arrow only.

    Methods that take a resource get one of the system.
    """

    sends: Sequence[copy_plan.Format] = ("arrow",)
    """The formats that it can send."""

    probed: Sequence[copy_plan.WireFormat] = ()
    """The wire formats that are used only after edge values have arrived, see `wires.exports`."""

    style: ConstantStyle | None = None
    """How those values are written; needed for `probed` only."""

    examples: Sequence[str] = ()
    """The types that `ferry doctor` probes; planning probes those of the transfer."""

    file_key: str | None = None
    """The name of the column with the file of a row, if a table's ranges are files, or parts of
    them; None if a declared column is cut into ranges."""

    place: Place | None = None
    """The place of a row, for tables that have no key; None if the system has no such thing."""

    by_columns = False
    """Whether a condition on a column reads that column alone, so that rows are found by it without
    an index."""

    versions_last = True
    """Whether rows keep their versions until somebody writes to the table. Otherwise `auto` alone
    goes by them: a range would move whenever the server reorganizes its storage."""

    snapshots = False
    """Whether all readers of a run can share a state of the database."""

    parallel = False
    """Whether a statement has parallel workers, whose number a session can bound."""

    signals: Mapping[str, str] = {}
    """The queries of what readers may wait for, by `contract.limits.SIGNALS`, without the probe."""

    instead_of_snapshot = "a copy of the tables that nobody writes to"
    """Where a set of tables can be read in one state, if there are no `snapshots`."""

    def require_installed(self, table: TableRef) -> None:
        """Make sure that the packages which reach a declared table are installed.

        Raises:
            InputError: one is not, or the connection has no valid address.
        """

    def require_tools(self, resource: Any, wire: copy_plan.WireFormat) -> None:
        """Make sure that the tools which send a wire format are installed.

        Raises:
            InputError: one is not.
        """

    def reach(self, endpoint: Any) -> None:
        """Log in, if only then it is known what the server lends (`Endpoint.budget`)."""

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """List the tables and views, without the server's own, as references by a connection."""
        return catalog.listed(endpoint, connection)

    def columns_of(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, list[Column]]:
        """Return the columns of many tables, without those that do not exist."""
        columns: dict[TableRef, list[Column]] = {}
        for here in looking_ahead.groups(tables):
            columns |= endpoint.columns_of(here)
        return columns

    def structures(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Structure] | None:
        """Return the keys, indexes and defaults of tables of one schema.

        None if the system's tables have no unique keys.
        """
        return None

    def query_columns(self, endpoint: Endpoint, table: TableRef) -> list[Column]:
        """Return the columns of a reference's query, as the server describes them, in their order.

        Raises:
            InputError: the server describes no query.
        """
        raise InputError(f"{table}: {endpoint.system.title} describes no query; name a view of it")

    def catalogued(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Catalogued]:
        """Return what the catalog says about many tables of one schema; nothing without a catalog.

        The number of queries does not grow with the tables.
        """
        return {}

    def sizes(self, endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, TableSize]:
        """Return the sizes of tables that the catalog knows; no rows are read.

        A system whose `catalogued` reads rows overrides it.
        """
        return {
            table: entry.size
            for here in looking_ahead.groups(tables)
            for table, entry in self.catalogued(endpoint, here).items()
            if entry.size is not None
        }

    def described(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Described | TableferryError]:
        """Return what the catalog says about each of many tables, or why it says nothing.

        Raises:
            ConnectionFailed: the server does not answer.
        """
        described: dict[TableRef, Described | TableferryError] = {}
        for here in looking_ahead.groups(tables):
            try:
                columns, entries = endpoint.columns_of(here), self.catalogued(endpoint, here)
                described |= catalog.described(endpoint, here, columns, entries)
            except ConnectionFailed:
                raise
            except TableferryError as error:
                if len(here) == 1:
                    described[here[0]] = error
                for table in here if len(here) > 1 else ():
                    # e.g. one of them was dropped meanwhile
                    described |= self.described(endpoint, [table])
        return described

    def unversioned(self, endpoint: Endpoint, table: TableRef, read_by: str) -> str | None:
        """Say why a table does not keep several versions of a row; None if it does.

        Args:
            endpoint: the server.
            table: the table.
            read_by: the SQL by which its rows will be selected.

        Raises:
            InputError: it does, and a condition on `read_by` would show an older one.
        """
        return f"{endpoint.system.title} keeps one version of a row"

    def shard(self, endpoint: Endpoint, table: TableRef) -> str | None:
        """Return the SQL of the number of the server that has a row, where a table is spread over
        several; None if it is not."""
        return None

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """List the first columns of indexes, those of unique indexes first, as far as known."""
        entry = self.catalogued(endpoint, [table]).get(table)
        return entry.leading if entry else ()

    def serves_order(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """Whether an index serves the order of a text key; True for a view, where it is unknown."""
        return key.name in self.leading(endpoint, table)

    def scattered(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """Whether the rows of neighbouring keys are known to lie all over the table."""
        return False

    def unlimited(self) -> frozenset[str]:
        """Name the `contract.limits` that the system does not know."""
        here = {"longest_statement", "longest_wait", "probe", "probe_above", *self.signals}
        here |= {"oldest_snapshot"} if self.snapshots else set()
        here |= {"parallel_workers"} if self.parallel else set()
        return frozenset(NAMES) - (here if self.file_key is None else set())

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """Say how to make an index for that order: a statement, or a sentence."""
        return None

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """Return the number of rows, and ascending keys with about as many rows between any two.

        By default the keys are counted and numbered in order, which reads an index of the key once.
        """
        return catalog.numbered_quantiles(endpoint, table, column, kind, where)

    def own_ranges(
        self,
        endpoint: Endpoint,
        table: TableRef,
        known: Sequence[KeyRange] = (),
        rows: int | None = None,
    ) -> Sequence[KeyRange]:
        """List the ranges of a table with a `file_key`, in the order of their names.

        A file that cannot be read keeps its `known` ranges. If `rows` is given, files are cut into
        ranges of about that many, where that is possible.

        Raises:
            InputError: there are none, or two have the same name.
        """
        raise NotImplementedError

    def require_cuttable(self, table: TableRef) -> None:
        """Refuse a table with a `file_key` whose files cannot be cut by rows.

        Raises:
            InputError: the message says why.
        """
        raise InputError(f"are not declared of {table}: each file is a range")

    def fingerprints(
        self, endpoint: Endpoint, table: TableRef, ranges: Sequence[KeyRange], where: str | None
    ) -> dict[str, SourceFingerprint]:
        """Return the fingerprints of present or earlier `own_ranges` by name, unreadable or not."""
        raise NotImplementedError

    def blocks(self, endpoint: Endpoint, table: TableRef) -> int:
        """Return the number of blocks of a table whose rows have a `place`.

        Raises:
            InputError: it has no blocks, for example a view.
        """
        raise NotImplementedError

    def blocks_of(self, endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, int]:
        """Return the number of blocks of those tables that have some, by a query per schema."""
        raise NotImplementedError

    def declared(self, column: Column, type_: str) -> Column:
        """Return a column with the type that the transfer declares.

        Raises:
            InputError: the source itself declares the type, or there is no such type.
        """
        raise InputError(f"column {column.name!r}: the source itself declares {column.type}")

    def kept(self, column: Column, kind: Kind | None) -> Column:
        """Return a column as it was when its target's, of another kind, was created.

        They differ only if the type of the source's column depends on its data.
        """
        return column

    def row_version(self, endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
        """List expressions that change whenever a row is written, each with an aggregate of `{}`.

        Raises:
            InputError: the table has none.
        """
        raise InputError(f"{table}: {endpoint.system} keeps no versions of rows; use content")

    def catalog_state(
        self,
        endpoint: Endpoint,
        table: TableRef,
        columns: Sequence[str],
        snapshot: str | None = None,
    ) -> str:
        """Return a text that changes whenever rows read differently without having been written.

        Fingerprints by `row_version` include it.
        """
        return ""

    def version_scope(
        self,
        endpoint: Endpoint,
        table: TableRef,
        columns: Sequence[str],
        snapshot: str | None = None,
    ) -> str | None:
        """Return what ties the values of a table to the versions of its rows.

        As long as neither this, nor `catalog_state`, nor a row's version has changed, the row's
        values have not. None if the values could change all the same, or if rows have no versions:
        then `auto` reads the contents.

        Args:
            endpoint: the server.
            table: the table or view.
            columns: the columns that are copied.
            snapshot: a name from `shared_snapshot`.
        """
        return None

    def history(self, endpoint: Endpoint) -> str:
        """Identify the server's history of writes, as far as it is known.

        There is a new one after a failover to a standby that lagged, or after a backup was
        restored: the same row version may then mean another row.
        """
        return ""

    def remarks(self, endpoint: Endpoint, table: TableRef) -> Iterator[str]:
        """Yield sentences about a table that a plan should show."""
        yield from ()

    def digits(
        self, endpoint: Endpoint, table: TableRef, columns: Sequence[Column]
    ) -> dict[str, tuple[int, int, bool]]:
        """Return the digits before and after the point that the values of decimals have, by name.

        The third item is whether there are NaN or infinities.
        """
        return {}

    def shared_snapshot(
        self,
        resource: Any,
        table: TableRef,
        joined: HeldSnapshot | None = None,
        *,
        by_place: bool = False,
    ) -> AbstractContextManager[SharedSnapshot | None]:
        """Share a state of the database among all readers of a run; None if the system cannot.

        Args:
            resource: the server.
            table: the table to read.
            joined: the snapshot of a state that another process shares.
            by_place: the table is read by the places of its rows. They can be compared within one
                state only, so no snapshot replaces one that is lost, or whose table is rewritten.

        Yields:
            Each reader passes its `name()` as `snapshot=`.
        """
        return nullcontext(None)

    def outside_snapshots(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, str]:
        """Return why tables are not read in the state of a snapshot: they are another server's."""
        return {}

    def set_snapshot(self, resource: Any) -> AbstractContextManager[SetSnapshot]:
        """Hold a state of the database in which any process can read any number of tables.

        Needed only where there are `snapshots`.
        """
        raise NotImplementedError

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """Write an expression that fails with a message of `contract.refusals` on a condition.

        Needed only by a system with an `Export.refuse`.
        """
        raise NotImplementedError

    def text_sql(
        self,
        format: copy_plan.Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
    ) -> str | None:
        """Write a field of a text format; None if no expression is exact.

        Messages about values that do not fit name the table and the key, an expression.
        """
        return None

    def sent_form(self, field: fields.Field, sent: str | None) -> fields.Form | None:
        """Return how a field of `tab_separated` rows is written, if its bytes have all of the value
        that is compared, as the server would digest it; None if not.

        Args:
            field: the column.
            sent: its `text_sql`.
        """
        return None

    def unread_sql(self, format: copy_plan.Format, column: Column) -> str | None:
        """Write a field in a `loader.UNREAD` for a column of the same type; None if not exact."""
        return None

    def read_arrow(
        self,
        resource: Any,
        plan: copy_plan.CopyPlan,
        key_range: KeyRange,
        sql: str,
        *,
        batch_rows: int,
        snapshot: str | None = None,
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """Stream a key range, selected by `sql`, that is to be loaded as record batches."""
        reader: AbstractContextManager[pa.RecordBatchReader] = resource.read_arrow(
            sql, batch_rows=batch_rows, snapshot=snapshot
        )
        return reader

    def read_bytes(
        self,
        resource: Any,
        plan: copy_plan.CopyPlan,
        sql: str,
        format: copy_plan.Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Stream rows in a format of bytes, in chunks of about 1 MiB that end at row ends.

        Args:
            resource: the server.
            plan: the hop.
            sql: selects the rows, see `CopyPlan.select`.
            format: one of `sends` other than `arrow`.
            artifacts: a list that gets the file through which the rows passed, if any.
            snapshot: the name of a `shared_snapshot`.
            silence: seconds without output until a tool is stopped; by default the resource's.
        """
        raise InputError(f"{plan.source.system} sends rows as record batches only")

    def joined(
        self, format: copy_plan.Format | None, streams: Iterator[Iterator[Any]]
    ) -> Generator[Any, None, None]:
        """Join streams of a format, or of batches, to a single one."""
        for stream in streams:
            yield from stream

    def asking(self, resource: Any) -> AbstractContextManager[Callable[[str], object]]:
        """Yield a function that sends small queries, if possible all by one connection."""
        return nullcontext(resource.query)


def source_of(system: System) -> Source:
    """Return the source of a system.

    Raises:
        InputError: it has none.
    """
    if not isinstance(system.source, Source):
        raise InputError(f"{system} cannot be a source of rows: {system.no_source}")
    return system.source


def columns_of_rows(endpoint: Endpoint, table: TableRef) -> list[Column]:
    """Return the columns of a table, a view, files, or a query.

    Raises:
        TableMissing: there is no such table.
        InputError: two columns of the query have the same name, or none.
    """
    if not table.query:
        return endpoint.columns(table)
    columns = source_of(table.system).query_columns(endpoint, table)
    names = [column.name for column in columns]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1 or not name]:
        which = f"several columns are named {twice[0]!r}" if twice[0] else "a column has no name"
        raise InputError(f"{table}: {which}; name them by AS")
    return columns
