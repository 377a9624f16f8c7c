"""What a translated query is."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry_local.sqlserver.types.sqltype import ResultColumn
from tableferry_local.sqlserver.types.value import Value


@dataclass
class Query:
    """A translated query; its PostgreSQL result columns have the types that `columns` store."""

    sql: str
    columns: list[Value]

    @property
    def result_columns(self) -> list[ResultColumn]:
        """The columns as a client is told about them."""
        return [
            ResultColumn(
                column.name, column.type, column.nullable, column.identity, column.computed
            )
            for column in self.columns
        ]
