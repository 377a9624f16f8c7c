"""The commands for writing transfer files: `ferry init`, `ferry schema`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tableferry.pipelines.command.shell import as_json, print_json, user_errors

TABLES_HELP = "Tables by schema.table, as 'shop.*'; without a dot, by name; repeatable."


@click.command()
@click.option("--from", "connection", required=True, metavar="NAME", help="E.g. postgres.")
@click.option("--tables", multiple=True, required=True, metavar="PATTERN", help=TABLES_HELP)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these out; repeatable.")
@click.option(
    "--to",
    multiple=True,
    required=True,
    metavar="TABLE",
    help="A target, as 'sqlserver://dbo.{table}', with {schema} or {table}; in order of the hops.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    envvar="TABLEFERRY_TRANSFERS",
    required=True,
    show_envvar=True,
    help="Folder of the files.",
)
@click.option("--views", is_flag=True, help="Include views.")
@as_json
@user_errors
def init(
    connection: str,
    tables: Sequence[str],
    exclude: Sequence[str],
    to: Sequence[str],
    output: str,
    views: bool,
    as_json: bool,
) -> None:
    """Write a commented transfer file for each table, from the source's catalog.

    Decisions that only you can make are listed, and stand in the files as choices. Existing files
    are never overwritten; no server is changed.
    """
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.onboarding.init import init as write

    servers, _ = configured_servers()
    result = write(servers, connection, tables, exclude, to, Path(output), views=views)
    if as_json:
        print_json(result.json())
        return
    for line in result.lines():
        click.echo(line)
    if any(table.written for table in result.declared):
        click.echo(f"next: TABLEFERRY_TRANSFERS={output} ferry validate")


@click.command()
@click.option("--defaults", is_flag=True, help="Print that of defaults.yaml instead.")
@user_errors
def schema(defaults: bool) -> None:
    """Print the JSON Schema of a transfer file, for completion and checks in editors."""
    from tableferry.assets.declaring.schema import transfer_schema

    print_json(transfer_schema(defaults=defaults))
