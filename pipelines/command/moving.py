"""`ferry run`: one transfer, or several with one summary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tableferry.assets.declaring.names import about
from tableferry.assets.declaring.profiles import PROFILES
from tableferry.pipelines.command.shell import (
    RANGE_HELP,
    as_json,
    end,
    names_of_transfers,
    print_json,
    tell_of_waiting,
    user_errors,
    verbosity,
    wide_too,
)

if TYPE_CHECKING:
    from tableferry.pipelines.command.session import Session


@click.command()
@names_of_transfers
@click.option("--all", "every", is_flag=True, help="All transfers of the folder.")
@click.option("--tag", "tags", multiple=True, metavar="KEY[=VALUE]", help="Those that have it.")
@click.option("--hop", type=int, help="This hop only, counted from 1.")
@click.option("--range", "ranges", multiple=True, metavar="K", help=RANGE_HELP)
@click.option("--failed", is_flag=True, help="Only ranges whose latest attempt or check failed.")
@click.option("--force", is_flag=True, help="Move also what is unchanged.")
@click.option("--profile", type=click.Choice([*PROFILES]), help="Knobs to use.")
@click.option("--dry-run", is_flag=True, help="Show the statements that would be sent; send none.")
@wide_too
@verbosity
@as_json
@user_errors
def run(
    transfers: Sequence[str],
    every: bool,
    tags: Sequence[str],
    hop: int | None,
    ranges: Sequence[str],
    failed: bool,
    force: bool,
    profile: str | None,
    dry_run: bool,
    wide: bool,
    log_level: str | None,
    as_json: bool,
) -> None:
    """Move what needs moving. Exit code 0 only if all ranges are committed and all checks green.

    Of several transfers each has its turn, whatever became of those before it.
    """
    from tableferry.pipelines.command import running, several
    from tableferry.pipelines.command.range_views import TransferView
    from tableferry.pipelines.command.render import console, live_progress, show_ranges
    from tableferry.pipelines.command.session import open_session
    from tableferry.resources.errors import InputError

    session = open_session(*transfers, records=not dry_run)
    names = several.chosen(session, transfers, tags, every=every)
    if len(names) > 1 and (ranges or hop is not None):
        raise InputError("--range and --hop are for one transfer at a time")
    if dry_run:
        _show_statements(
            session, names, as_json, hop=hop, ranges=ranges, failed=failed, force=force
        )
        return

    def move(name: str) -> TransferView:
        tell_of_waiting(running.blocking_runs(session, name, moves=True))
        shown = not as_json and not log_level and sys.stderr.isatty()
        with live_progress(shown=shown) as on_progress:
            return running.run(
                session,
                name,
                hop=hop,
                ranges=ranges,
                failed=failed,
                force=force,
                profile=profile,
                on_progress=on_progress,
                log_level=log_level,
            )

    if transfers and len(names) == 1:
        view = move(names[0])
        if as_json:
            print_json(view.json())
        else:
            show_ranges(console(), "run", view, wide=wide)
        end(view.errors)
    found = list(several.each(names, move))
    errors = [about(one.view.transfer, line) for one in found for line in one.view.errors]
    if every and session.declared.invalid:
        files = ", ".join(file.path.name for file in session.declared.invalid)
        errors.append(f"not run, because they are invalid: {files}")
    if as_json:
        print_json(several.document(found, errors))
    else:
        several.show_summary(console(), found)
    end(errors)


def _show_statements(
    session: Session,
    names: Sequence[str],
    as_json: bool,
    *,
    hop: int | None,
    ranges: Sequence[str],
    failed: bool,
    force: bool,
) -> None:
    from tableferry.pipelines.command.dry_run import dry_run

    found = [
        dry_run(session, name, hop=hop, ranges=ranges, failed=failed, force=force) for name in names
    ]
    if as_json:
        documents = [one.json() for one in found]
        print_json(documents[0] if len(names) == 1 else {"ok": True, "transfers": documents})
    for one in () if as_json else found:
        for line in one.lines():
            click.echo(line)
