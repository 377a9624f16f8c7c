"""`ferry prune`: bounds what Dagster's storage holds."""

from __future__ import annotations

import click

from tableferry.pipelines.command.shell import as_json, print_json, user_errors
from tableferry.resources.words import counted


def age(text: str) -> float:
    """Seconds of an age such as `90d`.

    Raises:
        InputError: it is none.
    """
    from tableferry.assets.declaring import freshness
    from tableferry.resources.errors import InputError

    try:
        return freshness.age(text).total_seconds()
    except ValueError as error:
        raise InputError(f"--keep {error}") from None


@click.command()
@click.option("--keep", required=True, metavar="AGE", help="Keep what is younger: 36h, 90d, 12w.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted.")
@as_json
@user_errors
def prune(keep: str, dry_run: bool, as_json: bool) -> None:
    """Delete old runs of the transfers, with their events, from Dagster's storage.

    What a transfer resumes from stays, however old: a range's newest materialization, its data
    version, its verdicts that count, the run that moved it.
    """
    import time

    import dagster as dg

    from tableferry.assets.log.retention import forget, retention
    from tableferry.pipelines import event_log
    from tableferry.pipelines.command.session import open_session

    seconds = age(keep)
    session = open_session(records=False, asks=False)
    found = retention(session.instance, session.transfers.values(), time.time() - seconds)
    if not dry_run and found.forgotten:
        event_log.make()
        # not a command's own instance, which keeps no output of runs
        with dg.DagsterInstance.get() as instance:
            forget(instance, found.forgotten)
    reasons = sorted(found.needed.items())
    if as_json:
        print_json(
            {
                "ok": True,
                "deleted": list(found.forgotten),
                "recent": found.recent,
                "needed": dict(reasons),
                "dry_run": dry_run,
            }
        )
        return
    done = "would be deleted" if dry_run else "deleted"
    click.echo(
        f"{counted(len(found.forgotten), 'run')} {done}; kept are {found.recent} that are younger "
        f"than {keep} and {len(reasons)} that are needed"
    )
    for run_id, why in reasons:
        click.echo(f"  kept {run_id[:8]}: {why}")
