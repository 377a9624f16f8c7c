"""Reads rows from PostgreSQL: as record batches, or in COPY's formats, under one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.catalog import BUCKETS, Catalogued, Structure
from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.snapshots import HeldSnapshot, SetSnapshot, SharedSnapshot
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.keys.text import LONGEST
from tableferry.resources.postgres import catalog, places
from tableferry.resources.postgres.copy_out import joined_binary
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import NO_KERBEROS
from tableferry.resources.postgres.names import about
from tableferry.resources.postgres.row_version import catalog_state, row_version, version_scope
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.snapshots import position
from tableferry.resources.postgres.storage import foreign_tables, of_timescale
from tableferry.resources.postgres.text_formats import (
    bcp_expression,
    guarded,
    sent_form,
    text_expression,
)
from tableferry.resources.postgres.types import TYPES, binary_safe, read
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import Decimal
from tableferry.resources.types.samples import ConstantStyle
from tableferry.resources.types.type_map import Column


def _text_constant(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    for character, escape in (("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        escaped = escaped.replace(character, escape)
    return f"E'{escaped}'"


EXACT_BYTES = 256 << 20
"""The largest table that is read whole: sorting the keys of 2 M rows takes about a second."""

EXACT_ROWS = 1_000_000
"""A selection of fewer rows is read whole, however large the table."""

SAMPLE_BYTES = 128 << 20
"""How much of a larger table is read; 600,000 rows of 200 bytes place a cut within 0.2 %."""

# a partitioned table's rows are in its partitions; a view has no size
SIZE_SQL = """
SELECT coalesce(sum(pg_catalog.pg_relation_size(relid)), 0)::bigint,
    (SELECT relkind IN ('r', 'p', 'm') FROM pg_catalog.pg_class WHERE oid = r.root)
FROM (SELECT {table}::regclass::oid AS root) r
LEFT JOIN LATERAL (SELECT relid FROM pg_catalog.pg_partition_tree(r.root) UNION SELECT r.root) parts
    ON true
GROUP BY r.root
"""

FINITE: dict[KeyKind, str] = {
    # infinity and years of more than four digits are in the open ranges at both ends
    "date": "{key} BETWEEN '0001-01-01' AND '9999-12-31'",
    "timestamp": "{key} BETWEEN '0001-01-01 00:00:00' AND '9999-12-31 23:59:59.999999'",
}


def quantiles(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
) -> tuple[int, Sequence[object]]:
    """See `Source.quantiles`. No ANALYZE is needed."""
    key, name = DIALECT.quote(column.name), qualified(table)
    ordered = DIALECT.in_key_order(key, column, kind)
    # a long text is cut by its beginning
    shown = f"left({key}, {LONGEST})" if kind == "text" else key
    ranked = f'{shown} COLLATE "C"' if kind == "text" else key
    if kind in FINITE:
        where += f" AND {FINITE[kind].format(key=key)}"
    if isinstance(read(column.type).kind, Decimal):
        # NaN is above all numbers, in the open range at the upper end
        where += f" AND {key} <> 'NaN'"
    lowest, highest = endpoint.query(
        # uuid has min() and max() from PostgreSQL 18 on
        f"SELECT (SELECT {shown} FROM {name} WHERE {where} ORDER BY {ordered} LIMIT 1)::text,"
        f" (SELECT {shown} FROM {name} WHERE {where} ORDER BY {ordered} DESC LIMIT 1)::text"
    )[0]
    if lowest is None:
        return 0, ()
    size, sampled = endpoint.query(about(SIZE_SQL, table))[0]
    percent = 100.0
    if sampled and size > EXACT_BYTES:
        # the few new rows of a growing table are read by the index; a sample would miss them
        probe = f"SELECT count(*) FROM (SELECT FROM {name} WHERE {where} LIMIT {EXACT_ROWS}) few"
        if endpoint.query(probe)[0][0] == EXACT_ROWS:
            percent = 100 * SAMPLE_BYTES / size
    clause = f" TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)" if percent < 100 else ""
    fractions = (
        f"SELECT array_agg(i / {BUCKETS}::float8 ORDER BY i) FROM generate_series(0, {BUCKETS}) i"
    )
    count, inner = endpoint.query(
        f"SELECT count(*), (percentile_disc(({fractions})) WITHIN GROUP (ORDER BY {ranked}))"
        f"::text[] FROM {name}{clause} WHERE {where}"
    )[0]
    rows = max(1, round(count * 100 / percent))
    return rows, (lowest, *(inner or ())[1:-1], highest)


def require_adbc(resource: PostgresServer, wire: WireFormat) -> None:
    """Require a login that ADBC can make, for the wire format arrow.

    A server that lets nobody in is told by whoever needs it.

    Raises:
        InputError: it is Kerberos'.
    """
    with suppress(ConnectionFailed):
        if wire == "arrow" and resource.by_kerberos():
            raise InputError(NO_KERBEROS)


_OWN = "application_name = current_setting('application_name') AND usename = current_user"

SIGNALS: Mapping[str, str] = {
    "active_sessions": f"""
