"""Names of tables and conditions on key ranges, in their systems' SQL."""

from __future__ import annotations

from tableferry.resources.aliases import alias_prefix
from tableferry.resources.contract.system import System
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


def qualified(table: TableRef, name: str | None = None) -> str:
    """Write the quoted `schema.table`, or that of another table in the schema."""
    return f"{table.system.quote(table.schema)}.{table.system.quote(name or table.name)}"


def read_from(table: TableRef) -> str:
    """Write what stands behind FROM to read a table's rows, with the columns that are computed.

    A query becomes a subquery with an alias; the line breaks end its comments.
    """
    if table.query:
        return f"(\n{table.query}\n) {alias_prefix(table.query)}query"
    return table.read_as or qualified(table)


def drop_table(table: TableRef, name: str | None = None) -> str:
    """Write DROP TABLE IF EXISTS for the table, or for another one in its schema."""
    return table.system.dialect.drop_table(qualified(table, name))


def filtered(condition: str, where: str | None) -> str:
    """Add a row filter to a condition; line breaks end the filter's comments."""
    return f"({condition}) AND (\n{where}\n)" if where else condition


def has_filter(sql: str) -> bool:
    """Whether a query has a condition that `filtered` has added, or reads a query."""
    return "(\n" in sql


def predicate(column: Column, key_range: KeyRange, system: System) -> str:
    """Write the condition that selects exactly the rows of a key range.

    NULL keys are in no bounded range, because comparisons with NULL are not true.
    """
    name, dialect = system.quote(column.name), system.dialect
    if key_range.null:
        return f"{name} IS NULL"
    conditions = []
    if key_range.kind == "file":
        conditions.append(dialect.of_file(name, str(key_range.lower), column))
        first, end = key_range.rows or (None, None)
        row = system.quote(ROW)
        conditions += [f"{row} >= {first}"] if first is not None else []
        conditions += [f"{row} < {end}"] if end is not None else []
        return " AND ".join(conditions)
    if key_range.lower is not None:
        conditions.append(dialect.not_below(name, column, key_range.kind, key_range.lower))
    if key_range.upper is not None:
        conditions.append(dialect.below(name, column, key_range.kind, key_range.upper))
    return " AND ".join(conditions) or f"{name} IS NOT NULL"
