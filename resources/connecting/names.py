"""Names of connections: each system's own name, and those that the environment defines."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from tableferry.resources.connecting import budget, secret_files
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.registry import is_system, system, system_names, systems
from tableferry.resources.tables import TableRef

PREFIX = "TABLEFERRY_CONNECTION_"
"""`TABLEFERRY_CONNECTION_<NAME>=<url>` makes `<name>://schema.table` a table reference. Like every
variable with a URL it may name a file instead: `TABLEFERRY_CONNECTION_<NAME>_FILE`."""

ENV_ONLY: Mapping[str, str] = MappingProxyType({})
"""No connections but those that the environment defines."""

LIMITS = "SOURCE_LIMITS"
LOGIN = ("PASSWORD_COMMAND", "AUTHENTICATION", "TRUSTED_CONNECTION")
OPTIONS = (*budget.OPTIONS, LIMITS, *LOGIN)
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
        if variable := secret_files.set_as(f"{budget_prefix(connection)}_{name}"):
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
    either = (variable, variable + secret_files.SUFFIX)
    names = [name for name in os.environ if name.upper() in either and os.environ[name]]
    if len({name.upper() for name in names}) > 1:
        raise secret_files.both_set(variable)
    return names[0] if names else None


def names_file(variable: str) -> bool:
    """Whether a connection's variable holds the path of a file with the URL, not the URL."""
    return variable.upper().endswith(secret_files.SUFFIX)


def connection_url(connection: str) -> str | None:
    """The URL that the environment gives for a connection; None if it gives none.

    Raises:
        InputError: it gives two, or a file that cannot be used.
    """
    variable = set_variable(connection)
    if variable is None:
        return None
    value = os.environ[variable]
    return secret_files.read(value, variable) if names_file(variable) else value


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
        suffix = secret_files.SUFFIX if names_file(variable) else ""
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
