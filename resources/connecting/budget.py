"""The budgets of connections, as the environment or code declares them."""

from __future__ import annotations

import math
import os

from tableferry.resources.connecting import secret_files
from tableferry.resources.contract.budget import Budget
from tableferry.resources.errors import InputError

CONNECTIONS = "MAX_CONNECTIONS"
RATE = "MAX_MB_PER_SECOND"
OPTIONS = (CONNECTIONS, RATE)
"""What the environment may bound, behind the prefix of a connection's variables."""

MOST_CONNECTIONS = 1000
"""The most slots that a pool of Dagster may have."""

LEAST_RATE = 0.1
"""Slower, and a single batch would outlast the patience of servers and proxies."""


def declared(prefix: str, connections: object = None, rate: object = None) -> Budget | None:
    """Read the budget of a connection; None if it has none.

    Args:
        prefix: of the connection's variables; what the environment bounds overrides the rest.
        connections: as given in code, if it is.
        rate: as given in code, if it is.

    Raises:
        InputError: a bound is no valid number; names the variable or field, and the value.
    """
    name, value = _overridden(f"{prefix}_{CONNECTIONS}", "max_connections", connections)
    most = None if value is None else _connections(name, value)
    name, value = _overridden(f"{prefix}_{RATE}", "max_mb_per_second", rate)
    fastest = None if value is None else _rate(name, value)
    return None if most is None and fastest is None else Budget(most, fastest)


def _overridden(variable: str, field: str, value: object) -> tuple[str, object]:
    """Return the variable and its value if it is set, else the field and its."""
    name = secret_files.set_as(variable)
    return (field, value) if name is None else (name, os.environ[name])


def _connections(name: str, value: object) -> int:
    text = str(value).strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= MOST_CONNECTIONS:
        raise InputError(
            f"{name} should be a number of connections, 1 to {MOST_CONNECTIONS}; it is {text!r}"
        )
    return number


def _rate(name: str, value: object) -> float:
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not LEAST_RATE <= number < math.inf:
        raise InputError(
            f"{name} should be a number of megabytes per second, at least {LEAST_RATE:g}; "
            f"it is {text!r}"
        )
    return number
