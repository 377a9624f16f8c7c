"""DuckDB's SQL."""

from __future__ import annotations

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.types.column import Column

OF_FILE = "ferry_of_file"
"""A macro that compares a file's name. It also marks the files that a query is about: only those
are opened."""


class FilesDialect(Dialect):
    """See `Dialect`."""

    ordered_texts = ("VARCHAR",)

    def of_file(self, name: str, file: str, column: Column) -> str:
        """The condition that a row is of a file."""
        return f"{OF_FILE}({name}, {self.literal(file)})"

    def exact_sum(self, number: str) -> str:
        """The sum of BIGINT is a HUGEINT."""
        return f"CAST(sum({number}) AS VARCHAR)"

    def text(self, value: str) -> str:
        """A value as DuckDB prints it."""
        return f"CAST({value} AS VARCHAR)"

    def folded(self, name: str) -> str:
        """Names that differ in case are one column."""
        return name.casefold()

    def add_column(self, table: str, name: str, column: Column) -> str:
        """Nothing: the files that are written from now on have it, the others NULL."""
        return ""


DIALECT = FilesDialect()
