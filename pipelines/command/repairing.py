"""`ferry repair`: puts right the rows of targets that differ, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from tableferry.pipelines.command import shell

if TYPE_CHECKING:
    from tableferry.pipelines.command.one.finding import Selection
    from tableferry.pipelines.command.session import Session


@click.command(short_help="Fix the rows of committed ranges that differ.")
@shell.transfer_argument
@click.option("--dry-run", is_flag=True, help="Only show the rows that would be fixed.")
@click.option(
    "--sql", "as_sql", is_flag=True, help="Only print the statements that would fix the rows."
)
@click.option("--range", "ranges", multiple=True, metavar="K", help=shell.RANGE_HELP)
@click.option("--hop", type=int, help="Only this hop, counted from 1.")
@shell.wide
@shell.verbosity
@shell.as_json
@shell.user_errors
def repair(
    transfer: str,
    dry_run: bool,
    as_sql: bool,
    wide: bool,
    as_json: bool,
    **selection: Any,  # --range, --hop, the log level
) -> None:
    """Fix the rows of committed ranges that differ from their source, and nothing else.

    Both sides are compared by digests; rows are inserted, updated and deleted by their primary
    keys in one transaction, in which the whole range is proven. Exit code 0 only if all ranges
    agree afterwards; with --dry-run or --sql only if they agree already.

    Example: ferry repair orders --dry-run
    """
    from tableferry.pipelines.command.one import running
    from tableferry.pipelines.command.one.finding import Selection
    from tableferry.pipelines.command.session import open_session
    from tableferry.pipelines.command.show.render import console, show_ranges

    session, selected = open_session(transfer), Selection(**selection, repair=True)
    if dry_run:
        _show(session, transfer, selected, as_json=as_json)
    if as_sql:
        _print_statements(session, transfer, selected, as_json=as_json)
    shell.report_waiting(running.blocking_runs(session, transfer, moves=True))
    view = running.run_selected(session, transfer, selected, on_note=shell.say)
    if as_json:
        shell.print_json(view.json())
    else:
        show_ranges(console(), "repair", view, wide=wide)
    shell.end(view.errors)


def _print_statements(
    session: Session, name: str, selected: Selection, *, as_json: bool
) -> NoReturn:
    """Print a transaction for each committed range that differs, and exit."""
    from tableferry.pipelines.command.one.repair_sql import scripts
    from tableferry.resources.words import counted

    document = []
    for script in scripts(session, name, selected.ranges, hop=selected.hop):
        document.append(vars(script))
        if not as_json:
            click.echo("\n".join(script.lines()))
    if as_json:
        shell.print_json({"transfer": name, "ok": not document, "scripts": document})
    elif not document:
        click.echo(f"-- {name}: no row differs")
    shell.end([f"{name}: {counted(len(document), 'range')} would be repaired"] if document else [])


def _show(session: Session, name: str, selected: Selection, *, as_json: bool) -> NoReturn:
    """Show what differs in the committed ranges, with up to 20 rows of each, and exit.

    Those of a transfer that moves nothing are all compared.
    """
    from tableferry.assets.log.ledger import committed
    from tableferry.assets.running.repairs import damaged_sources
    from tableferry.pipelines.command.one import repair_sql, runner
    from tableferry.pipelines.command.one.finding import select_hops
    from tableferry.pipelines.command.show.render import console, difference_table
    from tableferry.resources.words import counted

    hop, ranges = selected.hop, selected.ranges
    servers, plan = repair_sql.plan_of_repair(session, name, hop)
    log, moves = session.instance, plan.declared.write.moves
    present = [committed(log, each.spec.to, ()) for each in select_hops(name, plan.hops, hop)]
    known = [key for key in plan.ranges if not moves or any(key in of_hop for of_hop in present)]
    chosen = [key for key in known if not ranges or key in ranges] or [*ranges]
    damaged = damaged_sources(plan, hop, servers, log, chosen)
    document = []
    for key in chosen:
        if key in damaged:
            continue
        by_target = runner.differences(session, name, key, hop=hop, published=True)
        for target, differences in by_target.items():
            if not differences.rows:
                continue
            document.append({"target": target, **differences.to_json()})
            if not as_json:
                click.echo(f"{target} {differences.range}: {differences.summary()}")
                console().print(difference_table(differences))
            # what the next hop should have is known once this one has it
            break
    problems = [f"{name}: {damaged[key]}" for key in chosen if key in damaged]
    if document:
        problems.append(f"{name}: {counted(len(document), 'range')} would be repaired")
    if as_json:
        shell.print_json({"transfer": name, "ok": not problems, "differences": document})
    elif not problems:
        click.echo(f"{name}: no row differs")
    shell.end(problems)
