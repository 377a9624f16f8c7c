"""`ferry run`: one transfer, or several with one summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tableferry.assets.declaring.dagster_rules import about
from tableferry.assets.declaring.profiles import PROFILES
from tableferry.pipelines.command import shell

if TYPE_CHECKING:
    from tableferry.pipelines.command.one.finding import Selection
    from tableferry.pipelines.command.session import Session
    from tableferry.pipelines.command.show.range_views import TransferOutcome


@dataclass(frozen=True)
class Output:
    """What a command that moves rows shows and keeps of it."""

    quiet: bool
    """Show no progress."""
    wide: bool
    """Show the seconds of phases, too."""
    as_json: bool
    """Print a JSON document."""
    log_level: str | None
    """Log Dagster's events from this level on to standard error."""
    evidence: Path | None = None
    """The folder for the evidence; by default what each transfer declares."""

    @property
    def shows_progress(self) -> bool:
        """Whether the progress of a move is shown, rather than log lines or nothing."""
        logged = self.log_level and sys.stderr.isatty()
        return not self.quiet and not self.as_json and not logged


def showing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--quiet --wide --verbose --log-level --json`, passed to the command as `display`."""

    @shell.quiet
    @shell.wide
    @shell.verbosity
    @shell.as_json
    @wraps(command)
    def wrapped(
        quiet: bool, wide: bool, as_json: bool, log_level: str | None, **kwargs: Any
    ) -> Any:
        return command(display=Output(quiet, wide, as_json, log_level), **kwargs)

    return wrapped


@click.command()
@shell.several_transfers
@click.option("--failed", is_flag=True, help="Only ranges whose latest attempt or check failed.")
@click.option("--force", is_flag=True, help="Also move unchanged ranges.")
@click.option("--hop", type=int, help="Only this hop, counted from 1.")
@click.option("--range", "ranges", multiple=True, metavar="K", help=shell.RANGE_HELP)
@click.option("--rejected", is_flag=True, help="Only ranges with rejected rows, tried again.")
@click.option("--recreate", is_flag=True, help="Recreate the targets, and replace them at once.")
@click.option("--profile", type=click.Choice([*PROFILES]), help="The profile of settings to use.")
@click.option(
    "--consistent",
    is_flag=True,
    help="Read all tables of a source in one state (PostgreSQL).",
)
@shell.side_by_side(shell.BY_CORES)
@click.option(
    "--evidence",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write there what the run did, as JSON, Markdown, and a trail.",
)
@click.option("--dry-run", is_flag=True, help="Show the statements that would be sent; send none.")
@shell.user_errors
@showing
def run(
    chosen: shell.Chosen,
    consistent: bool,
    jobs: int | None,
    evidence: Path | None,
    dry_run: bool,
    rejected: bool,
    display: Output,
    **selection: Any,  # --hop, --range, --failed, --force, --recreate, --profile
) -> None:
    """Move what needs moving. Exit code 0 only if all ranges are committed and all checks green.

    Several transfers run side by side, the longest first; a failure does not stop the others.

    Example: ferry run orders --failed
    """
    from tableferry.pipelines.command.one import running
    from tableferry.pipelines.command.one.finding import Selection
    from tableferry.pipelines.command.session import invalid_files, open_session, select_transfers
    from tableferry.resources.errors import InputError

    session = open_session(*chosen.names, records=not dry_run)
    names = select_transfers(session, chosen, moving=True)
    if len(names) > 1 and (selection["ranges"] or selection["hop"] is not None):
        raise InputError("--range and --hop are for one transfer at a time")
    part = selection["ranges"] or selection["failed"] or rejected
    if consistent and (part or selection["hop"] is not None):
        raise InputError(
            "--consistent is for whole tables: without --range, --hop, --failed and --rejected"
        )
    if selection["recreate"] and part:
        raise InputError("--recreate is for whole tables: without --range, --failed and --rejected")
    if rejected:
        if len(names) > 1 or selection["ranges"]:
            raise InputError("--rejected is for one transfer at a time, without --range")
        selection |= {"ranges": running.rejected_ranges(session, *names), "force": True}
        if not selection["ranges"]:
            click.echo(f"{names[0]}: no row is rejected", err=True)
            shell.end([])
    selected = Selection(**selection, log_level=display.log_level)
    if dry_run:
        from tableferry.pipelines.command.one import dry_run as dry_runs

        plans = [dry_runs.dry_run(session, name, selected) for name in names]
        if display.as_json:
            documents = [plan.json() for plan in plans]
            shell.print_json(
                documents[0] if len(names) == 1 else {"ok": True, "transfers": documents}
            )
        else:
            click.echo("\n".join(line for plan in plans for line in plan.lines()))
        return

    left = invalid_files(session, "run", chosen)
    display = replace(display, evidence=evidence)
    if chosen.names and len(names) == 1 and not consistent:
        shell.end(move_one(session, names[0], selected, display))
    shell.end(move(session, names, selected, display, jobs=jobs, consistent=consistent, left=left))


def move_one(session: Session, name: str, selected: Selection, display: Output) -> list[str]:
    """Move a transfer, show how far its ranges are and what has come of them; return the errors."""
    from tableferry.pipelines.certifying.evidence import keep
    from tableferry.pipelines.command.one import running
    from tableferry.pipelines.command.show.range_views import TransferOutcome
    from tableferry.pipelines.command.show.render import console, show_ranges
    from tableferry.pipelines.command.show.watching import watch_one

    shell.report_waiting(running.blocking_runs(session, name, moves=True))
    began = time.perf_counter()
    with watch_one(name, shown=display.shows_progress) as watch:
        view = running.run_selected(session, name, selected, watch.progress, shell.say)
        watch.finished(TransferOutcome(view, time.perf_counter() - began))
    unwritten = keep(session, [view], display.evidence)
    errors = [*view.errors, *unwritten]
    if display.as_json:
        shell.print_json({**view.json(), "ok": view.good and not unwritten, "errors": errors})
    else:
        show_ranges(console(), "run", view, wide=display.wide, folded=not display.wide)
    return errors


def move(
    session: Session,
    names: Sequence[str],
    selected: Selection,
    display: Output,
    *,
    jobs: int | None,
    consistent: bool = False,
    left: Sequence[str] = (),
) -> list[str]:
    """Move transfers, and show how far they are and what has come of it.

    Args:
        session: the session of the command.
        names: the transfers.
        selected: what to do with each.
        display: what is shown, a line per transfer.
        jobs: how many are moved at a time; by default by the number of cores.
        consistent: read all tables of a source in one state.
        left: errors about what is not moved at all.

    Returns:
        The errors of all.
    """
    from tableferry.pipelines.certifying.evidence import keep
    from tableferry.pipelines.command.many.consistent import consistency
    from tableferry.pipelines.command.many.fleet import run_fleet
    from tableferry.pipelines.command.many.side_by_side import usable_cores
    from tableferry.pipelines.command.show.fleet_views import show_summary
    from tableferry.pipelines.command.show.render import console
    from tableferry.pipelines.command.show.watching import watch_several

    shown = display.shows_progress
    views: list[TransferOutcome] = []
    interrupted = False
    lost: list[str] = []

    def may_start() -> bool:
        if not lost:
            lost.extend(one_state.lost())
        return not lost

    with consistency(session, names if consistent else ()) as one_state:
        selected = replace(selected, held=one_state.held)
        if shown:
            for line in one_state.beginning():
                click.echo(line, err=True)
        with watch_several(shown=shown) as watch:
            try:
                at_a_time = min(jobs or usable_cores(), len(names))
                for outcome in run_fleet(session, names, selected, watch, at_a_time, may_start):
                    views.append(outcome)
            except KeyboardInterrupt:
                interrupted = True
    views.sort(key=lambda item: names.index(item.view.transfer))
    errors = [about(item.view.transfer, line) for item in views for line in item.view.errors]
    ended = {item.view.transfer for item in views}
    if lost:
        errors += one_state.not_run(lost, [name for name in names if name not in ended])
    if interrupted:
        errors.append(
            f"interrupted; {len(views)} of {len(names)} transfers have ended; what is committed "
            "stays, and the next run goes on from there"
        )
    errors += left
    complete = not errors
    errors += keep(session, [item.view for item in views], display.evidence)
    if display.as_json:
        documents = [item.view.json() for item in views]
        document = {"ok": not errors, "errors": errors, "transfers": documents}
        shell.print_json({**document, **one_state.document()})
    else:
        show_summary(console(), views)
        for line in one_state.lines(complete=complete):
            click.echo(line)
    return errors
