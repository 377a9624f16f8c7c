"""Which runs have failed without a later success that answers them; Dagster is not imported."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import Literal, TypeVar

from tableferry.assets.declaring.names import check_job_name, move_job_name

SUCCEEDED = "SUCCESS"
FAILED = ("FAILURE", "CANCELED")
"""How Dagster calls the ends of runs."""

Asset = TypeVar("Asset")


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
