"""How rows leave SQL Server: as the driver's record batches, or as text that bcp writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tableferry.resources.artifacts import Artifact
from tableferry.resources.contract.catalog import Catalogued, TableSize, by_schema
from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.structure import Structure
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.sqlserver.bcp import read_tab_separated
from tableferry.resources.sqlserver.bcp_tool import ARGUMENT_BYTES, TOO_LONG
from tableferry.resources.sqlserver.catalog import (
    catalogued,
    columns_of,
    described,
    structures,
)
from tableferry.resources.sqlserver.ddl import INDEX_BYTES, indexable
from tableferry.resources.sqlserver.dialect import (
    KEY_ORDER,
    UTF8_ORDER,
    literal,
    orders_text,
)
from tableferry.resources.sqlserver.row_version import row_version, versions_tie
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.tsv_text import tab_separated
from tableferry.resources.sqlserver.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.samples import SECOND, ConstantStyle
from tableferry.resources.types.steps import OverflowPolicy

RESERVED_BYTES = 8 << 10
"""What a range's bounds and the placeholders of empty texts may add to its query."""


def _text(text: str) -> str:
    constant = literal(text)
    for character in "\t\n\r":
        constant = constant.replace(character, f"' + NCHAR({ord(character)}) + N'")
    return f"({constant})"


def require_bcp(resource: SqlServerServer, wire: WireFormat) -> None:
    """Require bcp for the wire format text.

    Raises:
        InputError: it is not installed.
    """
    if wire == "text":
        resource.bcp_tool()


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

    row_version = staticmethod(row_version)
    versions_tie = staticmethod(versions_tie)

    def require_tools(self, resource: SqlServerServer, wire: WireFormat) -> None:
        """Text needs bcp."""
        require_bcp(resource, wire)

    def unsendable(self, plan: CopyPlan, wire: WireFormat) -> str | None:
        """bcp gets the query as an argument."""
        if wire != "text":
            return None
        query = plan.select(KeyRange("integer"), "text")
        return TOO_LONG if len(query.encode()) + RESERVED_BYTES > ARGUMENT_BYTES else None

    def size(self, endpoint: Endpoint, table: TableRef) -> TableSize:
        """From the catalog; the rows of a view are counted."""
        known = catalogued(endpoint.query, [table]).get(table)
        return (known and known.size) or super().size(endpoint, table)

    def leading(self, endpoint: Endpoint, table: TableRef) -> Sequence[str]:
        """From the catalog, the columns of unique indexes first."""
        known = catalogued(endpoint.query, [table]).get(table)
        return known.leading if known else ()

    def columns_of(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, list[Column]]:
        """See `Source.columns_of`. Three queries per schema and thousand tables."""
        columns: dict[TableRef, list[Column]] = {}
        for here in by_schema(tables):
            columns |= columns_of(endpoint.query, here)
        return columns

    def structures(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Structure]:
        """See `Source.structures`."""
        return structures(endpoint.query, tables)

    def query_columns(self, endpoint: Endpoint, table: TableRef) -> list[Column]:
        """See `Source.query_columns`."""
        return described(endpoint.query, table.query)

    def catalogued(
        self, endpoint: Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, Catalogued]:
        """See `Source.catalogued`."""
        return catalogued(endpoint.query, tables)

    def serves_order(self, endpoint: Endpoint, table: TableRef, key: Column) -> bool:
        """If the key's own collation is that order, an index on it does."""
        return orders_text(key) and super().serves_order(endpoint, table, key)

    def index_of_order(self, table: TableRef, key: Column) -> str | None:
        """An index has the collation that its column is declared with."""
        if not indexable(key):
            return f"a type of {INDEX_BYTES} bytes at most, such as nvarchar(200)"
        order = UTF8_ORDER if read(key.type).name in ("char", "varchar") else KEY_ORDER
        order = str(key.collation) if orders_text(key) else order
        return f"an index, and COLLATE {order} for the column"

    def text_sql(
        self,
        format: Format,
        column: Column,
        conversion: Conversion,
        table: TableRef,
        key: str,
        policy: OverflowPolicy,
    ) -> str | None:
        """See `tsv_text.tab_separated`."""
        return tab_separated(column, conversion, table, key, policy)

    def read_bytes(
        self,
        resource: SqlServerServer,
        plan: CopyPlan,
        key_range: KeyRange,
        format: Format,
        artifacts: list[Artifact] | None = None,
        *,
        snapshot: str | None = None,
        rows_of: str | None = None,
        silence: float | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]:
        """By bcp queryout."""
        return read_tab_separated(
            resource, plan, key_range, artifacts, rows_of=rows_of, silence=silence
        )

    @contextmanager
    def asking(self, resource: SqlServerServer) -> Iterator[Callable[[str], object]]:
        """Use one connection for all questions."""
        with resource.pooled_connection() as connection:
            yield connection.query
