"""`ferry local`: start, stop and look at the local stack."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tableferry_local import FOLDER

if TYPE_CHECKING:
    from tableferry_local.stack import Stack

LABELS = {
    "postgres": "PostgreSQL",
    "clickhouse": "ClickHouse",
    "sqlserver": "SQL Server stand-in",
}


def stack_command(command: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Give a command the stack and `--json`, and print what it returns.

    The command returns the JSON document; its key `ok` decides the exit code. What it says to a
    person, it says in the list under `lines`, which the document leaves out.
    """

    @click.option("--folder", envvar=FOLDER, help="Folder of the stack [default: .local_stack].")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @wraps(command)
    def wrapped(folder: str | None, as_json: bool, **options: Any) -> None:
        from tableferry_local.stack import Stack  # not before it is needed: `ferry --help` is quick

        code = 0
        try:
            answer = command(Stack(folder), **options)
            code = 0 if answer["ok"] else 1
        except click.ClickException as error:
            answer = {"ok": False, "errors": error.message.splitlines(), "lines": []}
            code = error.exit_code
        lines = answer.pop("lines")
        if as_json:
            click.echo(json.dumps(answer, indent=2))
        else:
            for line in lines:
                click.echo(line)
        for line in answer.get("errors", ()):
            click.echo(f"ferry: {line}", err=True)
        sys.exit(code)

    return wrapped


@click.group("local")
def local_group() -> None:
    """PostgreSQL, ClickHouse, a SQL Server stand-in, to try things."""


@local_group.command()
@stack_command
def up(stack: Stack) -> dict[str, Any]:
    """Start what does not run yet. Leftovers of a crash are cleaned up first."""
    stack.up()
    answer = _status(stack)
    named = type(stack)(os.environ.get(FOLDER)).folder == stack.folder
    folder = "" if named else f" --folder {shlex.quote(str(stack.folder))}"
    answer["lines"].append(f'Use it in this shell: eval "$(ferry local env{folder})"')
    return answer


@local_group.command()
@click.option("--remove", is_flag=True, help="Delete the stack's data as well.")
@stack_command
def down(stack: Stack, remove: bool) -> dict[str, Any]:
    """Stop all parts. Their data stays for the next time, unless it is to be removed."""
    if remove:
        stack.remove()
    else:
        stack.down()
    return {"ok": True, "folder": str(stack.folder), "lines": [f"{stack.folder}: down"]}


@local_group.command()
@stack_command
def status(stack: Stack) -> dict[str, Any]:
    """Say what runs, and where. Exit code 1 unless all parts do."""
    return _status(stack)


@local_group.command()
@stack_command
def env(stack: Stack) -> dict[str, Any]:
    """Print the settings, with passwords, as shell commands: eval "$(ferry local env)"."""
    settings = stack.environment()
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
    return {"ok": True, "environment": settings, "lines": lines}


def _status(stack: Stack) -> dict[str, Any]:
    parts = stack.status()
    lines = [f"{LABELS[name]:<20} {_describe(part)}" for name, part in parts.items()]
    errors = [
        f"{LABELS[name]} is {part['state']}"
        for name, part in parts.items()
        if part["state"] != "running"
    ]
    found = {"ok": not errors, "folder": str(stack.folder), "parts": parts, "lines": lines}
    return {**found, "errors": errors} if errors else found


def _describe(part: dict[str, Any]) -> str:
    if part["state"] != "running":
        return str(part["state"])
    return f"running on {part['host']}:{part['port']} (pid {part['pid']})"


if __name__ == "__main__":
    local_group()
