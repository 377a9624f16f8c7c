"""Which failed runs no later success answers; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal, TypeVar

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import recent_runs
from tableferry.assets.log.queries import Log, parameters, select_runs
from tableferry.assets.log.run_tags import checked_ranges
from tableferry.resources.tables import TableRef

SUCCEEDED = "SUCCESS"
FAILED = ("FAILURE", "CANCELED")
"""Dagster's names for how runs end."""

_RUNS = "SELECT r.status, r.run_body FROM runs r WHERE r.run_id IN ({runs}) ORDER BY r.id DESC"

Asset = TypeVar("Asset")
Coverage = tuple[Literal["move", "check"], frozenset[Asset]]
"""What a run does to a transfer, and the targets whose earlier failures its success answers."""


def is_unanswered(log: Log, transfer: Transfer, tables: Iterable[TableRef]) -> bool:
    """Whether a run that moves one of these tables failed and no later success answers it.

    A run may fail although all of its ranges were committed.
    """
    return failure_stands(
        transfer, tables, _recent(log, [stored_key(hop.to) for hop in transfer.hops])
    )


def failure_stands(
    transfer: Transfer, tables: Iterable[TableRef], runs: Iterable[Sequence[Any]]
) -> bool:
    """Whether one of these runs failed to move these tables and no later success answers it.

    Args:
        transfer: the transfer.
        tables: the targets in question.
        runs: status and body of each, the newest first; they are read only as far as needed.
    """
    wanted = {stored_key(table) for table in tables}
    targets = frozenset(stored_key(hop.to) for hop in transfer.hops)
    answered: set[str] = set()
    for status, body in runs:
        coverage = _stored_coverage(targets, json.loads(body))
        if coverage is None:
            continue
        action, covered = coverage
        if status == SUCCEEDED:
            answered |= covered
        elif action == "move" and status in FAILED and (covered & wanted) - answered:
            return True
        if answered >= wanted:
            return False
    return False


def _recent(log: Log, targets: Iterable[str]) -> Sequence[Sequence[Any]]:
    """Return status and body of the last runs that selected the targets, newest first."""
    run_ids = {run_id for target in targets for run_id in recent_runs(log, target)}
    marks, values = parameters("run", sorted(run_ids))
    return select_runs(log, _RUNS.format(runs=marks), **values) if run_ids else []


def _stored_coverage(targets: frozenset[str], run: Mapping[str, Any]) -> Coverage[str] | None:
    """`coverage` of a run as Dagster stores it."""

    def members(keys: dict[str, Any] | None) -> list[dict[str, Any]]:
        return keys["__frozenset__"] if keys else []

    selected = {json.dumps(key["path"]) for key in members(run["asset_selection"])}
    checks = members(run["asset_check_selection"])
    checked = {json.dumps(check["asset_key"]["path"]) for check in checks}
    return coverage(
        # a run that selects nothing is of all assets
        selected if selected or checked else targets,
        checked,
        targets,
        some_ranges=bool(checked_ranges(run["tags"])),
    )


def coverage(
    selected: Set[Asset], checked: Set[Asset], targets: frozenset[Asset], *, some_ranges: bool
) -> Coverage[Asset] | None:
    """Return what a run does to targets; None if it concerns none of them.

    Args:
        selected: the assets that the run materializes.
        checked: the assets whose checks the run selects.
        targets: the targets of one transfer or several.
        some_ranges: the run only checks some of the ranges, and so answers nothing.
    """
    if moved := selected & targets:
        return "move", frozenset(moved)
    if compared := checked & targets:
        return "check", frozenset() if some_ranges else frozenset(compared)
    return None
