"""`ferry prune`: deletes old runs from Dagster's storage."""

from __future__ import annotations

import click

from tableferry.pipelines.command.shell import as_json, print_json, user_errors
from tableferry.resources.words import counted


def age(text: str) -> float:
    """Return the seconds of an age such as `90d`.

    Raises:
        InputError: the text is not an age.
    """
    from tableferry.assets.declaring import freshness
    from tableferry.resources.errors import InputError

    try:
        return freshness.age(text).total_seconds()
    except ValueError as error:
        raise InputError(f"--keep {error}") from None


@click.command(short_help="Delete old runs, with their events.")
@click.option("--keep", required=True, metavar="AGE", help="Keep younger runs: 36h, 90d, 12w.")
@click.option("--dry-run", is_flag=True, help="Report without deleting.")
@as_json
@user_errors
def prune(keep: str, dry_run: bool, as_json: bool) -> None:
    """Delete old runs of the transfers, with their events, from Dagster's storage.

    Runs that a transfer still needs are kept: those with a range's newest materialization, its
    data version or its current verdicts, and the run that moved it.
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
        print_json(
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
