"""What a catalog declares of a table besides its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOT_SHOWN = "not shown to this login"
"""Stands for a default that is there, and that the login may not see."""


@dataclass(frozen=True)
class Structure:
    """A table's keys, indexes and defaults; columns in the order in which they are declared."""

    primary_key: tuple[str, ...] = ()
    unique: frozenset[tuple[str, ...]] = frozenset()
    """The columns of other unique constraints and indexes."""
    indexes: frozenset[tuple[str, ...]] = frozenset()
    """The columns of indexes that are not unique."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The default of columns that have one, in the server's own words."""


def structure_of(
    indexes: Mapping[str, tuple[tuple[str, ...], bool, bool]], defaults: Mapping[str, str]
) -> Structure:
    """Sort a table's indexes by what they are.

    Args:
        indexes: by name, their columns, whether they are unique, and the primary key's.
        defaults: by column.
    """
    keys = [columns for columns, _, primary in indexes.values() if primary]
    others = [(columns, unique) for columns, unique, primary in indexes.values() if not primary]
    return Structure(
        keys[0] if keys else (),
        frozenset(columns for columns, unique in others if unique),
        frozenset(columns for columns, unique in others if not unique),
        dict(defaults),
    )
