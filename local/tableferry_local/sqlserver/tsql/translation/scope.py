"""Which columns a name can mean at one place of a query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tableferry_local.sqlserver.catalog.tables import ObjectName
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.value import Value


@dataclass
class Source:
    """One item of a FROM clause."""

    alias: str
    """The name that columns may be qualified with."""
    columns: list[Value]
    """The columns, with their T-SQL names."""
    table: ObjectName | None = None
    """Set when the source is a table named without an alias."""
    pg_alias: str = ""

    def nullable(self) -> None:
        """The source is on the inner side of an outer join."""
        self.columns = [replace(column, nullable=True) for column in self.columns]

    def answers_to(self, parts: list[str]) -> bool:
        """Whether a qualifier such as `t` or `dbo.t` means this source."""
        if len(parts) == 1:
            return parts[0].lower() == self.alias.lower()
        if self.table is None:
            return False
        own = [self.table.database.lower(), self.table.schema.lower(), self.table.name.lower()]
        wanted = [part.lower() for part in parts]
        return all(
            not part or part == mine for part, mine in zip(wanted[::-1], own[::-1], strict=False)
        )


@dataclass
class Scope:
    """The sources of one SELECT, and those of the queries around it."""

    parent: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    ctes: dict[str, Source] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    """In a grouped query: SQL of a grouped expression -> SQL that selects it."""
    aggregating: bool = False
    """Inside the argument of an aggregate, where groups do not matter."""

    def cte(self, name: str) -> Source | None:
        """The common table expression of that name."""
        scope: Scope | None = self
        while scope is not None:
            if name.lower() in scope.ctes:
                return scope.ctes[name.lower()]
            scope = scope.parent
        return None

    def resolve(self, parts: list[str]) -> Value:
        """The column that a name of one or more parts means.

        Raises:
            SqlError: 207 or 4104, there is none; 209, there are several.
        """
        scope: Scope | None = self
        while scope is not None:
            found = scope.own(parts)
            if found is not None:
                return found
            scope = scope.parent
        if len(parts) == 1:
            raise SqlError(207, 16, f"Invalid column name '{parts[0]}'.")
        if self.source(parts[:-1]) is not None:
            raise SqlError(207, 16, f"Invalid column name '{parts[-1]}'.")
        raise SqlError(
            4104, 16, f'The multi-part identifier "{".".join(parts)}" could not be bound.'
        )

    def own(self, parts: list[str]) -> Value | None:
        """The column among this SELECT's own sources, if there is one."""
        name = parts[-1].lower()
        candidates = [
            source for source in self.sources if len(parts) == 1 or source.answers_to(parts[:-1])
        ]
        found = [
            column for source in candidates for column in source.columns
            if column.name.lower() == name
        ]  # fmt: skip
        if len(found) > 1:
            raise SqlError(209, 16, f"Ambiguous column name '{parts[-1]}'.")
        return found[0] if found else None

    def source(self, parts: list[str]) -> Source | None:
        """The source that a qualifier means, here or in a query around."""
        scope: Scope | None = self
        while scope is not None:
            for source in scope.sources:
                if source.answers_to(parts):
                    return source
            scope = scope.parent
        return None
