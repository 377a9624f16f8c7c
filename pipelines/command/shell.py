"""Parts that all commands share: options, error lines, exit codes, JSON output."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn

import click

from tableferry.checks.levels import GONE
from tableferry.resources.errors import InputError, TableferryError

OUTAGES = logging.getLogger("tableferry.resources.connecting.retry.outages")
"""Says which server is waited for; got by its name, as its module takes long to import."""

_NAME = re.compile(r"^transfer:\s*['\"]?([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)


def transfer_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the transfers that begin with the typed text and are not on the line yet."""
    from tableferry.pipelines.settings import transfers_folder

    taken = context.params.get(parameter.name or "") or ()
    names = []
    for path in sorted(transfers_folder().glob("*.y*ml")):
        try:
            match = _NAME.search(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if match and match[1].startswith(incomplete) and match[1] not in taken:
            names.append(match[1])
    return names


class LevelChoice(click.Choice[str]):
    """The name of a level."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Say of a level that is gone what to take instead."""
        return GONE.get(value) or super().get_invalid_choice_message(value, ctx)


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
wide = click.option("--wide", is_flag=True, help="Show each range, and the seconds of its phases.")
RANGE_HELP = "Only this range, by name, bounds (1..250001) or a key in it; repeatable."
transfer_argument = click.argument("transfer", shell_complete=transfer_names)
transfers_argument = click.argument("transfers", nargs=-1, shell_complete=transfer_names)


@dataclass(frozen=True)
class Chosen:
    """The transfers that a command is about, as the user says it."""

    names: Sequence[str]
    all: bool
    tags: Sequence[str]
    """What all of them have: `key` or `key=value`."""


def several_transfers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `[TRANSFERS]... --all --tag`, passed to the command as `chosen`."""

    @transfers_argument
    @click.option("--all", "select_all", is_flag=True, help="All transfers of the folder.")
    @click.option(
        "--tag", "tags", multiple=True, metavar="KEY[=VALUE]", help="Transfers that have it."
    )
    @wraps(command)
    def wrapped(
        transfers: Sequence[str], select_all: bool, tags: Sequence[str], **kwargs: Any
    ) -> Any:
        return command(chosen=Chosen(transfers, select_all, tags), **kwargs)

    return wrapped


def side_by_side(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--jobs`, with what it says of its default."""
    says = f"Transfers that are worked on at a time  [default: {default}]."
    return click.option("--jobs", type=click.IntRange(1), metavar="N", help=says)


BY_CORES = "by the number of cores"

quiet = click.option(
    "--quiet", "-q", is_flag=True, envvar="TABLEFERRY_QUIET", help="Show no progress on stderr."
)

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-v` and `--log-level`, passed to the command as `log_level` in capitals, or None."""

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
            start_logging(level)
        return command(*args, log_level=level and level.upper(), **kwargs)

    return wrapped


def start_logging(level: str) -> None:
    """Log what this process does on servers to stderr, from a level on."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("tableferry.resources").setLevel(level.upper())


def user_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a user error into its message and exit code, without a traceback.

    User errors include files that cannot be read or written, and errors of Dagster's storage.
    SIGTERM interrupts the command as Ctrl-C does.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with _interrupted_by_sigterm(), _telling_of_outages():
                return command(*args, **kwargs)
        except TableferryError as error:
            message, code = str(error), error.exit_code
        except Exception as error:
            problem, code = _problem(error), InputError.exit_code
            if problem is None:
                raise
            message = problem
        if kwargs.get("as_json"):
            print_json({"ok": False, "errors": message.splitlines()})
        click.echo(f"ferry: {message}", err=True)
        sys.exit(code)

    return wrapped


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM, so that a command that is stopped can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Teller(logging.Handler):
    """Shows on stderr what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def _telling_of_outages() -> Iterator[None]:
    """Say on stderr which server is waited for, also where Dagster takes what is logged."""
    teller = _Teller()
    OUTAGES.addHandler(teller)
    try:
        yield
    finally:
        OUTAGES.removeHandler(teller)


def _problem(error: Exception) -> str | None:
    """Return the message of an error that a user can mend; None for a bug."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else None
    from tableferry.pipelines.event_log import storage_problem

    return storage_problem(error)


def end(errors: Sequence[str], code: int = 1) -> NoReturn:
    """Exit with 0, or print the errors to stderr and exit with the given code."""
    for line in errors:
        click.echo(f"ferry: {line}", err=True)
    sys.exit(code if errors else 0)


def report_waiting(runs: Sequence[str]) -> None:
    """Say on stderr which runs block this command: moves and checks of a transfer take turns."""
    if runs:
        names = ", ".join(run[:8] for run in runs)
        click.echo(f"ferry: waiting for run {names} of this transfer to end", err=True)


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def say(note: str) -> None:
    """Show a note on stderr while a command works."""
    # whoever has read along may have gone
    with suppress(OSError, ValueError):
        click.echo(f"ferry: {note}", err=True)


def print_json(document: Any) -> None:
    """Write a JSON document to standard output."""
    click.echo(json.dumps(document, indent=2, default=str))
