"""What the planner knows of a key column: how many rows, from where to where, how dense."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from resources.dialects import predicate, qualified, quote, string_literal
from resources.endpoint import Endpoint
from resources.errors import InputError
from resources.keys.kind import key_kind, to_bound, to_number
from resources.keys.range import Bound, KeyKind, KeyRange
from resources.tables import Column, TableRef

BUCKETS = 1000
"""At most 0.1 % of the rows are misplaced, which is a tenth of a range if there are 100 ranges."""

EXACT_BYTES = 256 << 20
"""Tables of up to this size are read whole: sorting the keys of 2 M rows takes about a second."""

EXACT_ROWS = 1_000_000
"""A selection of fewer rows is read whole, however large its table is."""

SAMPLE_BYTES = 128 << 20
"""How much is read of a larger table; 600,000 rows of 200 bytes put a cut within 0.2 %."""

FINITE: dict[KeyKind, str] = {
    # infinity and the years beyond four digits lie in the open ranges at both ends
    "date": "{key} BETWEEN '0001-01-01' AND '9999-12-31'",
    "timestamp": "{key} BETWEEN '0001-01-01 00:00:00' AND '9999-12-31 23:59:59.999999'",
}


@dataclass(frozen=True)
class KeyStatistics:
    """The distribution of a table's keys. It may be estimated: ranges are correct with any."""

    rows: int
    """Rows with a key in scope; NULL keys and infinite ones are not counted."""
    minimum: Bound | None = None
    maximum: Bound | None = None
    """Never estimated, so that the open range above it starts out empty."""
    quantiles: tuple[Bound, ...] = ()
    """Ascending, from minimum to maximum, with about as many rows between any two neighbours."""
    nullable: bool = False

    def __post_init__(self) -> None:
        if self.rows and (self.minimum is None or self.maximum is None or len(self.quantiles) < 2):
            raise ValueError("statistics of rows should have a minimum, a maximum and quantiles")


def key_statistics(
    endpoint: Endpoint, table: TableRef, column: Column, *, above: Bound | None = None
) -> KeyStatistics:
    """Read the distribution of a key column.

    No ANALYZE is needed. On PostgreSQL, a table of up to 256 MiB is read whole, and of a larger one
    128 MiB in random pages; minimum and maximum come from the index if there is one. On SQL Server
    the keys are counted and numbered in their order, which reads an index on the key once.

    Args:
        endpoint: Where the table is, PostgreSQL or SQL Server.
        table: The table or view.
        column: Its key.
        above: Look only at keys at or above this; that is all that growth needs, and cheap.

    Raises:
        InputError: the column cannot be a key, or the system is not a source.
    """
    kind = key_kind(column, endpoint.system)[0]
    if endpoint.system == "postgres":
        read = _postgres
    elif endpoint.system == "sqlserver":
        read = _sqlserver
    else:
        raise InputError(f"{table}: key statistics should be of a postgres or sqlserver table")
    rows, quantiles = read(
        endpoint, table, column, kind, predicate(column, KeyRange(kind, above), endpoint.system)
    )
    # rows may have come or gone between the queries, hence the sorting
    bounds = sorted((to_bound(v, kind) for v in quantiles if v is not None), key=to_number)
    if not rows or not bounds:
        return KeyStatistics(0, nullable=column.nullable)
    return KeyStatistics(rows, bounds[0], bounds[-1], tuple(bounds), column.nullable)


def _postgres(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, condition: str
) -> tuple[int, Sequence[object]]:
    key, name = quote("postgres", column.name), qualified(table)
    if kind in FINITE:
        condition += f" AND {FINITE[kind].format(key=key)}"
    size, sampled = endpoint.query(
        # a partitioned table's rows are in its partitions; a view has no size
        "SELECT coalesce(sum(pg_catalog.pg_relation_size(relid)), 0)::bigint,"
        " (SELECT relkind IN ('r', 'p', 'm') FROM pg_catalog.pg_class WHERE oid = r.root)"
        f" FROM (SELECT {string_literal('postgres', name)}::regclass::oid AS root) r"
        " LEFT JOIN LATERAL (SELECT relid FROM pg_catalog.pg_partition_tree(r.root)"
        " UNION SELECT r.root) parts ON true GROUP BY r.root"
    )[0]
    first = endpoint.query(
        # not min() and max(), which uuid has from PostgreSQL 18 on only
        f"SELECT (SELECT {key} FROM {name} WHERE {condition} ORDER BY {key} LIMIT 1)::text,"
        f" (SELECT {key} FROM {name} WHERE {condition} ORDER BY {key} DESC LIMIT 1)::text"
    )[0]
    if first[0] is None:
        return 0, ()
    percent = 100.0
    if sampled and size > EXACT_BYTES:
        # the few rows of a growing table's end are read by the index, and no sample would hit them
        probe = (
            f"SELECT count(*) FROM (SELECT FROM {name} WHERE {condition} LIMIT {EXACT_ROWS}) few"
        )
        if endpoint.query(probe)[0][0] == EXACT_ROWS:
            percent = 100 * SAMPLE_BYTES / size
    clause = f" TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)" if percent < 100 else ""
    fractions = (
        f"SELECT array_agg(i / {BUCKETS}::float8 ORDER BY i) FROM generate_series(0, {BUCKETS}) i"
    )
    count, inner = endpoint.query(
        f"SELECT count(*), (percentile_disc(({fractions})) WITHIN GROUP (ORDER BY {key}))::text[]"
        f" FROM {name}{clause} WHERE {condition}"
    )[0]
    rows = max(1, round(count * 100 / percent))
    return rows, (first[0], *(inner or ())[1:-1], first[1])


def _sqlserver(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, condition: str
) -> tuple[int, Sequence[object]]:
    key, name = quote("sqlserver", column.name), qualified(table)
    if kind == "uuid":
        # in the order of `dialects.predicate`
        key = f"LOWER(CAST({key} AS char(36))) COLLATE Latin1_General_BIN2"
    elif re.match("datetimeoffset", column.type):
        key = f"CAST(SWITCHOFFSET({key}, '+00:00') AS datetime2(6))"
    elif kind == "timestamp":
        key = f"CAST({key} AS datetime2(6))"
    rows = int(endpoint.query(f"SELECT COUNT_BIG(*) FROM {name} WHERE {condition}")[0][0])
    if not rows:
        return 0, ()
    # the first row, and the row that ends each of the buckets; a literal of more than 32 bits would
    # be a decimal, which is divided with a fraction
    total = f"CAST({rows} AS bigint)"
    found = endpoint.query(
        f"SELECT k FROM (SELECT {key} AS k, ROW_NUMBER() OVER (ORDER BY {key}) AS i"
        f" FROM {name} WHERE {condition}) AS numbered"
        f" WHERE i = 1 OR i * {BUCKETS} / {total} > (i - 1) * {BUCKETS} / {total}"
        " ORDER BY i"
    )
    values = [row[0] for row in found]
    return rows, values if rows > BUCKETS else values[:1] + values
