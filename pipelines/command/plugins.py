"""Entry points by which other distributions add commands and a local stack to `ferry`.

They are imported on first use. tableferry-local adds both, tableferry-bench a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any, cast

import click

from tableferry.resources.errors import InputError, TableferryError

COMMANDS = "tableferry.commands"
"""The group of commands; each entry point is a `click.Command`."""

DISTRIBUTIONS = {"local": "tableferry-local", "bench": "tableferry-bench"}
"""The distributions of this project's commands outside its wheel."""

LOCAL_STACK = "tableferry.local_stack"
"""The group of the functions below, which raise `click.ClickException` with a one-line message."""


class Commands(click.Group):
    """A command group that other distributions can extend."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; if stdout cannot be written to, fail with a one-line message."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _stdout_fails():
                raise
            click.echo(f"ferry: standard output: {error.strerror}", err=True)
            # Python would flush the rest at exit, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; of one that is misused, the last line begins as those of all errors."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            usage = (error.ctx or ctx).get_usage()
            click.echo(f"{usage}\n\nferry: {error.format_message()}", err=True)
            ctx.exit(error.exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *entry_points(group=COMMANDS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if command := super().get_command(ctx, cmd_name):
            return command
        for entry_point in entry_points(group=COMMANDS, name=cmd_name):
            return cast(click.Command, entry_point.load())
        if cmd_name in DISTRIBUTIONS:
            raise click.UsageError(
                f"`ferry {cmd_name}` comes with {DISTRIBUTIONS[cmd_name]}: install it"
            )
        return None


def _stdout_fails() -> bool:
    """Whether writing to stdout fails; a line break is written in case its buffer is empty."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def start_local_stack() -> Mapping[str, str]:
    """Start the local stack, unless it runs, and return its `TABLEFERRY_*_URL` settings.

    Raises:
        TableferryError: tableferry-local is not installed, or a server does not start.
    """
    return cast(Mapping[str, str], _call("start"))


def temporary_stack() -> AbstractContextManager[Mapping[str, str]]:
    """Return a stack that is removed at the end; it yields the settings of its servers.

    Raises:
        InputError: tableferry-local is not installed.
    """
    return cast(AbstractContextManager[Mapping[str, str]], _call("temporary"))


def load_demo_data(url: str) -> Mapping[str, int]:
    """Load missing demo tables into schema `public` of a PostgreSQL; return rows by table.

    Raises:
        TableferryError: tableferry-local is not installed, or a table of such a name is foreign.
    """
    return cast(Mapping[str, int], _call("load_demo_data", url))


def _call(name: str, *arguments: object) -> Any:
    for entry_point in entry_points(group=LOCAL_STACK, name=name):
        try:
            return entry_point.load()(*arguments)
        except click.ClickException as error:
            failure = TableferryError(error.message)
            failure.exit_code = error.exit_code
            raise failure from None
    if name == "load_demo_data":
        raise InputError("the demo's data come with tableferry-local: install it")
    raise InputError(
        "no server is named: set TABLEFERRY_POSTGRES_URL and those of the other servers, or "
        "install tableferry-local, whose local stack is used without them"
    )
