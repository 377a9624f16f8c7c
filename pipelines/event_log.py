"""Where Dagster's event log is: the one place, whatever folder a command is started in."""

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


def place() -> Path:
    """`DAGSTER_HOME`, or else the user's own: the XDG state directory.

    https://specifications.freedesktop.org/basedir-spec/latest/: `~/.local/state` without
    `XDG_STATE_HOME`, and a path that is not absolute counts as not set.
    """
    if given := os.environ.get(DAGSTER_HOME):
        return Path(given).expanduser().absolute()
    state = Path(os.environ.get(STATE_HOME) or "")
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "tableferry" / "dagster"


def exists() -> bool:
    """Whether something may be recorded there."""
    home = place()
    return home.is_dir() and any(home.iterdir())


def make() -> Path:
    """Make the place if there is none, and point `DAGSTER_HOME` to it.

    A new one has the shipped settings; one that a project's Dagster has used already stays as it
    is. A new place that nobody named is told on stderr.

    Raises:
        InputError: it cannot be made.
    """
    home = place()
    new = not exists()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{home} cannot be made for Dagster's event log: {error.strerror}"
        ) from None
    if new:
        shutil.copyfile(Path(__file__).parent / "dagster.yaml", home / "dagster.yaml")
    if new and not os.environ.get(DAGSTER_HOME):
        click.echo(f"ferry: Dagster's event log is in {home}; {ELSEWHERE}", err=True)
    os.environ[DAGSTER_HOME] = str(home)
    return home


def open_to_record() -> dg.DagsterInstance:
    """The instance, made on first use."""
    from tableferry.assets.log.instance import open_instance

    return open_instance(make())


def open_to_read() -> dg.DagsterInstance:
    """The instance; an empty one in memory where none was made yet."""
    import dagster as dg

    return open_to_record() if exists() else dg.DagsterInstance.ephemeral()


def problem_of(error: BaseException) -> str | None:
    """What a user has to know of an error of Dagster's storage; None if it is none of it."""
    import sqlite3

    import dagster as dg
    import yaml
    from sqlalchemy.exc import SQLAlchemyError

    for one in causes(error):
        said = str(one)
        if isinstance(one, SQLAlchemyError):
            said = str(getattr(one, "orig", one))
        elif isinstance(one, dg.DagsterInvalidConfigError):
            unset = re.search(r'environment variable "(\w+)" which is not set', said)
            wrong = re.search(r"Error 1: ([^\n]*?)(\. Expected|\n|$)", said)
            said = f"{unset[1]} is not set" if unset else wrong[1] if wrong else said
        elif not isinstance(one, yaml.YAMLError | sqlite3.Error):
            continue
        return f"Dagster's storage, as {place() / 'dagster.yaml'} has it: {said.splitlines()[0]}"
    return None


def nothing_recorded() -> str | None:
    """A line for the user, as long as there is no event log."""
    if exists():
        return None
    line = f"nothing is recorded yet in {place()}"
    return line if os.environ.get(DAGSTER_HOME) else f"{line}; {ELSEWHERE}"
