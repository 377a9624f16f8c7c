"""What all commands share: options, one line per error, exit codes, JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NoReturn

import click

from tableferry.pipelines.command.completion import transfer_names
from tableferry.resources.errors import InputError, TableferryError

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
wide_too = click.option("--wide", is_flag=True, help="Show the seconds of each phase, too.")
RANGE_HELP = "This range only, by name, bounds (1..250001) or a key in it; repeatable."
name_of_transfer = click.argument("transfer", shell_complete=transfer_names)
names_of_transfers = click.argument("transfers", nargs=-1, shell_complete=transfer_names)

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-v` and `--log-level`; the command gets `log_level`, in capitals, or None."""

    @click.option("-v", "--verbose", is_flag=True, help="As --log-level info.")
    @click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        help="Log the run to standard error, from this level on.",
    )
    @wraps(command)
    def wrapped(*args: Any, verbose: bool, log_level: str | None, **kwargs: Any) -> Any:
        level = log_level or ("info" if verbose else None)
        if level:
            logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
            logging.getLogger("tableferry.resources").setLevel(level.upper())
        return command(*args, log_level=level and level.upper(), **kwargs)

    return wrapped


def user_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """End a command on a user error with its message alone, and the error's exit code.

    A file that cannot be read or written is one, and so is what Dagster's storage refuses.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except TableferryError as error:
            message, code = str(error), error.exit_code
        except Exception as error:
            found, code = _problem(error), InputError.exit_code
            if found is None:
                raise
            message = found
        if kwargs.get("as_json"):
            print_json({"ok": False, "errors": message.splitlines()})
        click.echo(f"ferry: {message}", err=True)
        sys.exit(code)

    return wrapped


def _problem(error: Exception) -> str | None:
    """What a user can do something about; None if it is a defect of ours."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else None
    from tableferry.pipelines.event_log import problem_of

    return problem_of(error)


def end(errors: Sequence[str], code: int = 1) -> NoReturn:
    """End a command with 0, or say on standard error why not."""
    for line in errors:
        click.echo(f"ferry: {line}", err=True)
    sys.exit(code if errors else 0)


def tell_of_waiting(runs: Sequence[str]) -> None:
    """Say on standard error why nothing happens: moves and checks of a transfer take turns."""
    if runs:
        names = ", ".join(run[:8] for run in runs)
        click.echo(f"ferry: waiting for run {names} of this transfer to end", err=True)


def print_json(document: Any) -> None:
    """Write a JSON document to standard output."""
    click.echo(json.dumps(document, indent=2, default=str))
