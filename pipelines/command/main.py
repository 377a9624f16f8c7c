"""The `ferry` command. Heavy imports wait until a command needs them, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from tableferry.assets.declaring.names import about
from tableferry.checks.verdict import LEVELS, Level
from tableferry.pipelines.command.moving import run
from tableferry.pipelines.command.plugins import Commands
from tableferry.pipelines.command.pruning import prune
from tableferry.pipelines.command.setting_up import init, schema
from tableferry.pipelines.command.shell import (
    RANGE_HELP,
    as_json,
    end,
    name_of_transfer,
    names_of_transfers,
    print_json,
    tell_of_waiting,
    user_errors,
    verbosity,
    wide_too,
)
from tableferry.resources.errors import InputError, TableferryError


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tableferry")
def main() -> None:
    """Move tables between PostgreSQL, SQL Server and ClickHouse, range by range, and prove it."""


@main.command()
@names_of_transfers
@as_json
@user_errors
def validate(transfers: Sequence[str], as_json: bool) -> None:
    """Check the transfer files against the servers; nothing is changed."""
    from tableferry.assets.declaring.transfer_files import load_transfers
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.command.validation import validate as find_problems
    from tableferry.pipelines.settings import transfers_folder

    declared = load_transfers(transfers_folder())
    wrong = () if transfers else declared.invalid
    # what is wrong with the defaults is wrong with every file
    errors = list(dict.fromkeys(str(problem) for file in wrong for problem in file.problems))
    found: dict[str, list[str]] = {}
    try:
        if transfers or declared.transfers:
            session = open_session(*transfers, records=False, tells_invalid=bool(transfers))
            found = find_problems(session, transfers)
    except TableferryError as error:
        errors += str(error).splitlines()
    unfit = [name for name, problems in found.items() if problems]
    if as_json:
        print_json({"ok": not errors and not unfit, "errors": errors, "transfers": found})
    if not (as_json or found or errors):
        click.echo(f"there is no transfer file in {transfers_folder()}")
    for name, problems in {} if as_json else found.items():
        click.echo(f"{name}:" if problems else f"{name}: ok")
        for problem in problems:
            click.echo(f"  {problem}")
    if unfit:
        errors.append(f"{len(unfit)} of {len(found)} transfers cannot run: {', '.join(unfit)}")
    end(errors, 2)


@main.command()
@as_json
@user_errors
def doctor(as_json: bool) -> None:
    """Look at every configured server and at this machine, and say what to do.

    Of a server: version, TLS, privileges for the declared transfers, snapshot isolation, disk,
    clock, and whether edge values leave it as they are. Exit code 1 if something will fail.
    """
    from tableferry.pipelines.command.doctor import examine, finding_json, finding_lines
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.command.this_machine import declared_transfers, findings
    from tableferry.resources.errors import InputError

    servers, configured = configured_servers()
    declared = declared_transfers()
    transfers = () if isinstance(declared, InputError) else declared.transfers.values()
    here = list(findings(servers, declared))
    found = examine(servers, configured, transfers)
    bad = [server for server in found if not server.good]
    well = all(one.state != "problem" for one in here)
    if as_json:
        print_json(
            {
                "ok": well and not bad,
                "here": [finding_json(one) for one in here],
                "servers": [server.json() for server in found],
            }
        )
    else:
        click.echo("this machine")
    for one in () if as_json else here:
        click.echo("\n".join(f"  {line}" for line in finding_lines(one)))
    for server in () if as_json else found:
        click.echo("\n".join(server.lines()))
    errors = []
    if bad:
        names = ", ".join(server.name for server in bad)
        errors.append(f"{len(bad)} of {len(found)} servers are not well: {names}")
    if not well:
        subjects = dict.fromkeys(one.subject for one in here if one.state == "problem")
        errors.append(f"this machine is not well: {', '.join(subjects)}")
    end(errors)


@main.command()
@name_of_transfer
@click.option("--force", is_flag=True, help="As `ferry run --force` would.")
@as_json
@user_errors
def plan(transfer: str, force: bool, as_json: bool) -> None:
    """Show which ranges would run or be skipped, and why; nothing is changed."""
    from tableferry.pipelines.command import runner
    from tableferry.pipelines.command.render import console, show_plan
    from tableferry.pipelines.command.session import open_session

    view = runner.plan(open_session(transfer, records=False), transfer, force=force)
    if as_json:
        print_json(view.json())
    else:
        show_plan(console(), view)
        _say_if_nothing_is_recorded()


@main.command()
@name_of_transfer
@wide_too
@as_json
@user_errors
def status(transfer: str, wide: bool, as_json: bool) -> None:
    """Show per range its state, rows, last run and checks, out of the event log."""
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.command.status import status as find

    view = find(open_session(transfer, records=False, asks=False), transfer)
    if as_json:
        print_json(view.json())
    else:
        from tableferry.pipelines.command.render import console, show_ranges

        show_ranges(console(), "status", view, wide=wide)
        _say_if_nothing_is_recorded()


@main.command()
@name_of_transfer
@click.option("--level", type=click.Choice(LEVELS), help="How strict; default: as declared.")
@click.option("--range", "ranges", multiple=True, metavar="K", help=RANGE_HELP)
@click.option(
    "--as-of",
    type=click.Choice(("last-run",)),
    help="Compare the targets with what was committed to them; the source is not read.",
)
@click.option("--up-to-date", is_flag=True, help="Fail where the source is newer, too.")
@verbosity
@as_json
@user_errors
def check(
    transfer: str,
    level: Level | None,
    ranges: Sequence[str],
    as_of: str | None,
    up_to_date: bool,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Reconcile committed ranges without moving data, and run their expectations.

    Exit code 0 only if no target differs from what was committed to it, and no range is failed or
    missing. A source that has changed since is a warning. Without --range, the tables are looked at
    as a whole, too.
    """
    from tableferry.pipelines.command import runner
    from tableferry.pipelines.command.render import console, show_checks
    from tableferry.pipelines.command.session import open_session

    session = open_session(transfer)
    tell_of_waiting(runner.blocking_runs(session, transfer))
    if as_of and (level or up_to_date):
        raise InputError("--as-of compares digests with the event log; it takes no other level")
    view = runner.check(
        session,
        transfer,
        level=level,
        ranges=ranges,
        as_of_last_run=as_of is not None,
        up_to_date=up_to_date,
        log_level=log_level,
    )
    if as_json:
        print_json(view.json())
    else:
        show_checks(console(), transfer, view.checks)
        click.echo(view.closing)
    end(view.errors)


