"""How rows leave a system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract import catalog
from tableferry.resources.contract.catalog import Listed, TableSize
from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.refusals import Where
from tableferry.resources.contract.snapshots import SharedSnapshot
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.samples import ConstantStyle
from tableferry.resources.types.steps import OverflowPolicy

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import pyarrow as pa


@dataclass(frozen=True)
class Place:
    """Where in its table a row is stored: what stands for the key of a table that has none."""

    column: Column
    """As SQL has it, the primary key of its rows; `ranges: {by: ...}` says its name."""
    name: str
    """What the targets call it, where it is a whole number."""
    per_block: int
    """How many numbers a block has: ranges are cut between blocks."""


class Source:
    """How rows leave a system. What stands here serves any server of standard SQL, by Arrow only.

    The resource that the methods take is the system's own.
    """

    sends: Sequence[Format] = ("arrow",)
    """The formats that rows leave it in."""

    probed: Sequence[WireFormat] = ()
    """The wires that are believed only once edge values came out right: `wires.exports`."""

    style: ConstantStyle | None = None
    """How those values are written; needed for `probed` only."""

    examples: Sequence[str] = ()
    """Types that `ferry doctor` sends by way of example; planning sends those of the transfer."""

    own_key: str | None = None
    """The key that tables have by themselves: the name of the file that a row is of. Each file is a
    range then, or some; None where a declared column is cut into ranges."""

    place: Place | None = None
    """Where a row is stored, for tables that have no key; None where rows have no place."""

    snapshots = False
    """Whether all readers of a run can share one state of the database."""

    def require_installed(self, table: TableRef) -> None:
        """Find what reaches a declared table, as the environment addresses its connection.

        Raises:
            InputError: a package is not installed, or the address is none.
        """

    def require_tools(self, resource: Any, wire: WireFormat) -> None:
        """Find what sends the wire format.

        Raises:
            InputError: a tool is not installed.
        """

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """The tables and views that there are, but for the server's own.

        Args:
            endpoint: the server.
            connection: its name, as table references have it.
        """
        return catalog.listed(endpoint, connection)

    def size(self, endpoint: Endpoint, table: TableRef) -> TableSize:
        """About how large a table is."""
        return catalog.counted(endpoint, table)

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """The columns that an index begins with, those of unique ones first, as far as known."""
        return ()

    def serves_order(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """Whether an index serves the order of a key that is a text; also of a view, of which
        nobody knows.

        Args:
            endpoint: where the table is.
            table: the table or view.
            key: its key, as `Endpoint.columns` found it.
        """
        return key.name in self.leading(endpoint, table)

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """What would make an index serve that order: a statement, or words."""
        return None

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """How many rows there are, and ascending keys with about as many rows between them.

        Args:
            endpoint: where the table is.
            table: the table or view.
            column: its key.
            kind: of the key.
            where: which rows.
        """
        return catalog.numbered_quantiles(endpoint, table, column, kind, where)

    def own_ranges(
        self,
        endpoint: Endpoint,
        table: TableRef,
        known: Sequence[KeyRange] = (),
        rows: int | None = None,
    ) -> Sequence[KeyRange]:
        """The ranges that there are by themselves, with an `own_key`, in the order of their names.

        Args:
            endpoint: where the table is.
            table: the table.
            known: those of before; a file that cannot be read now keeps its own.
            rows: of a range, where files are cut; one takes more only if it cannot be cut there.

        Raises:
            InputError: there are none, or they cannot be told apart.
        """
        raise NotImplementedError

    def require_cuttable(self, table: TableRef) -> None:
        """Refuse a table, with an `own_key`, whose files cannot be cut by rows.

        Raises:
            InputError: says why.
        """
        raise InputError(f"are not declared of {table}: each file is a range")

    def fingerprints(
        self, endpoint: Endpoint, table: TableRef, ranges: Sequence[KeyRange], where: str | None
    ) -> dict[str, SourceFingerprint]:
        """Of the contents of ranges, by name, with an `own_key`; what cannot be read is told, too.

        Args:
            endpoint: where the table is.
            table: the table.
            ranges: some of `own_ranges`, or what was one.
            where: the row filter.
        """
        raise NotImplementedError

    def blocks(self, endpoint: Endpoint, table: TableRef) -> int:
        """How many blocks a table takes now, with a `place`.

        Raises:
            InputError: it has none by which it could be cut: a view, for example.
        """
        raise NotImplementedError

    def declared(self, column: Column, type_: str) -> Column:
        """A column of the source as the transfer declares it.

        Raises:
            InputError: the source itself says of which type it is, or there is no such type.
        """
        raise InputError(f"column {column.name!r}: the source itself declares {column.type}")

    def kept(self, column: Column, kind: Kind | None) -> Column:
        """A column as it was when its target was made, where its type depends on what there is.

        Args:
            column: as it is now, which is not what the target was made for.
            kind: what the target's column holds.
        """
        return column

    def row_version(self, endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
        """What changes whenever a row is written: expressions, each with an aggregate of `{}`.

        Raises:
            InputError: the table has nothing of that kind.
        """
        raise InputError(f"{table}: {endpoint.system} keeps no versions of rows; use content")

    def reading(
        self,
        endpoint: Endpoint,
        table: TableRef,
        columns: Sequence[str],
        snapshot: str | None = None,
    ) -> str:
        """What changes whenever rows that nobody has written read otherwise, for `row_version`.

        Args:
            endpoint: where the table is.
            table: the table.
            columns: those that are copied.
            snapshot: of `shared_snapshot`.
        """
        return ""

    def history(self, endpoint: Endpoint) -> str:
        """Which history of writes the server has, as far as it can tell: another one after a
        standby that was behind took over, or a backup was restored. What stands for a row in the
        one may stand for another row in the other."""
        return ""

    def remarks(self, endpoint: Endpoint, table: TableRef) -> Iterator[str]:
        """What a plan should say about a table."""
        yield from ()

    def digits(
        self, endpoint: Endpoint, table: TableRef, columns: Sequence[Column]
    ) -> dict[str, tuple[int, int, bool]]:
        """Digits before and behind the point that undeclared decimals have now, by column name.

        And whether there are values that are no numbers: NaN or infinities.
        """
        return {}

    def shared_snapshot(
        self, resource: Any, table: TableRef, joined: str | None = None, *, placed: bool = False
    ) -> AbstractContextManager[SharedSnapshot | None]:
        """One state of the database for all readers of a run, or None where it has none to share.

        Args:
            resource: the server.
            table: what is read.
            joined: the name of the state that another process holds, if it is to be that.
            placed: the table is read by the places of its rows. They are comparable in one state
                only, so that it is not replaced when it is lost, or the table is rewritten.

        Yields:
            Its `name()` is what to pass as `snapshot=`, asked for anew for each reader.
        """
        return nullcontext(None)

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """An expression that fails with a message for `contract.refusals` where a condition holds.

        Needed only by a system whose `Export` has one.
        """
        raise NotImplementedError

    def text_sql(
        self,
        format: Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
        policy: OverflowPolicy,
    ) -> str | None:
        """The expression of a field in a text format; None if there is no exact one.

        Args:
            format: the format.
            column: of the source.
            conversion: into the target's type.
            table: the table, as messages name it.
            key: expression of a row's key.
            policy: what happens to values that do not fit.
        """
        return None

    def unread_sql(self, format: Format, column: Column) -> str | None:
        """The expression that hands a column's values over to another server of the system, all of
        them as they are; None where the format cannot.

        Args:
            format: one of `formats.UNREAD`.
            column: whose type the other server has, too.
        """
        return None

    def read_arrow(
        self,
        resource: Any,
        plan: CopyPlan,
        key_range: KeyRange,
        sql: str,
        *,
        batch_rows: int,
        snapshot: str | None = None,
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """Stream a key range that is to be loaded as record batches.

        Args:
            resource: the server.
            plan: the hop.
            key_range: the rows to read.
            sql: the query that selects them.
            batch_rows: most rows of a batch.
            snapshot: of `shared_snapshot`.
        """
        found: AbstractContextManager[pa.RecordBatchReader] = resource.read_arrow(
            sql, batch_rows=batch_rows, snapshot=snapshot
        )
        return found

    def read_bytes(
        self,
        resource: Any,
        plan: CopyPlan,
        key_range: KeyRange,
        format: Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        rows_of: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Stream a key range in a format of bytes, in chunks of about 1 MiB that end at row ends.

        Args:
            resource: the server.
            plan: the hop.
            key_range: the rows to read.
            format: one that it sends, other than `arrow`.
            artifacts: gets an entry for a file that they went through.
            snapshot: of `shared_snapshot`.
            rows_of: see `CopyPlan.select`.
            silence: seconds that a tool may be silent; those of the resource if not given.
        """
        raise InputError(f"{plan.source.system} sends rows as record batches only")

    def asking(self, resource: Any) -> AbstractContextManager[Callable[[str], object]]:
        """Send several small queries, if possible by one connection."""
        return nullcontext(resource.query)


def source_of(system: System) -> Source:
    """How rows leave a system.

    Raises:
        InputError: they do not.
    """
    if not isinstance(system.source, Source):
        raise InputError(f"{system} cannot be a source of rows: {system.no_source}")
    return system.source
