"""Where things are: servers from the environment, transfer files, Dagster's home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.connections import connection_names, names_file, set_variable, system_of
from resources.registry import system

if TYPE_CHECKING:
    import dagster as dg

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

    found: dict[str, dg.ConfigurableResource] = {}
    for name in connection_names():
        variable = set_variable(name)
        field = "url_file" if variable and names_file(variable) else "url"
        given: dict[str, Any] = {field: dg.EnvVar(variable)} if variable else {}
        found[name] = system(system_of(name)).resource(**given)
    return found


def configured() -> list[str]:
    """The connections whose servers the environment names."""
    return [name for name in connection_names() if set_variable(name)]
