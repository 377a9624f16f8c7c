"""Which failed runs no later success answers; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal, TypeVar

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, move_job_name
from tableferry.assets.log.queries import Log, select_runs
from tableferry.resources.tables import TableRef

SUCCEEDED = "SUCCESS"
FAILED = ("FAILURE", "CANCELED")
"""Dagster's names for how runs end."""

# Dagster's pages start the last for assets that a user selects
_RUNS = """
SELECT r.status, r.pipeline_name, r.run_body FROM runs r
WHERE r.pipeline_name IN (:move, :check) OR substr(r.pipeline_name, 1, 11) = '__ASSET_JOB'
ORDER BY r.id DESC LIMIT 2000
"""

Asset = TypeVar("Asset")
Coverage = tuple[Literal["move", "check"], frozenset[Asset]]
"""What a run does to a transfer, and the targets whose earlier failures its success answers."""


def is_unanswered(log: Log, transfer: Transfer, tables: Iterable[TableRef]) -> bool:
    """Whether a run that moves one of these tables failed and no later success answers it.

    A run may fail although all of its ranges were committed. Runs are read from the newest one
    back, only as far as needed.
    """
    name, wanted = transfer.transfer, {stored_key(table) for table in tables}
    targets = frozenset(stored_key(hop.to) for hop in transfer.hops)
    answered: set[str] = set()
    rows = select_runs(log, _RUNS, move=move_job_name(name), check=check_job_name(name))
    for status, job, body in rows:
        coverage = _stored_coverage(name, targets, job, json.loads(body))
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


def _stored_coverage(
    transfer: str, targets: frozenset[str], job: str, run: Mapping[str, Any]
) -> Coverage[str] | None:
    """`coverage` of a run as Dagster stores it."""

    def members(keys: dict[str, Any] | None) -> list[dict[str, Any]]:
        return keys["__frozenset__"] if keys else []

    ops = (run["run_config"] or {}).get("ops") or {}
    return coverage(
        transfer,
        targets,
        job,
        {json.dumps(key["path"]) for key in members(run["asset_selection"])},
        {json.dumps(key["asset_key"]["path"]) for key in members(run["asset_check_selection"])},
        some_ranges=any((op.get("config") or {}).get("ranges") for op in ops.values()),
    )


def coverage(
    transfer: str,
    targets: frozenset[Asset],
    job: str,
    selected: Set[Asset],
    checked: Set[Asset],
    *,
    some_ranges: bool,
) -> Coverage[Asset] | None:
    """Return what a run does to a transfer; None for a run of another transfer.

    Args:
        transfer: the transfer's name.
        targets: all targets of the transfer.
        job: the run's job.
        selected: the assets that the run materializes; empty if none were selected.
        checked: the assets whose checks the run was started for.
        some_ranges: the run only checks some of the ranges.
    """
    if job == check_job_name(transfer):
        # a check of some ranges answers nothing
        return "check", frozenset() if some_ranges else targets
    if job == move_job_name(transfer) or (selected | checked) & targets:
        if not selected & targets and (selected or checked):
            return "check", frozenset(checked & targets)
        return "move", frozenset(selected & targets) or targets
    return None
