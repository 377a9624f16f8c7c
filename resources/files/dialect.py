"""DuckDB's SQL."""

from __future__ import annotations

from types import MappingProxyType

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.files.types import FILE
from tableferry.resources.keys.range import ROW
from tableferry.resources.types.type_map import Column

PATH_PART = 255
"""Maximum bytes of a folder's name in the usual file systems."""

OF_FILE = "ferry_of_file"
"""A macro that compares a file's name. It also marks the only files that a query opens."""


class FilesDialect(Dialect):
    """See `Dialect`."""

    ordered_texts = ("VARCHAR",)

    taken = MappingProxyType(dict.fromkeys((FILE, ROW), "a table of files has of its own"))

    def unfit_table(self, schema: str, name: str) -> str:
        """See `Dialect.unfit_table`."""
        for part in schema.split("/"):
            if (length := len(part.encode())) > PATH_PART:
                return f"{part!r} has {length:,} bytes, and a part of a path may have {PATH_PART}"
        return ""

    def of_file(self, name: str, file: str, column: Column) -> str:
        """The condition that a row is in a file."""
        return f"{OF_FILE}({name}, {self.literal(file)})"

    def whole_steps(self, name: str, first: int, width: int) -> str:
        """`/` would make a float."""
        return super().whole_steps(name, first, width).replace(" / ", " // ")

    def exact_sum(self, number: str) -> str:
        """Sum up exactly: the sum of BIGINT is a HUGEINT."""
        return f"CAST(sum({number}) AS VARCHAR)"

    def text(self, value: str) -> str:
        """Cast a value to text, as DuckDB prints it."""
        return f"CAST({value} AS VARCHAR)"

    def exact_decimal(self, double: str, column: Column) -> str:
        """See `Dialect.exact_decimal`. CAST raises an error instead."""
        return f"TRY_{super().exact_decimal(double, column)}"

    def rounded(self, number: str, digits: int) -> str:
        """See `Dialect.rounded`. A double is rounded by its digits, as 1.005."""
        exact = f"ROUND(TRY_CAST({self.text(number)} AS DECIMAL(38, 18)), {digits})"
        return f"coalesce({self.text(exact)}, {self.text(super().rounded(number, digits))})"

    def folded(self, name: str) -> str:
        """Fold a name: names that differ in case are the same column."""
        return name.casefold()

    def add_column(self, table: str, name: str, column: Column) -> str:
        """Empty: new files have the column, and the others NULL."""
        return ""

    def drop_column(self, table: str, name: str) -> str:
        """Empty: new files are written without the column, and all are."""
        return ""

    def empty_column(self, table: str, name: str) -> str:
        """Empty, as with `drop_column`."""
        return ""


DIALECT = FilesDialect()
