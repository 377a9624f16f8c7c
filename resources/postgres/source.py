"""How rows leave PostgreSQL: record batches by binary COPY, or COPY's text, under one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.catalog import Listed, TableSize
from tableferry.resources.contract.copy_plan import CopyPlan, Format
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.refusals import Where
from tableferry.resources.contract.snapshots import SharedSnapshot
from tableferry.resources.contract.source import Source
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.postgres import catalog, places, row_version
from tableferry.resources.postgres.bcp_text import bcp_expression
from tableferry.resources.postgres.copy_text import guarded, text_expression
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.position import position
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.statistics import quantiles
from tableferry.resources.postgres.types import TYPES, binary_safe
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.kinds import Decimal
from tableferry.resources.types.samples import ConstantStyle
from tableferry.resources.types.steps import OverflowPolicy


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    for character, escape in (("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        escaped = escaped.replace(character, escape)
    return f"E'{escaped}'"


class PostgresSource(Source):
    """See `Source`."""

    sends = ("pgcopy", "copy_text", "arrow", "tab_separated", "delimited")

    probed = ("text",)
    """`arrow` is its own binary format, which no server prints."""

    style = ConstantStyle(
        text=_text,
        booleans=("'false'", "'true'"),
        utc="+00",
        texts=dict.fromkeys(("text", "character", "character varying"), True),
        free_notation=True,
    )
    place = places.PLACE
    snapshots = True
    examples = (
        *("boolean", "smallint", "integer", "bigint", "numeric(38,10)", "numeric(18,0)", "real"),
        *("double precision", "text", "character(10)", "character varying(40)", "date", "uuid"),
        *("timestamp without time zone", "timestamp with time zone"),
        *("timestamp(3) without time zone", "time(3) without time zone"),
    )

    def tables(self, endpoint: Endpoint, connection: str) -> list[Listed]:
        """Without the partitions of others."""
        return catalog.listed(endpoint, connection)

    def size(self, endpoint: Endpoint, table: TableRef) -> TableSize:
        """Out of the catalog; of a view the rows are counted."""
        return catalog.size(endpoint, table) or super().size(endpoint, table)

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """Out of the catalog."""
        return catalog.leading(endpoint, table)

    def serves_order(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """Out of the catalog."""
        return catalog.serves_order(endpoint, table, key)

    def index_of_order(self, table: TableRef, key: Column) -> str:
        """By an index of its own, the column's collation being another."""
        ordered = DIALECT.in_key_order(DIALECT.quote(key.name), key, "text")
        return f"CREATE INDEX ON {qualified(table)} (({ordered}))"

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """By percentile_disc, of a sample if the table is large."""
        return quantiles(endpoint, table, column, kind, where)

    def blocks(self, endpoint: Endpoint, table: TableRef) -> int:
        """Of the heap."""
        return places.blocks(endpoint, table)

    def row_version(self, endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
        """The place and the writing transaction of each row."""
        return row_version.row_version(endpoint, table, DIALECT)

    def reading(
        self,
        endpoint: Endpoint,
        table: TableRef,
        columns: Sequence[str],
        snapshot: str | None = None,
    ) -> str:
        """Out of the catalog, as of the snapshot."""
        return row_version.reading(endpoint, table, columns, snapshot)

    def history(self, endpoint: Endpoint) -> str:
        """The cluster and its timeline."""
        at = position(endpoint.query)
        return at.history if at else ""

    def remarks(self, endpoint: Endpoint, table: TableRef) -> Iterator[str]:
        """That other tables inherit from it."""
        if names := catalog.children(endpoint, table):
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            yield (
                f"{table}: the rows of {shown}, which inherit from it, are moved with its own; a "
                "primary key of it does not hold for them, so that the target gets none (a view of "
                "ONLY its own rows, and a transfer for each other table, would keep theirs)"
            )

    def digits(
        self, endpoint: Endpoint, table: TableRef, columns: Sequence[Column]
    ) -> dict[str, tuple[int, int, bool]]:
        """Of bare numeric columns, by one scan."""
        types = TYPES
        bare = [
            column.name
            for column in columns
            if types.read(column.type).kind == Decimal(None, None, nan=True)
        ]
        expressions = []
        for name in bare:
            column = DIALECT.quote(name)
            # the greatest finite magnitude has the most digits before the point; NaN is above all
            finite = f"FILTER (WHERE abs({column}) < 'Infinity')"
            expressions.append(f"length(trunc(max(abs({column})) {finite})::text)")
            expressions.append(f"max(scale(trim_scale({column}))) {finite}")
            expressions.append(f"bool_or(abs({column}) >= 'Infinity')")
        if not bare:
            return {}
        row = endpoint.query(f"SELECT {', '.join(expressions)} FROM {qualified(table)}")[0]
        found = zip(bare, row[::3], row[1::3], row[2::3], strict=True)
        return {name: (whole, *rest) for name, whole, *rest in found if whole is not None}

    def shared_snapshot(
        self,
        resource: PostgresServer,
        table: TableRef,
        joined: str | None = None,
        *,
        placed: bool = False,
    ) -> AbstractContextManager[SharedSnapshot | None]:
        """An exported snapshot, which is replaced by a new one if it is of no use any more."""
        return resource.shared_snapshot(table, joined, placed=placed)

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """By a cast that fails with the message."""
        return guarded(expression, condition, where, reason, type_)

    def text_sql(
        self,
        format: Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
        policy: OverflowPolicy,
    ) -> str | None:
        """The expression of a field; None if there is no exact one."""
        if format == "delimited":
            return bcp_expression(column, conversion, table, key, policy)
        return text_expression(column, conversion, table, key, policy)

    def unread_sql(self, format: Format, column: Column) -> str | None:
        """All by text; by the binary form what every server reads alike."""
        name = DIALECT.quote(column.name)
        if column.type == places.CTID:
            return places.NUMBER.replace("{}", name)
        if format == "pgcopy":
            return name if binary_safe(column.type) else None
        # what is printed of an xml lacks its declaration
        return f"{name}::text" if column.type == "xml" else name

    def read_bytes(
        self,
        resource: PostgresServer,
        plan: CopyPlan,
        key_range: KeyRange,
        format: Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        rows_of: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """By COPY ... TO STDOUT."""
        binary = format == "pgcopy"
        sql = plan.select(key_range, "pgcopy" if binary else "text", rows_of=rows_of)
        return resource.read_text(sql, snapshot=snapshot, binary=binary)

    @contextmanager
    def asking(self, resource: PostgresServer) -> Iterator[Callable[[str], object]]:
        """By one session, also where queries fail."""
        with resource.session() as session:
            yield session.query
