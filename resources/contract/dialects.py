"""Quoting, literals and key-range predicates, by the name of the system whose SQL it is."""

from __future__ import annotations

from tableferry.resources.contract.system import System
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


def quote(system: System, identifier: str) -> str:
    """An identifier, quoted so that case, spaces, reserved words and quotes survive.

    Raises:
        InputError: the identifier is empty or holds NUL, which no server can name.
    """
    return system.quote(identifier)


def qualified(table: TableRef, name: str | None = None) -> str:
    """The quoted `schema.table`; `name` stands in for the table's own name (a staging table)."""
    return f"{quote(table.system, table.schema)}.{quote(table.system, name or table.name)}"


def drop_table(table: TableRef, name: str | None = None) -> str:
    """DROP TABLE, if it exists; `name` stands in for the table's own name (a staging table)."""
    return table.system.dialect.drop_table(qualified(table, name))


def string_literal(system: System, text: str) -> str:
    """A text literal; on SQL Server a Unicode one."""
    return system.dialect.literal(text)


def filtered(condition: str, where: str | None) -> str:
    """A condition that also holds a row filter to its word, whatever comments end that."""
    return f"({condition}) AND (\n{where}\n)" if where else condition


def predicate(column: Column, key_range: KeyRange, system: System) -> str:
    """The WHERE condition, in the system's SQL, that selects exactly the rows of a key range.

    NULL keys are in no bounded range, because SQL's comparisons with NULL are not true.
    """
    name, dialect = quote(system, column.name), system.dialect
    if key_range.null:
        return f"{name} IS NULL"
    if key_range.kind == "file":
        conditions = [dialect.of_file(name, str(key_range.lower), column)]
        if key_range.rows is not None:
            first, past = key_range.rows
            row = quote(system, ROW)
            conditions.append(f"{row} >= {first}")
            conditions += [f"{row} < {past}"] if past is not None else []
        return " AND ".join(conditions)
    conditions = []
    if key_range.lower is not None:
        conditions.append(dialect.not_below(name, column, key_range.kind, key_range.lower))
    if key_range.upper is not None:
        conditions.append(dialect.below(name, column, key_range.kind, key_range.upper))
    return " AND ".join(conditions) or f"{name} IS NOT NULL"
