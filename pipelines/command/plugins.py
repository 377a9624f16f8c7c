"""What other distributions add to `ferry` by entry points: commands, and a local stack.

The distribution tableferry-local adds both, tableferry-bench a command. Nothing of them is imported
before it is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any

import click

from tableferry.resources.errors import InputError, TableferryError

COMMANDS = "tableferry.commands"
"""Each entry point of this group is a `click.Command`, by the name of the command."""

DISTRIBUTIONS = {"local": "tableferry-local", "bench": "tableferry-bench"}
"""Where the commands of this project come from that are not part of its wheel."""

LOCAL_STACK = "tableferry.local_stack"
"""The group of the functions below. They raise `click.ClickException` with one clear line."""


class Commands(click.Group):
    """A group's own commands, and those that other distributions add to it."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; where its output cannot be written, that is said in one line."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _output_is_stuck():
                raise
            click.echo(f"ferry: standard output: {error.strerror}", err=True)
            # what is left of it would be tried again, and complained of, when the process ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *entry_points(group=COMMANDS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if command := super().get_command(ctx, cmd_name):
            return command
        for found in entry_points(group=COMMANDS, name=cmd_name):
            added: click.Command = found.load()
            return added
        if cmd_name in DISTRIBUTIONS:
            raise click.UsageError(
                f"`ferry {cmd_name}` comes with {DISTRIBUTIONS[cmd_name]}: install it"
            )
        return None


def _output_is_stuck() -> bool:
    """Whether standard output takes no more: what failed before may not be in its buffer still."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def start_local_stack() -> Mapping[str, str]:
    """Start the local stack, unless it runs.

    Returns:
        The `TABLEFERRY_*_URL` settings of its servers.

    Raises:
        InputError: tableferry-local is not installed.
        TableferryError: a server does not start.
    """
    settings: Mapping[str, str] = _call("start")
    return settings


def temporary_stack() -> AbstractContextManager[Mapping[str, str]]:
    """A stack that is removed at the end; yields the settings of its servers.

    Raises:
        InputError: tableferry-local is not installed.
    """
    stack: AbstractContextManager[Mapping[str, str]] = _call("temporary")
    return stack


def load_demo_data(url: str) -> Mapping[str, int]:
    """Load the demo's tables into schema `public`, unless they are there.

    Args:
        url: connection URL of a PostgreSQL database.

    Returns:
        Row counts by table.

    Raises:
        InputError: tableferry-local is not installed.
        TableferryError: a table of such a name is somebody else's.
    """
    counts: Mapping[str, int] = _call("load_demo_data", url)
    return counts


def _call(name: str, *arguments: object) -> Any:
    for found in entry_points(group=LOCAL_STACK, name=name):
        try:
            return found.load()(*arguments)
        except click.ClickException as error:
            raised = TableferryError(error.message)
            raised.exit_code = error.exit_code
            raise raised from None
    if name == "load_demo_data":
        raise InputError("the demo's data come with tableferry-local: install it")
    raise InputError(
        "no server is named: set TABLEFERRY_POSTGRES_URL and those of the other servers, or "
        "install tableferry-local, whose local stack is used without them"
    )
