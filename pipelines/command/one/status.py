"""`ferry status`: reads the event log, without importing Dagster while no run is active."""

from __future__ import annotations

from tableferry.assets.judging import ProofState
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.runs import failed_transfers
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import TransferView, range_notes, range_views
from tableferry.pipelines.reporting.fleet import transfer_entry


def status(session: Session, name: str) -> TransferView:
    """Return the recorded state of every known range, and why not all are proven.

    No server is queried.
    """
    transfer = session.transfer(name)
    statuses, failed_runs = session.ask_log(
        lambda log: (read_status(log, [transfer]), failed_transfers(log, [transfer]))
    )
    hops = range(1, len(transfer.hops) + 1)
    views = [view for hop in hops for view in range_views(transfer, statuses, hop)]
    lacking = any(target.lacking for target in statuses.values())
    if not (views or lacking or failed_runs):
        return TransferView(name, [])
    entry = transfer_entry(transfer, statuses, failed=failed_runs.get(name))
    otherwise = any(view.judgement.state is ProofState.OTHERWISE for view in views)
    failed = otherwise or entry.outcome is ProofState.FAILED
    return TransferView(
        name,
        views,
        not failed and all(view.good for view in views),
        [*entry.problems],
        notes=range_notes(views),
        failed=failed,
    )
