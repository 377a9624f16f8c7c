"""The distribution of a table's keys."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.catalog import BUCKETS
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.keys.text import LONGEST
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.names import about
from tableferry.resources.postgres.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Decimal

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
