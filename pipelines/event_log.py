"""The Dagster home that holds the event log; it does not depend on the working folder."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tableferry.resources.errors import InputError, causes

if TYPE_CHECKING:
    import dagster as dg

DAGSTER_HOME = "DAGSTER_HOME"
STATE_HOME = "XDG_STATE_HOME"
ELSEWHERE = f"{DAGSTER_HOME} names another place"


def home_path() -> Path:
    """Return `DAGSTER_HOME`, or else a folder in the user's XDG state directory.

    By https://specifications.freedesktop.org/basedir-spec/latest/, that is `~/.local/state` unless
    `XDG_STATE_HOME` is an absolute path.
    """
    if home := os.environ.get(DAGSTER_HOME):
        return Path(home).expanduser().absolute()
    state = Path(os.environ.get(STATE_HOME) or "")
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "tableferry" / "dagster"


def exists() -> bool:
    """Whether the home has any files."""
    home = home_path()
    return home.is_dir() and any(home.iterdir())


def create_home() -> Path:
    """Create the home if there is none, and point `DAGSTER_HOME` to it.

    A new home gets the shipped settings; an existing one, which may be a project's, stays as it
    is. The path of a new default home is printed to stderr.

    Raises:
        InputError: the home cannot be created.
    """
    home = home_path()
    new = not exists()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{home} cannot be created for Dagster's event log: {error.strerror}"
        ) from None
    if new:
        shutil.copyfile(Path(__file__).parent / "dagster.yaml", home / "dagster.yaml")
    if new and not os.environ.get(DAGSTER_HOME):
        click.echo(f"ferry: Dagster's event log is in {home}; {ELSEWHERE}", err=True)
    os.environ[DAGSTER_HOME] = str(home)
    return home


def open_to_record() -> dg.DagsterInstance:
    """Open the home's instance; the home is created on first use."""
    from tableferry.assets.log.storage import open_instance

    return open_instance(create_home())


def open_to_read() -> dg.DagsterInstance:
    """Open the home's instance, or an empty one in memory while there is no home."""
    import dagster as dg

    return open_to_record() if exists() else dg.DagsterInstance.ephemeral()


def storage_problem(error: BaseException) -> str | None:
    """Explain an error of Dagster's storage in one line; None for other errors."""
    import sqlite3

    import dagster as dg
    import yaml
    from sqlalchemy.exc import SQLAlchemyError

    for cause in causes(error):
        message = str(cause)
        if isinstance(cause, SQLAlchemyError):
            message = str(getattr(cause, "orig", cause))
        elif isinstance(cause, dg.DagsterInvalidConfigError):
            unset = re.search(r'environment variable "(\w+)" which is not set', message)
            wrong = re.search(r"Error 1: ([^\n]*?)(\. Expected|\n|$)", message)
            message = f"{unset[1]} is not set" if unset else wrong[1] if wrong else message
        elif not isinstance(cause, yaml.YAMLError | sqlite3.Error):
            continue
        settings = home_path() / "dagster.yaml"
        return f"Dagster's storage, as configured in {settings}: {message.splitlines()[0]}"
    return None


def no_log_message() -> str | None:
    """Return a line for the user while there is no event log."""
    if exists():
        return None
    line = f"Nothing is recorded yet: the first run creates the event log in {home_path()}"
    return line if os.environ.get(DAGSTER_HOME) else f"{line}; {ELSEWHERE}"
