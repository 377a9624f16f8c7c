"""Named sets of settings that change how fast data moves, never the data."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.errors import InputError


@dataclass(frozen=True)
class Profile:
    """How much is in flight at once."""

    batch_rows: int
    """Rows per Arrow batch from the source, and per batch of a SQL Server bulk copy."""
    export: int
    """Ranges read at the same time."""
    load: int
    """Ranges written at the same time."""


PROFILES = {
    "safe": Profile(batch_rows=8_192, export=1, load=1),
    "balanced": Profile(batch_rows=16_384, export=2, load=2),
    "throughput": Profile(batch_rows=65_536, export=4, load=4),
}
DEFAULT = "balanced"


def profile(name: str) -> Profile:
    """Return the profile with this name.

    Raises:
        InputError: there is none.
    """
    if name not in PROFILES:
        raise InputError(f"profile {name!r} should be one of {', '.join(PROFILES)}")
    return PROFILES[name]
