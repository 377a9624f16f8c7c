"""Names in the text of catalog queries."""

from __future__ import annotations

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef


def about(sql: str, table: TableRef, **parts: str) -> str:
    """Fill in a table: `{schema}` and `{name}` as literals, `{table}` as the literal of both."""
    literal = table.system.dialect.literal
    schema, name, both = map(literal, (table.schema, table.name, qualified(table)))
    return sql.format(schema=schema, name=name, table=both, **parts)
