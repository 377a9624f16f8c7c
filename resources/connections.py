"""Names of servers: every system has its usual one, and the environment names others."""

from __future__ import annotations

import os
import re

from resources.errors import InputError
from resources.registry import is_system, system, system_names

PREFIX = "TABLEFERRY_CONNECTION_"
"""`TABLEFERRY_CONNECTION_<NAME>=<url>` makes `<name>://schema.table` a table."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def url_variable(connection: str) -> str:
    """The environment variable that says where a connection leads.

    Args:
        connection: a name as in `name://schema.table`.
    """
    if is_system(connection):
        return system(connection).url_variable
    return f"{PREFIX}{connection.upper()}"


def set_variable(connection: str) -> str | None:
    """The environment variable that says where a connection leads, if one does."""
    wanted = url_variable(connection)
    found = (one for one in os.environ if one.upper() == wanted and os.environ[one])
    return next(found, None)


def system_of(connection: str) -> str:
    """The name of the system that a connection leads to, by the scheme of its URL.

    Args:
        connection: a system's name, for its usual server, or a name that the environment gives.

    Raises:
        InputError: nothing of that name is set, or its URL has no scheme of ours.
    """
    if is_system(connection):
        return connection
    variable = set_variable(connection)
    if not variable or not _NAME.fullmatch(connection):
        raise InputError(
            f"{connection!r} is neither a system ({', '.join(system_names())}) nor a connection: "
            f"set {url_variable(connection)} to the URL of its server"
        )
    scheme = os.environ[variable].partition("://")[0].lower()
    for name in system_names():
        if scheme in system(name).schemes:
            return name
    known = ", ".join(scheme for name in system_names() for scheme in system(name).schemes)
    raise InputError(f"{variable} should be a URL with a scheme out of {known}")


def connection_names() -> tuple[str, ...]:
    """The systems' names, and those that the environment gives, in lower case.

    Raises:
        InputError: a variable gives a name that no table reference can have, or a system's name.
    """
    named = []
    for variable in sorted(os.environ):
        if not variable.upper().startswith(PREFIX) or not os.environ[variable]:
            continue
        name = variable[len(PREFIX) :].lower()
        if is_system(name):
            raise InputError(f"{variable} should be {system(name).url_variable}")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{variable}: {name!r} should be letters, digits and underscores, a letter first"
            )
        named.append(name)
    return (*system_names(), *named)
