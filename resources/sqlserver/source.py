"""How rows leave SQL Server: as the driver's record batches, or as text that bcp writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.catalog import Catalogued, Structure
from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import Source
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.sqlserver import bcp, bcp_tool, catalog, ddl, policies, tsv_text, types
from tableferry.resources.sqlserver.dialect import (
    DIALECT,
    KEY_ORDER,
    UTF8_ORDER,
    literal,
    orders_text,
)
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.samples import SECOND, ConstantStyle
from tableferry.resources.types.type_map import Column


def _text(text: str) -> str:
    constant = literal(text)
    for character in "\t\n\r":
        constant = constant.replace(character, f"' + NCHAR({ord(character)}) + N'")
    return f"({constant})"


def require_bcp(resource: SqlServerServer, wire: WireFormat) -> None:
    """Require bcp for the wire format text.

    Raises:
        InputError: it is not installed, or cannot log in.
    """
    if wire == "text":
        bcp_tool.find_tool().require_login(resource.login())


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

# The value of a column that was dropped and recreated comes from its default.
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


def version_scope(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], snapshot: str | None = None
) -> str | None:
    """See `Source.version_scope`.

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


class SqlServerSource(Source):
    """See `Source`."""

    sends = ("arrow", "tab_separated")
    probed = ("arrow", "text")
    style = ConstantStyle(
        text=_text,
        booleans=("0", "1"),
        utc="+00:00",
        texts={
            **dict.fromkeys(("char", "varchar", "text"), False),
            **dict.fromkeys(("nchar", "nvarchar", "ntext"), True),
        },
        largest={"money": "922337203685477.5807", "smallmoney": "214748.3647"},
        # datetime counts in 1/300 s, smalldatetime in minutes
        steps={"datetime": SECOND, "smalldatetime": 60 * SECOND},
        fractions={"datetime": ("003", "007")},
        seventh="CASE WHEN DATEPART(nanosecond, {0}) % 1000 <> 0 THEN {0} END",
    )
    examples = (
        *("bit", "tinyint", "smallint", "int", "bigint", "decimal(38,10)", "decimal(18,0)"),
        *("money", "smallmoney", "float(53)", "real", "char(10)", "varchar(40)", "varchar(max)"),
        *("nchar(10)", "nvarchar(40)", "nvarchar(4000)", "nvarchar(max)", "date", "time(0)"),
        *("time(3)", "time(7)", "datetime", "smalldatetime", "datetime2(0)", "datetime2(3)"),
        *("datetime2(6)", "datetime2(7)", "datetimeoffset(0)", "datetimeoffset(3)"),
        *("datetimeoffset(6)", "datetimeoffset(7)", "uniqueidentifier"),
    )

    instead_of_snapshot = "a database snapshot (CREATE DATABASE ... AS SNAPSHOT OF ...)"

    tables = staticmethod(policies.listed)
    row_version = staticmethod(row_version)
    version_scope = staticmethod(version_scope)

    def require_tools(self, resource: SqlServerServer, wire: WireFormat) -> None:
        """Text needs bcp."""
        require_bcp(resource, wire)

    def structures(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Structure]:
        """See `Source.structures`."""
        return catalog.structures(endpoint.query, tables)

    def query_columns(self, endpoint: Endpoint, table: TableRef) -> list[Column]:
        """See `Source.query_columns`."""
        return catalog.described(endpoint.query, table.query)

    def catalogued(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Catalogued]:
        """See `Source.catalogued`."""
        return catalog.catalogued(endpoint.query, tables)

    def serves_order(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """If the key's own collation is that order, an index on it does."""
        return orders_text(key) and super().serves_order(endpoint, table, key)

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """An index has the collation that its column is declared with."""
        if not ddl.indexable(key):
            return f"a type of {ddl.INDEX_BYTES} bytes at most, such as nvarchar(200)"
        order = UTF8_ORDER if types.read(key.type).name in ("char", "varchar") else KEY_ORDER
        order = str(key.collation) if orders_text(key) else order
        return f"an index, and COLLATE {order} for the column"

    def text_sql(
        self,
        format: Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
    ) -> str | None:
        """See `tsv_text.tab_separated`."""
        return tsv_text.tab_separated(column, conversion, table, key)

    def read_bytes(
        self,
        resource: SqlServerServer,
        plan: CopyPlan,
        sql: str,
        format: Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """By bcp queryout."""
        return bcp.read_tab_separated(resource, plan, sql, artifacts, silence=silence)

    @contextmanager
    def asking(self, resource: SqlServerServer) -> Iterator[Callable[[str], object]]:
        """Use one connection for all questions."""
        with resource.pooled_connection() as connection:
            yield connection.query
