"""A server of the route, with the schema in which a certification works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tableferry.pipelines.certifying.plain import Plain, plain_of
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Site:
    """A server of the route, and the schema in it."""

    connection: str
    endpoint: Endpoint
    schema: str
    position: int
    """0 of the source."""
    given: bool
    """Whether the schema is the user's, and stays."""
    failures: list[dict[str, str]] = field(default_factory=list, compare=False)
    """The statements that failed, with messages."""

    @property
    def plain(self) -> Plain:
        """The SQL of its system."""
        return plain_of(self.endpoint.system)

    def table(self, name: str) -> TableRef:
        """Return a table in the schema. A server that has several parts has names for each."""
        suffix = f"_{self.position}" if self.position else ""
        system = self.endpoint.system_name
        return TableRef(system, self.schema, f"{name}{suffix}", self.connection)

    def sql(self, name: str) -> str:
        """Return a table's name in SQL."""
        return qualified(self.table(name))

    def quoted_schema(self) -> str:
        """Return the schema's name in SQL."""
        return self.endpoint.system.quote(self.schema)

    def execute(self, sql: str) -> None:
        """Run a statement.

        Raises:
            TableferryError: it failed, and is noted.
        """
        try:
            self.endpoint.execute(sql)
        except TableferryError as error:
            self._note(sql, error)
            raise

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises:
            TableferryError: it failed, and is noted.
        """
        try:
            return self.endpoint.query(sql)
        except TableferryError as error:
            self._note(sql, error)
            raise

    def told(self, queries: Mapping[str, str]) -> dict[str, str]:
        """Return the answers to questions about the server; if there is none, why."""
        answers = {}
        for name, sql in queries.items():
            try:
                answer = self.endpoint.query(sql)[0][0]
                answers[name] = "not told" if answer is None else str(answer)
            except (TableferryError, IndexError) as error:
                answers[name] = f"not told: {error}"
        return answers

    def tables(self) -> list[str]:
        """Return the names of the tables in the schema."""
        literal = self.endpoint.system.dialect.literal(self.schema)
        rows = self.endpoint.query(self.plain.tables.format(schema=literal))
        return [str(name) for (name,) in rows]

    def _note(self, sql: str, error: TableferryError) -> None:
        note = {"connection": self.connection, "statement": sql[:2000], "message": str(error)}
        self.failures.append(note)
