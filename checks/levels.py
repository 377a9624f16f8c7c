"""The levels at which both sides of a range are compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from tableferry.resources.errors import InputError

Level = Literal["count", "checksum", "sample_hash", "full_hash"]

GONE = {
    "in_flight": "in_flight is gone, as it did not see what the driver of the source did: take "
    "checksum; or count, and `ferry check T --level checksum` by a schedule"
}
"""Levels of earlier releases, whose verdicts a log may hold, and what to declare instead."""


@dataclass(frozen=True)
class CheckLevel:
    """How strictly both sides of a range are compared."""

    name: Level
    check: str
    """The name of its asset check."""
    compares: Literal["counts", "sums", "sample", "rows"]
    """Row counts, sums of row digests, or the digests of some or of all rows one by one."""
    description: str
    """What the asset check says of a range that passes."""
    proof: str
    """What is compared, in the words of a report; levels beside each other may share them."""

    @property
    def values(self) -> bool:
        """Whether values are compared, and not row counts alone."""
        return self.compares != "counts"

    @property
    def row_by_row(self) -> bool:
        """Whether rows are read one by one, so that those that differ are known."""
        return self.compares in ("sample", "rows")

    @property
    def complete(self) -> bool:
        """Whether all values of both tables are compared, whenever one asks."""
        return self.compares in ("sums", "rows")


LEVELS: dict[Level, CheckLevel] = {
    level.name: level
    for level in (
        CheckLevel(
            "count",
            "row_count",
            "counts",
            "The range has as many rows in the target as in the source.",
            "row counts",
        ),
        CheckLevel(
            "checksum",
            "checksum",
            "sums",
            "Row counts agree, and the exact sums of the row digests, of every copied value.",
            "digests of all rows of both tables, summed by range",
        ),
        CheckLevel(
            "sample_hash",
            "sample_hash",
            "sample",
            "About 1000 rows, chosen by key over the whole range, agree value by value.",
            "digests compared row by row",
        ),
        CheckLevel(
            "full_hash",
            "full_hash",
            "rows",
            "All rows of the range agree, copied value by copied value.",
            "digests compared row by row",
        ),
    )
}
"""The levels by name, from the cheapest to the strictest."""

CHECK_NAMES: dict[Level, str] = {name: level.check for name, level in LEVELS.items()}
"""The name of each level's asset check."""

ALL_LEVEL_CHECKS = (*CHECK_NAMES.values(), *GONE)
"""The names of all checks of levels that a log may hold."""

BY_CHECK: dict[str, CheckLevel] = {level.check: level for level in LEVELS.values()}
"""The levels by the names of their asset checks."""


def require_level(name: str) -> None:
    """Raise unless there is a level of this name.

    Raises:
        InputError: there is none, or no longer.
    """
    if name not in LEVELS:
        raise InputError(GONE.get(name, f"level {name!r} should be one of {', '.join(LEVELS)}"))


def proofs() -> str:
    """Return what each level compares, e.g. `count (row counts), checksum (digests of rows)`."""
    return ", ".join(
        f"{' and '.join(level.name for level in levels)} ({proof})"
        for proof, levels in groupby(LEVELS.values(), key=lambda level: level.proof)
    )