SELECT CASE WHEN bool_or(query = '<insufficient privilege>') THEN NULL
    ELSE count(*) FILTER (WHERE state = 'active' AND backend_type = 'client backend'
        AND NOT ({_OWN})) END
FROM pg_catalog.pg_stat_activity
""",
    "replica_lag": """
SELECT CASE WHEN pg_is_in_recovery() THEN
    CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
    ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 0) END
ELSE (SELECT CASE WHEN bool_or(state IS NULL) THEN NULL
    ELSE coalesce(max(extract(epoch FROM replay_lag)), 0) END FROM pg_catalog.pg_stat_replication)
END
""",
    "oldest_xmin": f"""
SELECT greatest(0, (SELECT max(age(backend_xmin)) FROM pg_catalog.pg_stat_activity
        WHERE backend_type IS DISTINCT FROM 'walsender' AND NOT coalesce({_OWN}, false)),
    (SELECT max(greatest(age(xmin), age(catalog_xmin))) FROM pg_catalog.pg_replication_slots),
    (SELECT max(age(transaction)) FROM pg_catalog.pg_prepared_xacts))
""",
}
"""What others do, without Tableferry's sessions of the same login and application name: the
sessions of clients that run a statement, the seconds that replicas are behind (of a standby: how
far it is behind itself), and the age in transactions of the oldest one whose dead rows VACUUM has
to keep. NULL where the login may not see it.
https://www.postgresql.org/docs/current/monitoring-stats.html"""

SCATTERED_SQL = """
SELECT max(abs(s.correlation)) < 0.9
FROM pg_catalog.pg_stats s
WHERE s.schemaname = {schema} AND s.tablename = {name} AND s.attname = {key}
"""
"""https://www.postgresql.org/docs/current/view-pg-stats.html"""


