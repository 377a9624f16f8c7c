"""Arguments of EXEC, and the parameters that they are for."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry_local.sqlserver.errors import ErrorContext
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.syntax.clauses import Tokens, name_at, split
from tableferry_local.sqlserver.tsql.syntax.parsing import type_text
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import parse_type
from tableferry_local.sqlserver.types.value import Value, pg_type


@dataclass
class Argument:
    """An argument of EXEC."""

    name: str
    type: SqlType
    value: str | None
    """PostgreSQL text of the storage type."""
    variable: str | None = None
    """The variable that an OUTPUT goes to."""

    def converted(self, run: Run, kind: SqlType) -> str | None:
        """The value as text of another type's storage."""
        if self.value is None or self.type == kind:
            return self.value
        value = Value(f"$1::{pg_type(self.type)}", self.type)
        with run.state.statement(ErrorContext("EXECUTE")):
            return run.state.link.rows(f"SELECT {convert(value, kind)}", [self.value])[0][0]


def bound(arguments: list[Argument], *names: str) -> dict[str, str | None]:
    """The arguments' values by name, those without a name in order."""
    values: dict[str, str | None] = dict.fromkeys(names)
    for position, argument in enumerate(arguments):
        name = argument.name.lower() or (names[position] if position < len(names) else "")
        values[name] = argument.value
    return values


def definitions_of(tokens: Tokens) -> list[tuple[str, SqlType]]:
    """Read `@a int, @b nvarchar(10) OUTPUT`: names and types."""
    found = []
    for part in split(tokens):
        names, at = name_at(part, 0)
        found.append((names[-1].lower(), parse_type(type_text(part[at:])[0])))
    return found
