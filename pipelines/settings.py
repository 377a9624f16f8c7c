"""Where things are: servers from the environment, transfer files, Dagster's home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tableferry.resources.connecting.names import (
    connection_names,
    names_file,
    set_variable,
    system_of,
)

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.resources.contract.endpoint import Endpoint

TRANSFERS = "TABLEFERRY_TRANSFERS"
TRANSFERS_LINK = "TABLEFERRY_TRANSFERS_LINK"


def transfers_folder() -> Path:
    """The folder of YAML files: `TABLEFERRY_TRANSFERS`, or the shipped transfers."""
    given = os.environ.get(TRANSFERS)
    return Path(given) if given else Path(__file__).parent / "transfers"


def transfers_link() -> str | None:
    """Where people read these files, if that is another place, see `code_reference`."""
    return os.environ.get(TRANSFERS_LINK) or None


def resources() -> dict[str, dg.ConfigurableResource]:
    """All servers by their connections' names, addressed by the environment when a run starts.

    A server without its variable stays unaddressed: only a transfer that needs it complains.
    """
    import dagster as dg

    return {
        name: system_of(name).dagster_resource(
            **{field: dg.EnvVar(variable) for field, variable in _address(name).items()}
        )
        for name in connection_names()
    }


def servers() -> dict[str, Endpoint]:
    """The same for a process that does without Dagster."""
    return {name: server(name) for name in connection_names()}


def server(connection: str) -> Endpoint:
    """One of them.

    Raises:
        InputError: the environment has no connection of that name.
    """
    from tableferry.resources.connecting.address import Variable

    given = {field: Variable(variable) for field, variable in _address(connection).items()}
    return cast(Any, system_of(connection).resource(**given))


def _address(name: str) -> dict[str, str]:
    """Which field of a connection's server the environment gives, and the variable."""
    variable = set_variable(name)
    if not variable:
        return {}
    return {"url_file" if names_file(variable) else "url": variable}


def configured() -> list[str]:
    """The connections whose servers the environment names."""
    return [name for name in connection_names() if set_variable(name)]
