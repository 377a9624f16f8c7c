"""Which verdicts of checks stand, of one asset or of a thousand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tableferry.assets.log.check_records import CheckRecord
from tableferry.assets.log.queries import Log, parameters, select_events, select_in
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS


@dataclass(frozen=True)
class Standing:
    """A verdict about what is in the target now."""

    id: int
    """Primary key of its row in Dagster's table of checks."""
    passed: bool


StandingVerdicts: TypeAlias = Mapping[str | None, Mapping[str, Standing]]
"""By range and check; those of the whole table under None."""

_LATEST = """
SELECT r.id, r.asset_key, r.check_name, r.range_name, r.about, r.failure FROM (
 SELECT c.id, c.asset_key, c.check_name, c.partition AS range_name,
  CASE WHEN c.execution_status <> 'SUCCEEDED' THEN c.evaluation_event END AS failure,
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) AS about,
  row_number() OVER (PARTITION BY c.asset_key, c.check_name, c.partition ORDER BY
  coalesce(c.materialization_event_storage_id, c.evaluation_event_storage_id) DESC,
  c.evaluation_event_storage_id DESC) AS place
 FROM asset_check_executions c
 WHERE c.asset_key IN ({{values}}) AND c.check_name IN ({checks})
  AND c.execution_status IN ('SUCCEEDED', 'FAILED')
  AND c.evaluation_event_storage_id IS NOT NULL{more}
) r WHERE r.place = 1
"""


def standing_verdicts(
    log: Log,
    commits: Mapping[str, Mapping[str, int]],
    checks: Sequence[str],
    *,
    only: str | None = None,
    newer: bool = False,
) -> dict[str, dict[str | None, dict[str, Standing]]]:
    """Return the standing verdict of each check: the latest about what is in the target now.

    A verdict about an older materialization than the range's newest does not count, however late it
    was recorded: a check that ran beside a move judged rows that are gone. Nor does one that is
    only planned, or that found only that the source has changed.

    Dagster's API returns the row created last. But a run creates the rows of its checks when it is
    queued and fills them in later, so the last row need not be the last verdict. Checks of a range
    that was never committed refer to no materialization.

    Args:
        log: the event log.
        commits: by asset key, as Dagster stores it, the storage ids of the newest materializations
            of its ranges.
        checks: names of checks.
        only: the only range to return.
        newer: also return those that found only that the source has changed.

    Returns:
        Verdicts by asset key, range and check, in the order of `checks`; those of a whole table
        under None.
    """
    if not checks:
        return {}
    marks, named = parameters("check", checks)
    more, one_range = (" AND c.partition = :only", {"only": only}) if only is not None else ("", {})
    statement = _LATEST.format(checks=marks, more=more)
    rows = select_in(select_events, log, statement, commits, **named, **one_range)
    newest_of_table = {key: max(ids.values(), default=0) for key, ids in commits.items()}
    places = {check: place for place, check in enumerate(checks)}
    verdicts: dict[str, dict[str | None, dict[str, Standing]]] = {}
    for row_id, key, check, name, about, failure in sorted(rows, key=lambda row: places[row[2]]):
        since = newest_of_table[key] if name is None else commits[key].get(name, 0)
        # without a range, a check of ranges is the summary of a run that checked them all
        if about < since or (name is None and check not in WHOLE_TABLE_CHECKS):
            continue
        if newer or failure is None or not CheckRecord.stored(failure).source_newer:
            by_range = verdicts.setdefault(key, {})
            by_range.setdefault(name, {})[check] = Standing(row_id, failure is None)
    return verdicts
