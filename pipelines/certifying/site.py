"""A server of the route, with the schema in which a certification works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tableferry.pipelines.certifying.plain import TABLES, Plain, plain_of
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

Answer = TypeVar("Answer")


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

    def of_schema(self, statement: str) -> str:
        """Return a statement that makes or drops the schema."""
        return statement.format(schema=self.endpoint.system.quote(self.schema))

    def execute(self, sql: str) -> None:
        """Run a statement.

        Raises:
            TableferryError: it failed, and is noted.
        """
        self._noted(self.endpoint.execute, sql)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises:
            TableferryError: it failed, and is noted.
        """
        return self._noted(self.endpoint.query, sql)

    def _noted(self, ask: Callable[[str], Answer], sql: str) -> Answer:
        try:
            return ask(sql)
        except TableferryError as error:
            note = {"connection": self.connection, "statement": sql[:2000], "message": str(error)}
            self.failures.append(note)
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

    def refused(self, expressions: Mapping[str, str]) -> dict[str, str]:
        """Return which of these constants, by name, the server refuses, and why."""
        named = [f"{sql} AS c{at}" for at, sql in enumerate(expressions.values())]
        try:
            if named:
                self.endpoint.query(f"SELECT {', '.join(named)}")
        except TableferryError as error:
            if len(named) == 1:
                return dict.fromkeys(expressions, str(error))
            alone = [self.refused({name: sql}) for name, sql in expressions.items()]
            return {name: why for each in alone for name, why in each.items()}
        return {}

    def tables(self) -> list[str]:
        """Return the names of the tables in the schema."""
        literal = self.endpoint.system.dialect.literal(self.schema)
        return [str(name) for (name,) in self.endpoint.query(TABLES.format(schema=literal))]
