"""A column as its server declares it."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    own_type: str | None = field(default=None, repr=False, compare=False)
    """What a statement would call the type, where `type` only says what kind of a type it is."""
    collation: str | None = field(default=None, repr=False, compare=False)
    """How the server itself orders a text, in its own words; None where nobody asked."""
