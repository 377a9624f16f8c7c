"""Names of servers: every system has its usual one, and the environment names others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from tableferry.resources.connecting import secret_files
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.registry import is_system, system, system_names, systems
from tableferry.resources.tables import TableRef

PREFIX = "TABLEFERRY_CONNECTION_"
"""`TABLEFERRY_CONNECTION_<NAME>=<url>` makes `<name>://schema.table` a table.

As every variable with a URL it may be given as a file, by `TABLEFERRY_CONNECTION_<NAME>_FILE`."""

NONE_BESIDES: Mapping[str, str] = MappingProxyType({})
"""No connections but those that the environment names."""

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
    """The environment variable that says where a connection leads, if one does.

    It holds the URL or, where its name ends in `_FILE`, the path of a file that does.

    Raises:
        InputError: both are set.
    """
    wanted = url_variable(connection)
    known = (wanted, wanted + secret_files.SUFFIX)
    found = [one for one in os.environ if one.upper() in known and os.environ[one]]
    if len({one.upper() for one in found}) > 1:
        raise secret_files.both_set(wanted)
    return found[0] if found else None


def names_file(variable: str) -> bool:
    """Whether a variable of a connection holds the path of a file with the URL, not the URL."""
    return variable.upper().endswith(secret_files.SUFFIX)


def connection_url(connection: str) -> str | None:
    """The URL of a connection's server, if the environment says where it leads.

    Raises:
        InputError: it says so twice, or by a file that cannot be used.
    """
    variable = set_variable(connection)
    if variable is None:
        return None
    value = os.environ[variable]
    return secret_files.read(value, variable) if names_file(variable) else value


def system_of(connection: str) -> System:
    """The system that a connection leads to, by the scheme of its URL.

    Args:
        connection: a system's name, for its usual server, or a name that the environment gives.

    Raises:
        InputError: nothing of that name is set, its file cannot be used, or its URL has no scheme
            of ours.
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


def table_of(text: str, connections: Mapping[str, str] = NONE_BESIDES) -> TableRef:
    """The table of a reference, by the connections that the environment names.

    Args:
        text: the reference.
        connections: systems by the names of connections that the environment need not know.

    Raises:
        InputError: see `TableRef.parse`.
    """
    return TableRef.parse(
        text, lambda name: system(connections[name]) if name in connections else system_of(name)
    )


def is_path(connection: str) -> bool:
    """Whether a connection leads to files, whose tables are named by folder and pattern."""
    try:
        return system_of(connection.lower()).by_path is not None
    except InputError:
        return False


def connection_names() -> tuple[str, ...]:
    """The systems' names, and those that the environment gives, in lower case.

    Raises:
        InputError: a variable gives a name that no table reference can have, or a system's name.
    """
    named = []
    for variable in sorted(os.environ):
        if not variable.upper().startswith(PREFIX) or not os.environ[variable]:
            continue
        suffix = secret_files.SUFFIX if names_file(variable) else ""
        name = variable[len(PREFIX) : len(variable) - len(suffix)].lower()
        if is_system(name):
            raise InputError(f"{variable} should be {system(name).url_variable}{suffix}")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{variable}: {name!r} should be letters, digits and underscores, a letter first"
            )
        named.append(name)
    return (*system_names(), *dict.fromkeys(named))
