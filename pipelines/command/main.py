"""The `ferry` command. Commands import heavy modules when they run, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tableferry.pipelines.certifying.command import certify
from tableferry.pipelines.command import adopting, comparing, copying, inspecting, setting_up, shell
from tableferry.pipelines.command.moving import run
from tableferry.pipelines.command.plugins import Commands
from tableferry.pipelines.command.repairing import repair
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.words import counted


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tableferry")
def main() -> None:
    """Move tables between PostgreSQL, SQL Server and ClickHouse, range by range, and prove it."""


@main.command()
@shell.transfers_argument
@shell.as_json
@shell.user_errors
def validate(transfers: Sequence[str], as_json: bool) -> None:
    """Check the transfer files against the servers.

    Example: ferry validate orders
    """
    from tableferry.assets.declaring.transfer_files import load_transfers
    from tableferry.pipelines.command.one.validation import outdated_locks
    from tableferry.pipelines.command.one.validation import validate as find_problems
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.settings import transfers_folder

    declared = load_transfers(transfers_folder())
    invalid = () if transfers else declared.invalid
    # a problem of the defaults is repeated for each file
    errors = list(dict.fromkeys(str(problem) for file in invalid for problem in file.problems))
    results: dict[str, list[str]] = {}
    try:
        if transfers or declared.transfers:
            session = open_session(*transfers, records=False, warns=bool(transfers))
            results = find_problems(session, transfers)
            errors += outdated_locks(session, transfers)
    except TableferryError as error:
        errors += str(error).splitlines()
    unfit = [name for name, problems in results.items() if problems]
    if as_json:
        shell.print_json({"ok": not errors and not unfit, "errors": errors, "transfers": results})
    elif not (results or errors):
        click.echo(f"there is no transfer file in {transfers_folder()}")
    else:
        for name, problems in results.items():
            click.echo(f"{name}:" if problems else f"{name}: ok")
            for problem in problems:
                click.echo(f"  {problem}")
    if unfit:
        errors.append(f"{len(unfit)} of {len(results)} transfers cannot run: {', '.join(unfit)}")
    shell.end(errors, 2)


@main.command()
@shell.as_json
@shell.user_errors
def doctor(as_json: bool) -> None:
    """Examine servers and this machine, and say what to do.

    On servers: version, TLS, privileges for the declared transfers, snapshot isolation, disk,
    clock, and whether edge values arrive unchanged. Exit code 1 if something will fail.

    Example: ferry doctor --json
    """
    from tableferry.pipelines.command.doctor import (
        declared_transfers,
        examine,
        examine_machine,
        finding_lines,
    )
    from tableferry.pipelines.command.session import configured_servers

    servers, configured = configured_servers()
    declared = declared_transfers()
    transfers = () if isinstance(declared, InputError) else declared.transfers.values()
    here = list(examine_machine(servers, declared))
    examined = examine(servers, configured, transfers)
    errors = []
    if bad := [server.name for server in examined if not server.good]:
        errors.append(f"{len(bad)} of {len(examined)} servers have problems: {', '.join(bad)}")
    problems = [finding.subject for finding in here if finding.state == "problem"]
    if problems:
        errors.append(f"this machine has problems: {', '.join(dict.fromkeys(problems))}")
    if as_json:
        shell.print_json(
            {
                "ok": not errors,
                "here": [asdict(finding) for finding in here],
                "servers": [server.json() for server in examined],
            }
        )
    else:
        click.echo("this machine")
        for finding in here:
            click.echo("\n".join(f"  {line}" for line in finding_lines(finding)))
        for server in examined:
            click.echo("\n".join(server.lines()))
    shell.end(errors)


@main.command()
@shell.transfer_argument
@click.option(
    "--range", "name", required=True, metavar="K", help="The range to compare, or a key in it."
)
@click.option("--published", is_flag=True, help="Compare the published rows, not rejected ones.")
@click.option("--parquet", type=click.Path(dir_okay=False), help="Write all of them to this file.")
@click.option("--hop", type=int, default=None, help="Only this hop, counted from 1.")
@click.option("--limit", default=20, show_default=True, help="Maximum rows to show.")
@shell.as_json
@shell.user_errors
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

    If the last attempt on the range failed its audit, the rejected rows are compared.

    Example: ferry diff orders --range 4711
    """
    from tableferry.pipelines.command.one import runner
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.command.show.render import console, difference_table

    by_target = runner.differences(
        open_session(transfer, records=False),
        transfer,
        name,
        hop=hop,
        limit=limit,
        parquet=Path(parquet) if parquet else None,
        published=published,
    )
    good = all(not differences.rows for differences in by_target.values())
    name = next(iter(by_target.values())).range
    if as_json:
        hops = {target: differences.to_json() for target, differences in by_target.items()}
        shell.print_json({"transfer": transfer, "range": name, "ok": good, "hops": hops})
    for target, differences in {} if as_json else by_target.items():
        summary = "; ".join((differences.summary(), *differences.remarks))
        click.echo(f"{target} {differences.range}: {summary}")
        if differences.rows:
            console().print(difference_table(differences))
    shell.end([f"{transfer}: source and target differ in {name}"] * (not good))


