"""`ferry status`: what the event log says, which needs no Dagster as long as no run goes on."""

from __future__ import annotations

from tableferry.assets.log.asking import Log
from tableferry.assets.log.ledger import partitions
from tableferry.pipelines.command.range_views import (
    RangeView,
    TransferView,
    range_notes,
    range_views,
)
from tableferry.pipelines.command.session import Session


def status(session: Session, name: str) -> TransferView:
    """What the event log says of every known range; the servers are not asked."""
    transfer = session.transfer(name)

    def look(log: Log) -> list[RangeView]:
        names = partitions(log, transfer.partitions_name)
        numbers = range(1, len(transfer.hops) + 1)
        return [view for number in numbers for view in range_views(log, transfer, number, names)]

    views = session.read(look)
    return TransferView(name, views, all(view.good for view in views), notes=range_notes(views))
