"""Names of tables and columns, as every room uses them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

from resources.errors import InputError

System = Literal["postgres", "sqlserver", "clickhouse"]
SYSTEMS: tuple[System, ...] = get_args(System)


@dataclass(frozen=True)
class TableRef:
    """A table in one system. For ClickHouse the schema is the database."""

    system: System
    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableRef:
        """Parse `system://schema.table`; the table name may itself contain dots.

        Raises:
            InputError: the text has another form or names an unknown system.
        """
        system, separator, rest = text.partition("://")
        schema, dot, name = rest.partition(".")
        if system not in SYSTEMS or not separator or not dot or not schema or not name:
            raise InputError(
                f"{text!r} should have the form system://schema.table, "
                f"with a system out of {', '.join(SYSTEMS)}"
            )
        return cls(system, schema, name)

    @property
    def path(self) -> list[str]:
        """The Dagster asset key's path."""
        return [self.system, self.schema, self.name]

    def __str__(self) -> str:
        return f"{self.system}://{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """A column as its server declares it.

    `type` is the full declared type in the system's own words, for example `numeric(38,10)`,
    `nvarchar(max)` or `DateTime64(6, 'UTC')`. For ClickHouse it is without `Nullable(...)`, which
    `nullable` says instead.
    """

    name: str
    type: str
    nullable: bool = True
    generated: bool = False
    identity: bool = False
    primary_key: int | None = None
    """1-based position in the primary key, or None."""


def staging_name(target: TableRef, range_name: str) -> str:
    """Name of the staging table of one key range: the same for every attempt on that range.

    A fixed name makes `CREATE TABLE` itself tell that another attempt is there, and lets the next
    run find what a dead one left.
    """
    return f"{staging_prefix(target)}{_digest(range_name)}"


def staging_prefix(target: TableRef) -> str:
    """What the names of all staging tables of a target begin with."""
    return f"__ferry_{_digest(str(target))}_"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