@main.command()
@name_of_transfer
@click.option(
    "--range", "name", required=True, metavar="K", help="The range to compare, or a key in it."
)
@click.option("--hop", type=int, default=None, help="This hop only, counted from 1.")
@click.option("--limit", default=20, show_default=True, help="Most rows to show.")
@click.option("--parquet", type=click.Path(dir_okay=False), help="Write all of them to this file.")
@click.option("--published", is_flag=True, help="Look at what readers see, whatever was rejected.")
@as_json
@user_errors
def diff(
    transfer: str,
    name: str,
    hop: int | None,
    limit: int,
    parquet: str | None,
    published: bool,
    as_json: bool,
) -> None:
    """Show which rows and columns of a range differ. Exit code 0 only if none does.

    Of a range whose last attempt failed its audit, these are the rows that nobody got to see.
    """
    from tableferry.pipelines.command import runner
    from tableferry.pipelines.command.render import console, difference_table
    from tableferry.pipelines.command.session import open_session

    found = runner.differences(
        open_session(transfer, records=False),
        transfer,
        name,
        hop=hop,
        limit=limit,
        parquet=Path(parquet) if parquet else None,
        published=published,
    )
    good = all(not differences.rows for differences in found.values())
    name = next(iter(found.values())).range
    if as_json:
        hops = {target: differences.to_json() for target, differences in found.items()}
        print_json({"transfer": transfer, "range": name, "ok": good, "hops": hops})
    for target, differences in {} if as_json else found.items():
        summary = "; ".join((differences.summary(), *differences.remarks))
        click.echo(f"{target} {differences.range}: {summary}")
        if differences.rows:
            console().print(difference_table(differences))
    end([f"{transfer}: source and target differ in {name}"] * (not good))


@main.command()
@name_of_transfer
@click.option(
    "--format", "form", type=click.Choice(("md", "html", "json")), default="md", show_default=True
)
@click.option("--output", type=click.Path(dir_okay=False), help="Write here [default: stdout].")
@click.option(
    "--dagster-url",
    envvar="TABLEFERRY_DAGSTER_URL",
    show_envvar=True,
    metavar="URL",
    help="Dagster's web UI, to which runs are linked.",
)
@as_json
@user_errors
def report(
    transfer: str, form: str, output: str | None, dagster_url: str | None, as_json: bool
) -> None:
    """Write what is known of a transfer, with the evidence. Exit code 0 only if all is green."""
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.reporting.collect import report as collect
    from tableferry.pipelines.reporting.html import Format, render

    found = collect(open_session(transfer, records=False), transfer, dagster_url=dagster_url)
    text = render(found, "json" if as_json else cast(Format, form))
    if output:
        Path(output).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    end([about(transfer, problem.text) for problem in found.problems])


@main.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@user_errors
def dev(port: int, host: str) -> None:
    """Open Dagster's user interface on the transfers, with its daemon, until Ctrl-C.

    The user interface has no login: whoever reaches the address can use it.
    """
    from tableferry.pipelines.command.dev import dev as run_services

    sys.exit(run_services(host, port))


@main.command()
@names_of_transfers
@click.option(
    "--markers",
    is_flag=True,
    help="Also forget which ranges were published, by any home: the next run compares its own.",
)
@as_json
@user_errors
def clean(transfers: Sequence[str], markers: bool, as_json: bool) -> None:
    """Drop the staging tables that dead runs left."""
    from tableferry.pipelines.command import runner
    from tableferry.pipelines.command.session import open_session

    session = open_session(*transfers, records=False)
    if markers:
        runner.forget_markers(session, transfers)
    dropped = runner.clean(session, transfers)
    if as_json:
        print_json({"ok": True, "dropped": dropped})
    for name in () if as_json else dropped or ["nothing to drop"]:
        click.echo(name)


def _say_if_nothing_is_recorded() -> None:
    from tableferry.pipelines.event_log import nothing_recorded

    if line := nothing_recorded():
        click.echo(f"ferry: {line}", err=True)


for command in (init, prune, run, schema):
    main.add_command(command)
