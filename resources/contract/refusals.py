"""Values that an export query refuses: the marked message that tells of one, and its reader."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tableferry.resources.errors import ValueRefused

MARK = "tableferry guard "
SHOWN = 200
"""Characters of a value that an error message shows."""


@dataclass(frozen=True)
class Where:
    """What a guard's message says about the place: table, column, and the row's key and value."""

    table: str
    column: str
    key: str
    """Expression of the row's key."""
    value: str
    """Expression of the value."""


def refused_in_query(message: str) -> ValueRefused | None:
    """The refusal that a failed export query tells of, if it is one of ours.

    Args:
        message: the server's error message, alone or within a driver's.
    """
    _, mark, rest = message.partition(MARK)
    if not mark:
        return None
    try:
        (table, column, key, value, reason), _ = json.JSONDecoder(strict=False).raw_decode(rest)
    except ValueError:
        return None
    return ValueRefused(table, column, key, value, reason)
