"""The commands for writing transfer files: `ferry init`, `ferry refresh`, `ferry schema`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tableferry.pipelines.command.shell import as_json, end, has_terminal, print_json, user_errors
from tableferry.resources.errors import InputError

if TYPE_CHECKING:
    from tableferry.assets.planning.servers import Servers
    from tableferry.pipelines.command.one.values import ValuesView
    from tableferry.pipelines.command.show.range_views import Attempt
    from tableferry.pipelines.onboarding.init import Wish
    from tableferry.pipelines.onboarding.proposal import Arrangement

TABLES_HELP = "Tables by schema.table, as 'shop.*'; without a dot, by name; repeatable."


@click.command(short_help="Write transfer files from a source's catalog.")
@click.option("--from", "connection", required=True, metavar="NAME", help="E.g. postgres.")
@click.option("--tables", multiple=True, required=True, metavar="PATTERN", help=TABLES_HELP)
@click.option(
    "--to",
    multiple=True,
    required=True,
    metavar="TABLE",
    help="A target, as 'sqlserver://dbo.{table}', with {schema} or {table}; in order of the hops.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these out; repeatable.")
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    envvar="TABLEFERRY_TRANSFERS",
    required=True,
    show_envvar=True,
    help="Folder of the files.",
)
@click.option("--chain", is_flag=True, help="With several --to: each target is read for the next.")
@click.option("--each", is_flag=True, help="With several --to: a transfer per table and target.")
@click.option("--views", is_flag=True, help="Include views.")
@click.option("--values", is_flag=True, help="Read the tables, and list values that do not fit.")
@as_json
@user_errors
def init(
    output: str,
    chain: bool,
    each: bool,
    values: bool,
    as_json: bool,
    **asked: Any,  # --from, --tables, --to, --exclude, --views
) -> None:
    """Write a commented transfer file for each table, from the source's catalog.

    Decisions that only you can make are listed, and stand in the files as choices. Existing files
    are never overwritten; no server is changed. With --values, the exit code is 1 if a run would
    refuse values.

    Example: ferry init --from postgres --tables orders --to sqlserver://dbo.orders
    """
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.command.show import fleet_views
    from tableferry.pipelines.onboarding import init as onboarding

    servers, _ = configured_servers()
    wish = onboarding.Wish(**asked)
    wish = replace(wish, arrangement=_arrangement(wish, chain=chain, each=each, asks=not as_json))
    result = onboarding.init(servers, wish, Path(output))
    written = [table.transfer for table in result.declared if table.written]
    examined = _examined(written, Path(output), servers) if values else []
    errors = fleet_views.attempt_errors(examined)
    if as_json:
        examination = fleet_views.attempts_document(examined, errors)
        document = result.json() | (
            {"ok": examination["ok"], "values": examination["transfers"]} if values else {}
        )
        print_json(document)
        end(errors)
    for line in result.lines():
        click.echo(line)
    for attempt in examined:
        for line in attempt.view.lines() if attempt.view else ():
            click.echo(line)
    if written:
        click.echo(f"next: TABLEFERRY_TRANSFERS={output} ferry validate")
    end(errors)


def _examined(names: Sequence[str], output: Path, servers: Servers) -> list[Attempt[ValuesView]]:
    """Find the values that runs of new transfers would refuse."""
    from tableferry.assets.declaring.transfer_files import load_transfers
    from tableferry.pipelines.command.many.fleet import PLANNED_AT_A_TIME, in_threads
    from tableferry.pipelines.command.one.values import examine_values

    transfers = load_transfers(output).transfers

    def examine(name: str) -> ValuesView:
        return examine_values(transfers[name], servers.serving(transfers[name]))

    return in_threads(names, PLANNED_AT_A_TIME, examine, lambda view: view.errors)


def _arrangement(wish: Wish, *, chain: bool, each: bool, asks: bool) -> Arrangement | None:
    """Return how several targets are reached; a person at a terminal is asked.

    Raises:
        InputError: both ways are given.
    """
    from tableferry.pipelines.onboarding.proposal import arrangements

    if chain and each:
        raise InputError("--chain and --each are two ways; give one of them")
    if chain or each:
        return "chain" if chain else "each"
    if len(wish.to) < 2 or not (asks and has_terminal()):
        return None
    click.echo(f"{len(wish.to)} targets: {arrangements(wish.connection, wish.to)}", err=True)
    answer = click.prompt("which", type=click.Choice(("chain", "each")), err=True)
    return "chain" if answer == "chain" else "each"


@click.command(short_help="Look up the tables of declarations with `tables:`.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a lock would change.")
@as_json
@user_errors
def refresh(files: Sequence[str], check: bool, as_json: bool) -> None:
    """Look up the tables of declarations with `tables:`, and write them to their lock files.

    Without FILE, of all such declarations. A lock is what runs go by: review it, and commit it.

    Example: ferry refresh transfers/sales.yaml --check
    """
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.onboarding import refresh as refreshing
    from tableferry.pipelines.settings import transfers_folder

    folder = transfers_folder()
    declarations = refreshing.declarations(folder, files)
    if not declarations:
        raise InputError(f"no file in {folder} declares many tables by `tables:`")
    servers, _ = configured_servers()
    refreshed = [refreshing.refresh(declaration, servers) for declaration in declarations]
    if not check:
        for each in refreshed:
            refreshing.write(each)
    if as_json:
        print_json({"ok": True, "declarations": [each.json() for each in refreshed]})
    else:
        for each in refreshed:
            click.echo("\n".join(each.lines()))
    changed = [each.declaration.lock.name for each in refreshed if each.differences]
    end([f"{name} does not agree with the catalog" for name in changed if check])


@click.command(short_help="Print the JSON Schema of a transfer file.")
@click.option("--defaults", is_flag=True, help="Print that of defaults.yaml instead.")
@click.option("--tables", is_flag=True, help="Print that of a file with `tables:` instead.")
@user_errors
def schema(defaults: bool, tables: bool) -> None:
    """Print the JSON Schema of a transfer file, for completion and checks in editors.

    Example: ferry schema > transfers/transfer.schema.json
    """
    from tableferry.assets.declaring.schema import tables_schema, transfer_schema

    print_json(tables_schema() if tables else transfer_schema(defaults=defaults))
