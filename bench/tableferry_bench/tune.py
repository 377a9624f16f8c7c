"""The tuning matrix: one transfer, with every combination of what can be set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tableferry_bench.contenders.base import Contender
from tableferry_bench.contenders.ferry import CHECKSUM, Ferry
from tableferry_bench.results import Result
from tableferry_bench.servers import Servers
from tableferry_bench.suite import Measured, Tell, execute

AXES: dict[str, tuple[str | int, ...]] = {
    "ranges": (4, 16),
    "export": (1, 2),
    "load": (1, 2),
    "wire": ("arrow", "text"),
    "profile": ("balanced", "throughput"),
}
"""What is combined unless the user says otherwise: 32 settings."""


def matrix(axes: dict[str, tuple[str | int, ...]]) -> list[Contender]:
    """A transfer for each combination.

    Args:
        axes: values of `ranges` (how many), `export` and `load` (workers), `wire` and `profile`.
    """
    found: list[Contender] = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        declared: dict[str, Any] = {
            "ranges": {"count": chosen["ranges"]},
            "parallel": {"export": chosen["export"], "load": chosen["load"]},
            "profile": chosen["profile"],
        }
        wire = str(chosen["wire"])
        found.append(Ferry("ferry", CHECKSUM, declared=declared, wire=wire, options=chosen))
    return found


def run_matrix(
    servers: Servers,
    workloads: Sequence[str],
    axes: dict[str, tuple[str | int, ...]],
    *,
    runs: int,
    warmups: int,
    keep: bool,
    tell: Tell,
) -> Result:
    """Move the same rows with each combination; the result's advice says which to take."""
    parts = [Measured(workload, matrix(axes), runs, warmups) for workload in workloads]
    return execute(servers, "tune", "tune", parts, keep=keep, tell=tell)
