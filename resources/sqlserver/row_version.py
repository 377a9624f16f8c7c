"""Versions of stored rows, which SQL Server keeps in a column of type rowversion."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.tables import TableRef

# A restored, attached or restarted database may give versions away twice.
HISTORY_SQL = """
SELECT d.database_id, d.create_date, t.create_date, CAST(r.recovery_fork_guid AS nvarchar(36))
FROM sys.databases AS d CROSS JOIN sys.databases AS t
INNER JOIN sys.database_recovery_status AS r ON r.database_id = d.database_id
WHERE d.database_id = DB_ID() AND t.name = N'tempdb'
"""

# SELECT INTO copies versions: another table by the name, or another partition switched into it,
# may have the same ones.
PARTITIONS_SQL = """
SELECT o.object_id, p.partition_id, p.hobt_id FROM sys.partitions AS p
INNER JOIN sys.objects AS o ON o.object_id = p.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND o.type = 'U' AND p.index_id IN (0, 1)
ORDER BY p.partition_number
"""

# The value of a column that was dropped and made anew comes from its default.
COLUMNS_SQL = """
SELECT CAST(c.name AS nvarchar(128)), c.column_id, c.system_type_id, c.user_type_id, c.max_length,
    c.precision, c.scale, CAST(c.collation_name AS nvarchar(128)),
    c.is_computed, c.is_masked, c.is_filestream
FROM sys.columns AS c INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name = {table} AND o.type = 'U' ORDER BY c.column_id
"""

WRITTEN_APART = (34, 35, 99, 240)
"""Types whose values change without a new row version: image, text and ntext by WRITETEXT, and
types of assemblies by another assembly."""


def version_column(endpoint: Endpoint, table: TableRef) -> str | None:
    """Return the name of a table's rowversion column, or None if there is none."""
    columns = endpoint.columns(table)
    return next((one.name for one in columns if one.type in ("timestamp", "rowversion")), None)


def row_version(endpoint: Endpoint, table: TableRef) -> list[tuple[str, str]]:
    """See `Source.row_version`. Sums of the versions themselves could be equal by chance.

    Raises:
        InputError: there is no rowversion column.
    """
    name = version_column(endpoint, table)
    if name is None:
        raise InputError(
            f"{table}: fingerprint row_version needs a rowversion column, and there is none; "
            "add one, or use content"
        )
    version = DIALECT.quote(name)
    hashed = f"HASHBYTES('SHA2_256', CAST({version} AS binary(8)))"
    return [
        (f"CAST(SUBSTRING({hashed}, 1, 8) AS bigint)", DIALECT.exact_sum("{}")),
        (f"CAST({version} AS bigint)", "MAX({})"),
    ]


def versions_tie(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str | None:
    """See `Source.versions_tie`.

    None also where the login may not see what a restored backup changes, and for columns that are
    computed, masked, or written without a new row version.
    """
    if version_column(endpoint, table) is None:
        return None
    names = {"schema": literal(table.schema), "table": literal(table.name)}
    try:
        history = endpoint.query(HISTORY_SQL)
        partitions = endpoint.query(PARTITIONS_SQL.format(**names))
        all_columns = endpoint.query(COLUMNS_SQL.format(**names))
    except StatementFailed as error:
        if error.transient:
            raise
        return None
    copied = [tuple(column) for column in all_columns if column[0] in columns]
    unsafe = any(column[2] in WRITTEN_APART or any(column[-3:]) for column in copied)
    if not (history and partitions and copied) or None in history[0] or unsafe:
        return None
    return repr(([*map(tuple, history)], [*map(tuple, partitions)], copied))
