"""`ferry status`: reads the event log, without importing Dagster while no run is active."""

from __future__ import annotations

from tableferry.assets.log.ledger import partitions
from tableferry.assets.log.queries import Log
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import (
    RangeView,
    TransferView,
    range_notes,
    range_views,
)
from tableferry.pipelines.reporting.fleet import TransferState, fleet


def status(session: Session, name: str) -> TransferView:
    """Return the recorded state of every known range, and why not all are proven.

    No server is queried.
    """
    transfer = session.transfer(name)

    def read(log: Log) -> list[RangeView]:
        names = partitions(log, transfer.partitions_name)
        hops = range(1, len(transfer.hops) + 1)
        return [view for hop in hops for view in range_views(log, transfer, hop, names)]

    views = session.ask_log(read)
    if not views:
        return TransferView(name, [])
    (judged,) = session.ask_log(
        lambda log: fleet(log, session.declared, [name], whole=False)
    ).transfers
    failed = judged.outcome is TransferState.FAILED
    return TransferView(
        name,
        views,
        not failed and all(view.good for view in views),
        [*judged.problems],
        notes=range_notes(views),
        failed=failed,
    )