@main.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@shell.user_errors
def dev(port: int, host: str) -> None:
    """Run Dagster's user interface and daemon, until Ctrl-C.

    The user interface has no login: anyone who reaches the address can use it.

    Example: ferry dev --port 3001
    """
    from tableferry.pipelines.command.dev import dev as run_services

    sys.exit(run_services(host, port))


@main.command()
@shell.transfers_argument
@click.option(
    "--markers",
    is_flag=True,
    help="Also delete the targets' markers, of all instances: the next run compares its ranges.",
)
@shell.as_json
@shell.user_errors
def clean(transfers: Sequence[str], markers: bool, as_json: bool) -> None:
    """Drop the staging tables of runs that have died.

    Example: ferry clean orders
    """
    from tableferry.pipelines.command.one import runner
    from tableferry.pipelines.command.session import open_session

    session = open_session(*transfers, records=False)
    unmarked = runner.forget_markers(session, transfers) if markers else []
    dropped = runner.clean(session, transfers)
    if as_json:
        shell.print_json({"ok": True, "dropped": dropped, "markers": [*map(str, unmarked)]})
        return
    lines = [f"markers of {table}" for table in unmarked] + dropped
    for line in lines or ["nothing to drop"]:
        click.echo(line)


def age(text: str) -> float:
    """Return the seconds of an age such as `90d`.

    Raises:
        InputError: the text is not an age.
    """
    from tableferry.assets.declaring import freshness

    try:
        return freshness.age(text).total_seconds()
    except ValueError as error:
        raise InputError(f"--keep {error}") from None


@main.command(short_help="Delete old runs, with their events.")
@click.option("--keep", required=True, metavar="AGE", help="Keep younger runs: 36h, 90d, 12w.")
@click.option("--dry-run", is_flag=True, help="Report without deleting.")
@shell.as_json
@shell.user_errors
def prune(keep: str, dry_run: bool, as_json: bool) -> None:
    """Delete old runs of the transfers, with their events, from Dagster's storage.

    Runs that a transfer still needs are kept: those with a range's newest materialization, its
    data version or its current verdicts, and the run that moved it.

    Example: ferry prune --keep 90d --dry-run
    """
    import time

    import dagster as dg

    from tableferry.assets.log.retention import forget, retention
    from tableferry.pipelines import event_log
    from tableferry.pipelines.command.session import open_session

    seconds = age(keep)
    session = open_session(records=False, queries=False)
    runs = retention(session.instance, session.transfers.values(), time.time() - seconds)
    if not dry_run and runs.forgotten:
        event_log.create_home()
        # the session's instance has no compute logs to delete
        with dg.DagsterInstance.get() as instance:
            forget(instance, runs.forgotten)
    reasons = sorted(runs.needed.items())
    if as_json:
        shell.print_json(
            {
                "ok": True,
                "deleted": list(runs.forgotten),
                "recent": runs.recent,
                "needed": dict(reasons),
                "dry_run": dry_run,
            }
        )
        return
    verb = "would be deleted" if dry_run else "deleted"
    click.echo(
        f"{counted(len(runs.forgotten), 'run')} {verb}; kept are {runs.recent} that are younger "
        f"than {keep} and {len(reasons)} that are needed"
    )
    for run_id, reason in reasons:
        click.echo(f"  kept {run_id[:8]}: {reason}")


for command in (
    adopting.adopt,
    certify,
    inspecting.check,
    comparing.compare,
    copying.copy,
    setting_up.init,
    inspecting.plan,
    setting_up.refresh,
    repair,
    inspecting.report,
    run,
    setting_up.schema,
    inspecting.status,
):
    main.add_command(command)
