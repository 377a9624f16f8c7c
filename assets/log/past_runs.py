"""What the event log says of past runs of many transfers, by few queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.log.queries import Id, Log, pages, parameters, select_events, select_runs
from tableferry.assets.log.run_tags import TRANSFER
from tableferry.resources.tables import TableRef

_SECONDS = (
    "SELECT r.{column}, r.end_time - r.start_time FROM runs r WHERE r.status = 'SUCCESS'"
    " AND r.end_time IS NOT NULL AND r.start_time IS NOT NULL AND r.{column} IN ({wanted})"
)
_LAST_SUCCESSES = (
    "SELECT t.value, max(r.id) FROM run_tags t JOIN runs r ON r.run_id = t.run_id"
    " WHERE t.key = :tag AND t.value IN ({names}) AND r.status = 'SUCCESS' GROUP BY t.value"
)


def seconds_of_last_runs(log: Log, targets: Mapping[str, TableRef]) -> dict[str, float | None]:
    """Return how long each transfer's last success took, of those that have ever run.

    A run that failed may have failed at once, and one that died counts as running until it is
    noticed. The seconds are None where no run has succeeded.

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
    of_newest = _seconds(log, "run_id", {run_id for run_id in newest.values() if run_id})
    seconds = {name: of_newest.get(run_id) for name, run_id in newest.items()}
    earlier: dict[str, int] = {}
    for page in pages(name for name, taken in seconds.items() if taken is None):
        marks, values = parameters("name", page)
        rows = select_runs(log, _LAST_SUCCESSES.format(names=marks), tag=TRANSFER, **values)
        earlier.update((name, number) for name, number in rows)
    of_earlier = _seconds(log, "id", earlier.values())
    return seconds | {name: of_earlier.get(number) for name, number in earlier.items()}


def _seconds(log: Log, column: str, wanted: Iterable[Id]) -> dict[Id, float]:
    """Return the seconds of successful runs by the value of a column that identifies them."""
    seconds: dict[Id, float] = {}
    for page in pages(wanted):
        marks, values = parameters("run", page)
        statement = _SECONDS.format(column=column, wanted=marks)
        seconds.update((key, taken) for key, taken in select_runs(log, statement, **values))
    return seconds
