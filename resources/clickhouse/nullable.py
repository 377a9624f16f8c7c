"""ClickHouse's way to say nullable, folded out of and back into a declared type."""

from __future__ import annotations

from tableferry.resources.types.column import Column


def split_type(declared: str) -> tuple[str, bool]:
    """The type without `Nullable(...)`, and whether it was there.

    >>> split_type("LowCardinality(Nullable(String))")
    ('LowCardinality(String)', True)
    """
    if declared.startswith("Nullable("):
        return declared[len("Nullable(") : -1], True
    if declared.startswith("LowCardinality(Nullable("):
        return f"LowCardinality({declared[len('LowCardinality(Nullable(') : -2]})", True
    return declared, False


def declared_type(column: Column) -> str:
    """The type as it stands in CREATE TABLE; Nullable goes inside of LowCardinality.

    Arrays have no Nullable form in ClickHouse, so that theirs stays as it is.
    """
    if not column.nullable or column.type.startswith("Array("):
        return column.type
    if column.type.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({column.type[len('LowCardinality(') : -1]}))"
    return f"Nullable({column.type})"
