"""`ferry status`: out of the event log's file at a glance, or as every command does."""

from __future__ import annotations

import click

from tableferry.assets.log.glance import Glance, Unseen, glance
from tableferry.assets.log.records import RangeRecord, State
from tableferry.pipelines import event_log
from tableferry.pipelines.command.known import Known, key, recall
from tableferry.pipelines.command.range_views import RangeView, TransferView, notes_of_ranges
from tableferry.pipelines.settings import transfers_folder


def status(name: str) -> TransferView:
    """What the event log says of every known range; the servers are not asked.

    Neither is Dagster, which takes seconds to import, as long as the transfer files are those that
    the last command read, and the event log is in the file where Dagster keeps it by itself.

    Raises:
        InputError: there is no such transfer, or its file is invalid.
    """
    known = recall(event_log.place(), key(transfers_folder()))
    if known and (view := _seen(known, name)):
        for line in known.told:
            click.echo(line, err=True)
        return view
    from tableferry.pipelines.command import runner
    from tableferry.pipelines.command.session import open_session

    return runner.status(open_session(name, records=False, asks=False), name)


def _seen(known: Known, name: str) -> TransferView | None:
    """The status as the file has it; None if Dagster has to be asked."""
    transfer = known.transfers.get(name)
    opened = transfer and glance(event_log.place())
    if not transfer or not opened:
        return None
    views: list[RangeView] = []
    try:
        with opened as connection:
            log = Glance(connection)
            names = log.partitions(transfer.partitions)
            for number, hop in enumerate(transfer.hops, start=1):
                records = log.records(hop.asset)
                verdicts = log.verdicts(hop.asset, transfer.checks)
                views += [
                    RangeView(
                        **vars(records.get(one) or RangeRecord(one, State.MISSING)),
                        hop=number,
                        target=hop.target,
                        checks=verdicts.get(one, {}) if one in records else {},
                    )
                    for one in names
                ]
    except Unseen:
        return None
    return TransferView(name, views, all(view.good for view in views), notes=notes_of_ranges(views))
