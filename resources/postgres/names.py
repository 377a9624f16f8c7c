"""Names in the text of catalog queries."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef


def about(sql: str, table: TableRef, **parts: str) -> str:
    """Fill in a table: `{schema}` and `{name}` as literals, `{table}` as the literal of both."""
    literal = table.system.dialect.literal
    schema, name, both = map(literal, (table.schema, table.name, qualified(table)))
    return sql.format(schema=schema, name=name, table=both, **parts)


def about_all(sql: str, tables: Sequence[TableRef]) -> str:
    """Fill in tables of one schema: `{schema}` as a literal, `{names}` as a list of literals."""
    literal = tables[0].system.dialect.literal
    names = ", ".join(literal(table.name) for table in tables)
    return sql.format(schema=literal(tables[0].schema), names=names)