class PostgresSource(Source):
    """See `Source`."""

    sends = ("pgcopy", "copy_text", "arrow", "tab_separated", "delimited")
    # Arrow is decoded from the binary format, whose values are not printed
    probed = ("text",)
    style = ConstantStyle(
        text=_text_constant,
        booleans=("'false'", "'true'"),
        utc="+00",
        texts=dict.fromkeys(("text", "character", "character varying"), True),
        free_notation=True,
    )
    place = places.PLACE
    require_tools = staticmethod(require_adbc)
    snapshots = True
    parallel = True
    signals = SIGNALS
    examples = (
        *("boolean", "smallint", "integer", "bigint", "numeric(38,10)", "numeric(18,0)", "real"),
        *("double precision", "text", "character(10)", "character varying(40)", "date", "uuid"),
        *("timestamp without time zone", "timestamp with time zone"),
        *("timestamp(3) without time zone", "time(3) without time zone"),
    )

    tables = staticmethod(catalog.listed)
    sizes = staticmethod(catalog.stored_sizes)
    leading = staticmethod(catalog.leading)
    serves_order = staticmethod(catalog.serves_order)
    quantiles = staticmethod(quantiles)
    blocks = staticmethod(places.blocks)
    row_version = staticmethod(row_version)
    catalog_state = staticmethod(catalog_state)
    version_scope = staticmethod(version_scope)
    guarded = staticmethod(guarded)
    sent_form = staticmethod(sent_form)

    def reach(self, endpoint: PostgresServer) -> None:
        """See `Source.reach`. A pooler between is noticed by the first connection."""
        with endpoint.session():
            pass

    def structures(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Structure]:
        """See `Source.structures`."""
        return catalog.structures(endpoint, tables)

    def query_columns(self, endpoint: PostgresServer, table: TableRef) -> list[Column]:  # type: ignore[override]
        """See `Source.query_columns`."""
        return endpoint.query_columns(table.query)

    def catalogued(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Catalogued]:
        """See `Source.catalogued`."""
        sizes, leading = catalog.sizes(endpoint, tables), catalog.leadings(endpoint, tables)
        blocks = places.all_blocks(endpoint, tables)
        return {
            table: Catalogued(
                sizes.get(table), leading.get(table, ()), *blocks.get(table, (None, ""))
            )
            for table in tables
        }

    def blocks_of(self, endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, int]:
        """See `Source.blocks_of`."""
        return {
            table: blocks
            for here in groups(tables)
            for table, (blocks, _) in places.all_blocks(endpoint, here).items()
            if blocks is not None
        }

    def scattered(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """See `Source.scattered`. ANALYZE knows it."""
        rows = endpoint.query(about(SCATTERED_SQL, table, key=DIALECT.literal(key.name)))
        return bool(rows and rows[0][0])

    def index_of_order(self, table: TableRef, key: Column) -> str:
        """The statement for an index by expression: the column has another collation."""
        ordered = DIALECT.in_key_order(DIALECT.quote(key.name), key, "text")
        return f"CREATE INDEX ON {qualified(table)} (({ordered}))"

    def history(self, endpoint: Endpoint) -> str:
        """See `Position.history`."""
        here = position(endpoint.query)
        return here.history if here else ""

    def remarks(self, endpoint: Endpoint, table: TableRef) -> Iterator[str]:
        """Say which tables inherit from a table, and what is known of an extension's."""
        if about_it := of_timescale(endpoint, table):
            yield f"{table}: {about_it}"
        elif names := catalog.children(endpoint, table):
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            yield (
                f"{table}: the rows of {shown}, which inherit from it, are moved with its own; a "
                "primary key of it does not hold for them, so that the target gets none (a view of "
                "ONLY its own rows, and a transfer for each other table, would keep theirs)"
            )

    def digits(
        self, endpoint: Endpoint, table: TableRef, columns: Sequence[Column]
    ) -> dict[str, tuple[int, int, bool]]:
        """See `Source.digits`."""
        types = {column.name: TYPES.read(column.type).name for column in columns}
        values = {name: DIALECT.quote(name) for name in types if types[name] == "numeric"}
        found = _digits(endpoint, values, qualified(table))
        for name in (name for name in types if types[name] == "numeric[]"):
            items = f"unnest({DIALECT.quote(name)}) AS __ferry_items(item)"
            found |= _digits(endpoint, {name: "__ferry_items.item"}, f"{qualified(table)}, {items}")
        return found

    def shared_snapshot(
        self,
        resource: PostgresServer,
        table: TableRef,
        joined: HeldSnapshot | None = None,
        *,
        by_place: bool = False,
    ) -> AbstractContextManager[SharedSnapshot | None]:
        """See `PostgresServer.shared_snapshot`.

        A look takes none: what it says of a range is of one statement. A budget of one connection
        leaves none to read under a snapshot, and one that others hold cannot be joined by it.
        """
        shares = resource.shares_snapshots
        if by_place:
            if not shares:
                raise InputError(
                    f"{table}: its ranges of blocks are read under one snapshot, which takes two "
                    "connections; its budget is one"
                )
        elif resource.ahead is not None or not (joined or shares):
            return nullcontext(None)
        return resource.shared_snapshot(table, joined, by_place=by_place)

    def outside_snapshots(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, str]:
        """See `Source.outside_snapshots`. Foreign tables are read in other databases."""
        return {
            table: f"reads the foreign table {', '.join(names)}"
            for table, names in foreign_tables(endpoint.query, tables).items()
        }

    def set_snapshot(self, resource: PostgresServer) -> AbstractContextManager[SetSnapshot]:
        """See `PostgresServer.set_snapshot`."""
        return resource.set_snapshot()

    def text_sql(
        self,
        format: Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
    ) -> str | None:
        """See `Source.text_sql`."""
        if format == "delimited":
            return bcp_expression(column, conversion, table, key)
        return text_expression(column, conversion, table, key)

    def unread_sql(self, format: Format, column: Column) -> str | None:
        """See `Source.unread_sql`. Binary COPY carries types that every server reads alike."""
        name = DIALECT.quote(column.name)
        if column.type == places.CTID:
            return places.NUMBER.replace("{}", name)
        if format == "pgcopy":
            return name if binary_safe(column.type) else None
        # COPY prints an xml without its declaration
        return f"{name}::text" if column.type == "xml" else name

    def read_bytes(
        self,
        resource: PostgresServer,
        plan: CopyPlan,
        sql: str,
        format: Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """See `Source.read_bytes`."""
        return resource.read_text(sql, snapshot=snapshot, binary=format == "pgcopy")

    def joined(
        self, format: Format | None, streams: Iterator[Iterator[Any]]
    ) -> Generator[Any, None, None]:
        """See `Source.joined`."""
        if format == "pgcopy":
            return joined_binary(streams)
        return super().joined(format, streams)

    @contextmanager
    def asking(self, resource: PostgresServer) -> Iterator[Callable[[str], object]]:
        """Use one session, also after a failed query."""
        with resource.session() as session:
            yield session.query


def _digits(
    endpoint: Endpoint, values: Mapping[str, str], rows: str
) -> dict[str, tuple[int, int, bool]]:
    """What `Source.digits` returns of values, given as SQL by name, of all rows."""
    expressions = []
    for value in values.values():
        # the greatest finite magnitude has the most digits before the point; NaN is above all
        finite = f"FILTER (WHERE abs({value}) < 'Infinity')"
        expressions.append(f"length(trunc(max(abs({value})) {finite})::text)")
        expressions.append(f"max(scale(trim_scale({value}))) {finite}")
        expressions.append(f"bool_or(abs({value}) >= 'Infinity')")
    row = endpoint.query(f"SELECT {', '.join(expressions)} FROM {rows}")[0] if values else ()
    digits = zip(values, row[::3], row[1::3], row[2::3], strict=True)
    return {name: (whole, *rest) for name, whole, *rest in digits if whole is not None}
