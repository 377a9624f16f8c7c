"""Tells which of many transfers have ranges that a sensor should look at, by few queries.

Each range is looked up in an index of Dagster's, so that the cost does not grow with its history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log, parameters, select_events
from tableferry.assets.log.ranges import NOT_WIPED
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.resources.keys.range import WHOLE_NAME
from tableferry.resources.tables import TableRef

TARGETS_AT_ONCE = 100
"""The maximum targets that a statement asks about; SQLite takes 500 SELECTs in one."""

_RANGES = "SELECT 1 FROM dynamic_partitions p WHERE p.partitions_def_name = {ranges}"
_TOUCHED = f"""
EXISTS (SELECT 1 FROM event_logs e WHERE e.asset_key = {{target}} AND e.partition = p.partition
 AND e.dagster_event_type IN ('ASSET_MATERIALIZATION', 'ASSET_OBSERVATION'){NOT_WIPED})
"""
_NEWEST = """
SELECT max(e.id) FROM event_logs e WHERE e.asset_key = {{target}} AND e.partition = p.partition
 AND e.dagster_event_type = '{type}'
"""
_COMMITTED = _NEWEST.format(type="ASSET_MATERIALIZATION")
_ATTEMPTED = _NEWEST.format(type="ASSET_OBSERVATION")

_EMPTY = f"""
EXISTS ({_RANGES} AND p.partition = '{WHOLE_NAME}' AND EXISTS (
 SELECT 1 FROM event_logs n WHERE n.id = ({_COMMITTED}) AND n.event LIKE :no_rows))
"""
_NO_ROWS = '%"value": 0}, "label": "rows"}%'
"""What the text of a record of no rows has: Dagster has no table of metadata."""

_UNTOUCHED_FIRST = f"EXISTS ({_RANGES} AND NOT {_TOUCHED})"
_UNTOUCHED_LATER = f"{_UNTOUCHED_FIRST} AND EXISTS ({_RANGES} AND {_TOUCHED})"
# a check that fails before the commit leaves an attempt that failed
_FAILED = f"""
EXISTS ({_RANGES} AND (
 ({_ATTEMPTED}) > coalesce(({_COMMITTED}), 0)
 OR EXISTS (SELECT 1 FROM asset_check_executions c WHERE c.asset_key = {{target}}
  AND c.check_name IN ({{checks}}) AND c.partition = p.partition
  AND c.materialization_event_storage_id = ({_COMMITTED})
  AND c.execution_status = 'FAILED')))
"""


def with_untouched_ranges(log: Log, transfers: Collection[Transfer]) -> set[str]:
    """Return the transfers with ranges that have no record in a hop which has begun.

    The first hop counts as begun.
    """
    return _meeting(log, transfers, lambda hop: _UNTOUCHED_LATER if hop else _UNTOUCHED_FIRST)


def with_empty_range(log: Log, transfers: Collection[Transfer]) -> set[str]:
    """Return the transfers of one range without bounds that had no rows when it was last moved."""
    named = {"no_rows": _NO_ROWS}
    return _meeting(log, transfers, lambda hop: "1 = 0" if hop else _EMPTY, named)


def with_failures(log: Log, transfers: Collection[Transfer]) -> set[str]:
    """Return the transfers in which the latest attempt or check of a range may have failed.

    A verdict that another one about the same rows has replaced counts, too, and so does a warning.
    """
    marks, named = parameters("check", ALL_CHECKS)
    return _meeting(log, transfers, lambda hop: _FAILED.replace("{checks}", marks), named)


def _meeting(
    log: Log,
    transfers: Collection[Transfer],
    condition: Callable[[int], str],
    more: Mapping[str, object] | None = None,
) -> set[str]:
    """Return the transfers of which a target meets a condition.

    Args:
        log: the event log.
        transfers: the transfers.
        condition: the condition of a hop, by its place in the transfer.
        more: more parameters of the conditions.
    """
    targets = [
        (transfer, place, hop.to)
        for transfer in transfers
        for place, hop in enumerate(transfer.hops)
    ]
    names: set[str] = set()
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        page = targets[start : start + TARGETS_AT_ONCE]
        names |= _of_page(log, page, condition, more or {})
    return names


def _of_page(
    log: Log,
    targets: Sequence[tuple[Transfer, int, TableRef]],
    condition: Callable[[int], str],
    more: Mapping[str, object],
) -> set[str]:
    selects = []
    values = dict(more)
    for number, (transfer, place, target) in enumerate(targets):
        names = {"ranges": f":ranges_{number}", "target": f":target_{number}"}
        meets = condition(place).format(**names)
        selects.append(f"SELECT {number}, CASE WHEN {meets} THEN 1 ELSE 0 END")
        values[f"ranges_{number}"] = transfer.partitions_name
        values[f"target_{number}"] = stored_key(target)
    rows = select_events(log, " UNION ALL ".join(selects), **values)
    return {targets[number][0].transfer for number, meets in rows if meets}
