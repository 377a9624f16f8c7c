"""Settings from the environment: the folder of transfers, and the servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tableferry.resources.connecting import names

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.resources.contract.endpoint import Endpoint

TRANSFERS = "TABLEFERRY_TRANSFERS"
TRANSFERS_LINK = "TABLEFERRY_TRANSFERS_LINK"


def transfers_folder() -> Path:
    """Return the folder of YAML files: `TABLEFERRY_TRANSFERS`, or the shipped transfers."""
    path = os.environ.get(TRANSFERS)
    return Path(path) if path else Path(__file__).parent / "transfers"


def transfers_link() -> str | None:
    """Return the URL under which people read these files, if one is set; see `code_reference`."""
    return os.environ.get(TRANSFERS_LINK) or None


def resources() -> dict[str, dg.ConfigurableResource]:
    """Build a Dagster resource per connection, whose variables are read when a run starts.

    A connection without a variable has no address; only transfers that use it fail.
    """
    import dagster as dg

    return {
        name: names.system_of(name).dagster_resource(
            **{field: dg.EnvVar(variable) for field, variable in _address(name).items()}
        )
        for name in names.connection_names()
    }


def servers() -> dict[str, Endpoint]:
    """Build an endpoint per connection, without Dagster."""
    return {name: server(name) for name in names.connection_names()}


def server(connection: str) -> Endpoint:
    """Build the endpoint of a connection.

    Raises:
        InputError: the environment has no connection of that name.
    """
    from tableferry.resources.connecting.address import Variable

    fields = {field: Variable(variable) for field, variable in _address(connection).items()}
    return cast(Any, names.system_of(connection).resource(**fields))


def _address(name: str) -> dict[str, str]:
    """Map the fields that the environment sets for a connection to their variables."""
    variable = names.set_variable(name)
    if not variable:
        return {}
    fields = {"url_file" if names.names_file(variable) else "url": variable}
    return fields | names.login_variables(name)


def configured() -> list[str]:
    """Return the connections that the environment sets."""
    return [name for name in names.connection_names() if names.set_variable(name)]
