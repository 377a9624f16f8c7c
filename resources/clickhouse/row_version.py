"""Versions of stored rows: the hash of the part that a row is in, and its place in the part.

The files of a part never change; a merge or a mutation writes a new part. So rows have their values
as long as they are at the same places of parts with the same hash, whichever table or server these
are in, if nothing changes the values when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef

HASHES_SQL = (
    "(SELECT (groupArray(name), groupArray(sipHash64(hash_of_all_files))) FROM system.parts "
    "WHERE database = {schema} AND table = {table} AND active)"
)

# Computed columns, and defaults of columns that a part does not have yet, may differ at each read;
# unfinished mutations and patch parts change the rows of other parts when they are read; another
# replica than that which is asked about the parts may send the rows.
TIE_SQL = """
SELECT t.create_table_query, version(), toString(serverUUID()), hostName()
FROM system.tables AS t
WHERE t.database = {schema} AND t.name = {table}
    AND endsWith(t.engine, 'MergeTree') AND NOT startsWith(t.engine, 'Shared')
    AND (NOT startsWith(t.engine, 'Replicated') OR (
        SELECT max(total_replicas) FROM system.replicas
        WHERE database = {schema} AND table = {table}) = 1)
    AND (SELECT count() FROM system.parts WHERE database = {schema} AND table = {table} AND active
        AND (startsWith(name, 'patch-') OR hash_of_all_files = '')) = 0
    AND (SELECT count() FROM system.mutations
        WHERE database = {schema} AND table = {table} AND NOT is_done) = 0
    AND (SELECT count() FROM system.columns WHERE database = {schema} AND table = {table}
        AND name IN ({columns}) AND default_kind IN ('ALIAS', 'EPHEMERAL')) = 0
    AND (SELECT count() FROM system.columns WHERE database = {schema} AND table = {table}
            AND name IN ({columns}) AND default_kind != '')
        * (SELECT count() FROM system.parts
            WHERE database = {schema} AND table = {table} AND active)
        = (SELECT count() FROM system.parts_columns
            WHERE database = {schema} AND table = {table} AND active AND column IN (
                SELECT name FROM system.columns WHERE database = {schema} AND table = {table}
                    AND name IN ({columns}) AND default_kind != ''))
"""


def row_version(endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
    """See `Source.row_version`. A part that came after the hashes were read is like no other."""
    hashes = HASHES_SQL.format(schema=literal(table.schema), table=literal(table.name))
    part = f"transform(_part, {hashes}.1, {hashes}.2, toUInt64(0))"
    place = f"if({part} = 0, rand64(), cityHash64({part}, _part_offset))"
    return [(f"reinterpretAsInt64({place})", DIALECT.exact_sum("{}"))]


def versions_tie(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str | None:
    """See `Source.versions_tie`. None but for plain tables of the MergeTree family."""
    sql = TIE_SQL.format(
        schema=literal(table.schema),
        table=literal(table.name),
        columns=", ".join(map(literal, columns)),
    )
    try:
        ties = endpoint.query(sql)
    except StatementFailed as error:
        if error.transient:
            raise
        # an older release, or a user who may not read the catalog
        return None
    return repr(ties[0]) if ties else None
