"""Refusals: the marked messages by which an export query refuses a value, and their reader."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tableferry.resources.errors import ValueRefused

MARK = "tableferry guard "


@dataclass(frozen=True)
class Where:
    """The parts of a guard's message that locate the value."""

    table: str
    column: str
    key: str
    """The SQL expression of the row's key."""
    value: str
    """The SQL expression of the value."""


def refused_in_query(message: str) -> ValueRefused | None:
    """Read the refusal in a server's error message, or in a driver's that contains it.

    Returns:
        None if the query failed otherwise.
    """
    _, mark, rest = message.partition(MARK)
    if not mark:
        return None
    try:
        (table, column, key, value, reason), _ = json.JSONDecoder(strict=False).raw_decode(rest)
    except ValueError:
        return None
    return ValueRefused(table, column, key, value, reason)
