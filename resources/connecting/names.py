"""Names of connections, and what the environment defines for each: its URL and its budget."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from tableferry.resources.connecting import passwords
from tableferry.resources.contract.limits import Budget
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.registry import is_system, system, system_names, systems
from tableferry.resources.tables import TableRef

CONNECTIONS = "MAX_CONNECTIONS"
RATE = "MAX_MB_PER_SECOND"
BUDGET = (CONNECTIONS, RATE)
"""What the environment may bound, behind the prefix of a connection's variables."""

MOST_CONNECTIONS = 1000
"""The most slots that a pool of Dagster may have."""

LEAST_RATE = 0.1
"""Slower, and a single batch would outlast the patience of servers and proxies."""


def declared_budget(prefix: str, connections: object = None, rate: object = None) -> Budget | None:
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
    name = passwords.set_as(variable)
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


PREFIX = "TABLEFERRY_CONNECTION_"
"""`TABLEFERRY_CONNECTION_<NAME>=<url>` makes `<name>://schema.table` a table reference. Like every
variable with a URL it may name a file instead: `TABLEFERRY_CONNECTION_<NAME>_FILE`."""

ENV_ONLY: Mapping[str, str] = MappingProxyType({})
"""No connections but those that the environment defines."""

LIMITS = "SOURCE_LIMITS"
LOGIN = ("PASSWORD_COMMAND", "AUTHENTICATION", "TRUSTED_CONNECTION")
OPTIONS = (*BUDGET, LIMITS, *LOGIN)
"""What variables say of a connection besides its URL, behind the prefix of their names."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def url_variable(connection: str) -> str:
    """The environment variable for the URL of a connection, named as in `name://schema.table`."""
    if is_system(connection):
        return system(connection).url_variable
    return f"{PREFIX}{connection.upper()}"


def budget_prefix(connection: str) -> str:
    """The beginning of the names of the variables that say more of a connection than its URL."""
    return url_variable(connection).removesuffix("_URL")


def login_variables(connection: str) -> dict[str, str]:
    """The variables that are set to say how one logs in, by the fields that they stand for.

    Raises:
        InputError: the connection's system has no such field.
    """
    fields = {}
    for name in LOGIN:
        if variable := passwords.set_as(f"{budget_prefix(connection)}_{name}"):
            fields[name.lower()] = variable
            if name.lower() not in getattr(system_of(connection).resource, "model_fields", ()):
                raise InputError(f"{variable}: {system_of(connection)} has no {name.lower()}")
    return fields


def set_variable(connection: str) -> str | None:
    """Find the environment variable that is set for a connection; None if there is none.

    It holds the URL or, if its name ends in `_FILE`, the path of a file with the URL.

    Raises:
        InputError: both are set.
    """
    variable = url_variable(connection)
    either = (variable, variable + passwords.SUFFIX)
    names = [name for name in os.environ if name.upper() in either and os.environ[name]]
    if len({name.upper() for name in names}) > 1:
        raise passwords.both_set(variable)
    return names[0] if names else None


def names_file(variable: str) -> bool:
    """Whether a connection's variable holds the path of a file with the URL, not the URL."""
    return variable.upper().endswith(passwords.SUFFIX)


def connection_url(connection: str) -> str | None:
    """The URL that the environment gives for a connection; None if it gives none.

    Raises:
        InputError: it gives two, or a file that cannot be used.
    """
    variable = set_variable(connection)
    if variable is None:
        return None
    value = os.environ[variable]
    return passwords.read(value, variable) if names_file(variable) else value


def system_of(connection: str) -> System:
    """The system that a connection leads to, by the scheme of its URL.

    Raises:
        InputError: the environment has no such connection, its file cannot be used, or the scheme
            belongs to no system.
    """
    if is_system(connection):
        return system(connection)
    url = connection_url(connection)
    if not url or not _NAME.fullmatch(connection):
        raise InputError(
            f"{connection!r} is neither a system ({', '.join(system_names())}) nor a connection: "
            f"set {url_variable(connection)} to the URL of its server"
        )
    scheme = url.partition("://")[0].lower()
    for candidate in systems():
        if scheme in candidate.schemes:
            return candidate
    known = ", ".join(scheme for candidate in systems() for scheme in candidate.schemes)
    raise InputError(f"{set_variable(connection)} should be a URL with a scheme out of {known}")


def table_of(text: str, connections: Mapping[str, str] = ENV_ONLY) -> TableRef:
    """Read a table reference such as `sales://public.orders`.

    Args:
        text: the reference.
        connections: the systems of connections that the environment need not define, by name.

    Raises:
        InputError: see `TableRef.parse`.
    """
    return TableRef.parse(
        text, lambda name: system(connections[name]) if name in connections else system_of(name)
    )


def is_path(connection: str) -> bool:
    """Whether a connection leads to files, whose tables are named by path and pattern."""
    try:
        return system_of(connection.lower()).by_path is not None
    except InputError:
        return False


def connection_names() -> tuple[str, ...]:
    """The names of all systems, and of the connections that the environment defines, in lower case.

    Raises:
        InputError: a variable's name is not valid in table references, or is a system's; or a
            variable says something of a connection that there is not.
    """
    names: list[str] = []
    bounded: dict[str, str] = {}
    for variable in sorted(os.environ):
        if not variable.upper().startswith(PREFIX) or not os.environ[variable]:
            continue
        if bound := next((option for option in OPTIONS if variable.upper().endswith(option)), None):
            bounded[variable] = variable[len(PREFIX) : -len(bound) - 1].lower()
            continue
        suffix = passwords.SUFFIX if names_file(variable) else ""
        name = variable[len(PREFIX) : len(variable) - len(suffix)].lower()
        if is_system(name):
            raise InputError(f"{variable} should be {system(name).url_variable}{suffix}")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{variable}: {name!r} should be letters, digits and underscores, a letter first"
            )
        names.append(name)
    for variable, name in bounded.items():
        if name not in names:
            raise InputError(
                f"{variable}: there is no connection {name!r}; {PREFIX}{name.upper()} is not set"
                if not is_system(name)
                else f"{variable} should be {budget_prefix(name)}{variable[len(PREFIX + name) :]}"
            )
    return (*system_names(), *dict.fromkeys(names))
