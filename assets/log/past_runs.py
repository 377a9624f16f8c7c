"""What the event log says of past runs of many transfers, by few queries."""

from __future__ import annotations

from collections.abc import Mapping

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.log.queries import Log, pages, parameters, select_events, select_runs
from tableferry.resources.tables import TableRef


def seconds_of_last_runs(log: Log, targets: Mapping[str, TableRef]) -> dict[str, float | None]:
    """Return how long each transfer's newest run took, of those that have ever run.

    The seconds are None where the run has not ended.

    Args:
        log: the event log.
        targets: the last target of each transfer, by the transfer's name.
    """
    names = {stored_key(table): name for name, table in targets.items()}
    newest = {
        names[key]: run_id
        for key, run_id in select_events(
            log,
            "SELECT k.asset_key, k.last_run_id FROM asset_keys k"
            " WHERE k.last_materialization IS NOT NULL",
        )
        if key in names
    }
    seconds: dict[str, float] = {}
    for page in pages({run_id for run_id in newest.values() if run_id}):
        marks, values = parameters("id", page)
        statement = (
            "SELECT r.run_id, r.end_time - r.start_time FROM runs r"
            f" WHERE r.end_time IS NOT NULL AND r.start_time IS NOT NULL AND r.run_id IN ({marks})"
        )
        seconds.update((run_id, taken) for run_id, taken in select_runs(log, statement, **values))
    return {name: seconds.get(run_id) for name, run_id in newest.items()}
