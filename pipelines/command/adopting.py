"""`ferry adopt`: records what is in a target already, and offers that before a first run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tableferry.checks import levels
from tableferry.pipelines.command import shell

if TYPE_CHECKING:
    from tableferry.pipelines.command.session import Session
    from tableferry.pipelines.command.show.views import AdoptionView


@click.command(short_help="Record the ranges that a target has already.")
@shell.transfer_argument
@click.option("--dry-run", is_flag=True, help="Only compare; record nothing.")
@click.option(
    "--level",
    type=shell.LevelChoice([level.name for level in levels.LEVELS.values() if level.complete]),
    help="How strict  [default: checksum, or full_hash if it is declared].",
)
@click.option("--range", "ranges", multiple=True, metavar="K", help=shell.RANGE_HELP)
@shell.verbosity
@shell.as_json
@shell.user_errors
def adopt(
    transfer: str,
    ranges: Sequence[str],
    level: levels.Level | None,
    dry_run: bool,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Record what the target has already: compare each range, and commit those that are equal.

    For a table that another tool has filled, or whose event log was lost. Nothing is moved: the
    next run moves what differs, and that alone. Exit code 0 also if ranges differ.

    Example: ferry adopt orders --dry-run
    """
    from tableferry.pipelines.command.one import runner
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.command.show.render import console, show_adoption

    session = open_session(transfer, records=not dry_run)
    if not dry_run:
        shell.report_waiting(runner.blocking_runs(session, transfer))
    view = adopt_ranges(
        session, transfer, ranges=ranges, level=level, dry_run=dry_run, log_level=log_level
    )
    if as_json:
        shell.print_json(view.json())
    else:
        show_adoption(console(), view)
        click.echo(view.closing)
    shell.end(view.errors)


def adopt_ranges(
    session: Session,
    name: str,
    *,
    ranges: Sequence[str] = (),
    level: levels.Level | None = None,
    dry_run: bool = False,
    log_level: str | None = None,
) -> AdoptionView:
    """Compare ranges with their targets, and record those that are equal as committed.

    Args:
        session: the session of the command.
        name: the transfer.
        ranges: only these ranges, as a user names them.
        level: how strictly to compare.
        dry_run: record nothing.
        log_level: log Dagster's events from this level on to standard error.

    Raises:
        InputError: the transfer or a range does not exist, or nothing can be adopted.
    """
    from tableferry.assets.log.queries import Log
    from tableferry.assets.planning.changes.change_plan import plan_changes
    from tableferry.assets.planning.planner import make_plan
    from tableferry.assets.planning.snapshots import shared_snapshot
    from tableferry.assets.planning.transfer_plan import TransferPlan
    from tableferry.assets.running.adopting import adopting, compare, stray_notes
    from tableferry.assets.running.caller import Caller
    from tableferry.assets.verifying.checked import CheckRequest
    from tableferry.pipelines.command.one.finding import match_ranges
    from tableferry.pipelines.command.one.launching import execute_checks, failures
    from tableferry.pipelines.command.show.views import AdoptionView

    transfer = session.moving_transfer(name)
    servers, intent = session.servers_of(transfer), adopting(transfer, level)
    with shared_snapshot(transfer, servers) as shared:

        def named(plan: TransferPlan) -> Sequence[str]:
            return match_ranges(name, ranges, plan.ranges) or [*plan.ranges]

        def asked(plan: TransferPlan) -> Sequence[str]:
            return named(plan) if dry_run else ()

        def read(log: Log) -> TransferPlan:
            return make_plan(transfer, servers, log, intent, shared=shared, asked=asked)

        plan = session.ask_log(read)
        plan = plan.only(named(plan))
        notes = [] if ranges else stray_notes(plan, servers)
        hops = plan.hops
        changes = session.ask_log(lambda log: plan_changes(transfer, hops, servers, log))
        if dry_run:
            compared = compare(plan, servers, session.instance)
            return AdoptionView(name, compared, dry_run, notes=notes, refused=changes.refusals)
    request = CheckRequest(level, tuple(plan.ranges) if ranges else (), adopt=True)
    caller = Caller()
    result = execute_checks(session, transfer, request, caller, log_level)
    errors = [] if result.success else failures(result)
    tables = [check.summary() for check in caller.checked if not check.verdict.passed]
    notes += [*dict.fromkeys(caller.notes), *tables]
    return AdoptionView(name, caller.compared, errors=errors, notes=notes, refused=changes.refusals)
