"""Integers that stand for a value: computed by each server in its own SQL, equal on all of them.

Every value of a column becomes one or more 64-bit integers ("atoms"), NULL for NULL. What is summed
up over a range is atoms only, so that no system's arithmetic, formatting or collation shows in
the sums. Which atoms a column has depends on both systems: PostgreSQL and ClickHouse can both take
a digest of a text and the bits of a float. SQL Server's HASHBYTES sees UTF-16 and Babelfish's sees
UTF-8, and neither has a way to the bits of a float, so that there the atoms are made of characters
at some positions and of arithmetic that IEEE 754 makes exact.
"""

from __future__ import annotations

from typing import Literal

from checks import atoms_clickhouse, atoms_postgres, atoms_sqlserver
from checks.fields import Field, declared
from resources.dialects import quote
from resources.tables import Column, System

Side = Literal["source", "target"]


def digests(source: System, target: System) -> bool:
    """Whether both systems can digest a text, and see the bits of a float."""
    return "sqlserver" not in (source, target)


def value_sql(field: Field, side: Side, system: System) -> str:
    """The column's value in one side's SQL, as it should stand in the target."""
    if side == "source" and field.rendered is not None:
        return f"({field.rendered})"
    return quote(system, field.column(side).name)


def atoms(
    field: Field,
    side: Side,
    systems: tuple[System, System],
    *,
    value: str | None = None,
    weight: str = "0",
    code_points: bool = True,
) -> dict[str, str]:
    """The atoms of one column on one side.

    Args:
        field: the column as both sides hold it.
        side: whose SQL.
        systems: source and target.
        value: SQL of the value, if not the column's own.
        weight: SQL of an integer that depends on the row's key; it picks a position in texts.
        code_points: whether that SQL Server counts code points in texts (else UTF-16 units).

    Returns:
        Name of the atom -> SQL expression of a 64-bit integer type.
    """
    system = systems[0] if side == "source" else systems[1]
    column, value = field.column(side), value or value_sql(field, side, system)
    if field.kind in ("date", "time", "timestamp") and _is_integer(system, column):
        # `type: bigint` was declared for it: days or microseconds
        integer = f"toInt64({value})" if system == "clickhouse" else f"CAST({value} AS bigint)"
        return {"days" if field.kind == "date" else "micros": integer}
    if system == "postgres":
        return atoms_postgres.atoms(field, column, value, weight, digests(*systems))
    if system == "sqlserver":
        return atoms_sqlserver.atoms(field, column, value, weight, code_points)
    return atoms_clickhouse.atoms(field, column, value, weight, digests(*systems))


def _is_integer(system: System, column: Column) -> bool:
    return declared(system, column.type).kind == "integer"
