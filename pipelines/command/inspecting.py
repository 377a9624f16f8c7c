"""`ferry plan`, `status`, `check` and `report`: one transfer in full, or a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from tableferry.assets.declaring.dagster_rules import about
from tableferry.checks.levels import LEVELS
from tableferry.pipelines.command import shell
from tableferry.resources.errors import InputError, TableferryError

if TYPE_CHECKING:
    from tableferry.pipelines.command.session import Session


@click.command(short_help="Show which ranges would run, and why.")
@click.option("--values", is_flag=True, help="List the values that a run would refuse instead.")
@shell.several_transfers
@click.option("--force", is_flag=True, help="Plan as for `ferry run --force`.")
@shell.side_by_side("4")
@shell.as_json
@shell.user_errors
def plan(
    chosen: shell.Chosen,
    jobs: int | None,
    force: bool,
    values: bool,
    as_json: bool,
) -> None:
    """Show which ranges would run, be refused or skipped, and why; nothing is changed.

    Both sides of ranges of which only the rows that differ would move are compared, to count these.
    Several transfers have a line each, with their ranges by reason. With --values, every value
    that a run would refuse is listed by column, with remedies. Exit code 1 if a run would refuse
    a range, or such a value.

    Example: ferry plan orders --values
    """
    from tableferry.pipelines.command.many import fleet
    from tableferry.pipelines.command.one import runner, validation
    from tableferry.pipelines.command.session import invalid_files, open_session, select_transfers
    from tableferry.pipelines.command.show import fleet_views
    from tableferry.pipelines.command.show.render import console, show_plan

    session = open_session(*chosen.names, records=False)
    names = select_transfers(session, chosen, moving=True)
    if values:
        alone = len(names) == 1 and bool(chosen.names)
        at_a_time = 0 if alone else jobs or fleet.PLANNED_AT_A_TIME
        _show_values(session, chosen, names, at_a_time, as_json=as_json)
    changes = validation.catalog_changes(session, names)
    differences = [line for change in changes for line in change.lines()]
    in_catalog = {"catalog": [change.json() for change in changes]}
    if len(names) == 1 and chosen.names:
        try:
            view = runner.plan(session, names[0], force=force, count_rows=True)
        except TableferryError:
            # a table that is gone may be why
            for line in differences:
                click.echo(line, err=True)
            raise
        if as_json:
            shell.print_json({**view.json(), **in_catalog})
        else:
            show_plan(console(), view)
            for line in differences:
                click.echo(line)
            _warn_without_log()
        shell.end(view.errors)
    plans = fleet.plan_each(session, names, jobs or fleet.PLANNED_AT_A_TIME, force=force)
    errors = [*fleet_views.attempt_errors(plans), *invalid_files(session, "planned", chosen)]
    if as_json:
        shell.print_json({**fleet_views.attempts_document(plans, errors), **in_catalog})
    else:
        fleet_views.show_plans(console(), plans)
        for line in differences:
            click.echo(line)
        _warn_without_log()
    shell.end(errors)


def _show_values(
    session: Session, chosen: shell.Chosen, names: Sequence[str], jobs: int, *, as_json: bool
) -> NoReturn:
    """List the values that runs of some transfers would refuse, and exit; 0 jobs: of one alone."""
    from tableferry.pipelines.command.many import fleet
    from tableferry.pipelines.command.one.values import ValuesView, examine_values
    from tableferry.pipelines.command.session import invalid_files
    from tableferry.pipelines.command.show import fleet_views

    def examine(name: str) -> ValuesView:
        transfer = session.transfer(name)
        return examine_values(transfer, session.servers_of(transfer))

    if not jobs:
        view = examine(names[0])
        if as_json:
            shell.print_json(view.json())
        for line in () if as_json else view.lines():
            click.echo(line)
        shell.end(view.errors)
    views = fleet.in_threads(names, jobs, examine, lambda view: view.errors)
    errors = [*fleet_views.attempt_errors(views), *invalid_files(session, "examined", chosen)]
    if as_json:
        shell.print_json(fleet_views.attempts_document(views, errors))
    else:
        for attempt in views:
            for line in attempt.view.lines() if attempt.view else ():
                click.echo(line)
    shell.end(errors)


@click.command(short_help="Show ranges, rows, last runs and checks.")
@shell.several_transfers
@shell.wide
@shell.as_json
@shell.user_errors
def status(chosen: shell.Chosen, wide: bool, as_json: bool) -> None:
    """Show the state, rows, last run and checks of each range, from the event log.

    Several transfers, or without a name all of them, have a line each, failures first; the exit
    code is 0 then only if all are proven. That of one transfer is 1 if something of it has failed,
    or is proven by another declaration.

    Example: ferry status orders
    """
    from tableferry.pipelines.command.session import open_session, select_transfers
    from tableferry.pipelines.command.show import fleet_views

    session = open_session(*chosen.names, records=False, queries=False)
    if len(set(chosen.names)) == 1 and not (chosen.all or chosen.tags):
        from tableferry.pipelines.command.one.status import status as read_status

        view = read_status(session, chosen.names[0])
        if as_json:
            shell.print_json(view.json())
        else:
            from tableferry.pipelines.command.show.render import console, show_ranges

            show_ranges(console(), "status", view, wide=wide)
            _warn_without_log()
        shell.end(view.errors if view.failed else [])
    if wide:
        raise InputError("--wide is for one transfer at a time")
    whole = chosen.all or not (chosen.names or chosen.tags)
    names = select_transfers(session, replace(chosen, all=whole))
    states = fleet_views.read_fleet(session, names, whole=whole)
    if as_json:
        shell.print_json(fleet_views.fleet_document(states))
    else:
        from tableferry.pipelines.command.show.render import console

        fleet_views.show_fleet(console(), states)
        _warn_without_log()
    shell.end(fleet_views.fleet_errors(states))


@click.command(short_help="Reconcile committed ranges without moving data.")
@click.option("--level", type=shell.LevelChoice(LEVELS), help="How strict; default: as declared.")
@click.option("--range", "ranges", multiple=True, metavar="K", help=shell.RANGE_HELP)
@shell.several_transfers
@click.option(
    "--as-of",
    type=click.Choice(("last-run",)),
    help="Compare the targets with what was committed to them; the source is not read.",
)
@click.option("--up-to-date", is_flag=True, help="Also fail where the source is newer.")
@shell.side_by_side(shell.BY_CORES)
@click.option(
    "--recheck",
    metavar="NxS",
    help="Compare rows that differ N more times, S seconds apart: 3x10s [default: 1x0s].",
)
@shell.verbosity
@shell.as_json
@shell.user_errors
def check(
    chosen: shell.Chosen,
    jobs: int | None,
    as_of: str | None,
    as_json: bool,
    **options: Any,  # --level, --range, --up-to-date, --recheck, the log level
) -> None:
    """Reconcile committed ranges without moving data, and run their expectations.

    Exit code 0 only if no target differs from what was committed to it, and no range is failed or
    missing. A source that has changed since is a warning. Without --range, the tables are also
    compared as a whole. Several transfers are checked side by side, and have a line each.

    Example: ferry check orders --level full_hash --range 4711
    """
    from tableferry.pipelines.command.many import fleet
    from tableferry.pipelines.command.many.side_by_side import usable_cores
    from tableferry.pipelines.command.one import runner
    from tableferry.pipelines.command.session import invalid_files, open_session, select_transfers
    from tableferry.pipelines.command.show import fleet_views
    from tableferry.pipelines.command.show.render import console, show_checks

    session = open_session(*chosen.names)
    names = select_transfers(session, chosen)
    if as_of and (options["level"] or options["up_to_date"]):
        raise InputError("--as-of compares digests with the event log; it takes no other level")
    if len(names) > 1 and options["ranges"]:
        raise InputError("--range is for one transfer at a time")

    options["as_of_last_run"] = as_of is not None
    if len(names) == 1 and chosen.names:
        shell.report_waiting(runner.blocking_runs(session, names[0]))
        view = runner.check(session, names[0], **options)
        if as_json:
            shell.print_json(view.json())
        else:
            show_checks(console(), names[0], view.checks)
            click.echo(view.closing)
        shell.end(view.errors)
    at_a_time = min(jobs or usable_cores(), len(names))
    views = fleet.check_each(session, names, at_a_time, options)
    errors = [*fleet_views.attempt_errors(views), *invalid_files(session, "checked", chosen)]
    if as_json:
        shell.print_json(fleet_views.attempts_document(views, errors))
    else:
        fleet_views.show_check_views(console(), views)
    shell.end(errors)


@click.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(("md", "html", "json")),
    default="md",
    show_default=True,
)
@click.option("--output", type=click.Path(dir_okay=False), help="Write here [default: stdout].")
@shell.several_transfers
@click.option(
    "--dagster-url",
    envvar="TABLEFERRY_DAGSTER_URL",
    show_envvar=True,
    metavar="URL",
    help="Dagster's web UI, for links to runs and tables.",
)
@shell.as_json
@shell.user_errors
def report(
    chosen: shell.Chosen,
    format_: str,
    output: str | None,
    dagster_url: str | None,
    as_json: bool,
) -> None:
    """Write a report of a transfer, with the evidence. Exit code 0 only if all is green.

    Of several transfers, a line per table: its state, rows and last proof.

    Example: ferry report orders --format html --output orders.html
    """
    from tableferry.pipelines.command.session import open_session, select_transfers
    from tableferry.pipelines.command.show import fleet_views

    format_ = "json" if as_json else format_
    one = len(set(chosen.names)) == 1
    session = open_session(*chosen.names, records=False, queries=one)
    names = select_transfers(session, chosen)
    if one:
        from tableferry.pipelines.reporting.collect import report as collect
        from tableferry.pipelines.reporting.html import Format, render

        collected = collect(session, names[0], dagster_url=dagster_url)
        text = render(collected, cast(Format, format_))
        errors = [about(names[0], problem.text) for problem in collected.problems]
    else:
        states = fleet_views.read_fleet(session, names, whole=chosen.all)
        text = fleet_views.fleet_report(states, format_, dagster_url)
        errors = fleet_views.fleet_errors(states)
    if output:
        Path(output).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)
    shell.end(errors)


def _warn_without_log() -> None:
    from tableferry.pipelines.event_log import no_log_message

    if line := no_log_message():
        click.echo(line, err=True)  # no error
