"""Which runs have failed without a later success that answers them; Dagster is not imported."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import Any, Literal, TypeVar

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, move_job_name
from tableferry.assets.log.asking import Log, runs
from tableferry.resources.tables import TableRef

SUCCEEDED = "SUCCESS"
FAILED = ("FAILURE", "CANCELED")
"""How Dagster calls the ends of runs."""

# the last is what Dagster's pages start for assets that somebody chose
_RUNS = """
SELECT r.status, r.pipeline_name, r.run_body FROM runs r
WHERE r.pipeline_name IN (:move, :check) OR substr(r.pipeline_name, 1, 11) = '__ASSET_JOB'
ORDER BY r.id DESC LIMIT 2000
"""

Asset = TypeVar("Asset")


def is_unanswered(log: Log, transfer: Transfer, tables: Iterable[TableRef]) -> bool:
    """Whether the newest run for one of these targets failed, whatever became of its ranges."""
    name = transfer.transfer
    found = runs(log, _RUNS, move=move_job_name(name), check=check_job_name(name))
    return unanswered(_covering(transfer, found), {stored_key(table) for table in tables})


def _covering(
    transfer: Transfer, found: Iterable[Sequence[Any]]
) -> Iterator[tuple[str, str, Set[str]]]:
    """How each run of a transfer ended, what it does, and the targets that it covers."""
    targets = frozenset(stored_key(hop.to) for hop in transfer.hops)
    for status, job, body in found:
        run = json.loads(body)
        ops = (run["run_config"] or {}).get("ops") or {}
        about = covered(
            transfer.transfer,
            targets,
            job,
            {json.dumps(one["path"]) for one in _members(run["asset_selection"])},
            {
                json.dumps(one["asset_key"]["path"])
                for one in _members(run["asset_check_selection"])
            },
            some_ranges=any((op.get("config") or {}).get("ranges") for op in ops.values()),
        )
        if about is not None:
            yield status, *about


def _members(stored: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    """A set of keys, as Dagster stores it."""
    return stored["__frozenset__"] if stored else ()


def covered(
    transfer: str,
    targets: frozenset[Asset],
    job: str,
    selected: Set[Asset],
    checked: Set[Asset],
    *,
    some_ranges: bool,
) -> tuple[Literal["move", "check"], frozenset[Asset]] | None:
    """What a run does to a transfer, and for which targets its success answers.

    Args:
        transfer: the transfer's name.
        targets: all of the transfer's.
        job: the run's.
        selected: the assets that it materializes; none where nobody chose.
        checked: the assets whose checks it was started for.
        some_ranges: it only looks at some ranges.

    Returns:
        None if the run is another transfer's.
    """
    if job == check_job_name(transfer):
        # a look at some of the ranges answers for nothing
        return "check", frozenset() if some_ranges else targets
    if job == move_job_name(transfer) or (selected | checked) & targets:
        if not selected & targets and (selected or checked):
            return "check", frozenset(checked & targets)
        return "move", frozenset(selected & targets) or targets
    return None


def unanswered(runs: Iterable[tuple[str, str, Set[Asset]]], wanted: Collection[Asset]) -> bool:
    """Whether the failure of a run that moves rows of one of these targets still stands.

    Args:
        runs: how each ended, what it does (`move` or `check`), and the targets that it covers, the
            newest first; they are read as far as need be.
        wanted: the targets.
    """
    answered: set[Asset] = set()
    for status, kind, targets in runs:
        if status == SUCCEEDED:
            answered |= targets
        elif kind == "move" and status in FAILED and (targets & set(wanted)) - answered:
            return True
        if answered >= set(wanted):
            return False
    return False
