"""Results as a measurement would leave them, without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tableferry_bench.results import Case, Result, Run, Skew, Stored


def case(
    contender: str,
    seconds: Sequence[float],
    rows: int = 1000,
    workload: str = "wide",
    **more: Any,
) -> Case:
    """One whose first run is a warm-up of 99 seconds."""
    runs = [
        Run(
            round=number,
            seconds=one,
            peak_rss_bytes=100_000_000,
            cpu_seconds={"client": one / 2, "postgres": 0.5, "clickhouse": 0.25},
            rows=rows,
            phases={
                "start": 0.5,
                "fingerprint": 0.1,
                "ranges": one,
                "end": 0.2,
                "load": 3,
                "export": 1,
            },
            skew=Skew(4, 1.5, None),
            system_seconds={"client": one / 8, "postgres": 0.3, "clickhouse": 0.0},
            stored={"clickhouse": Stored(20 * rows, 80 * rows)},
            machine_load=1.0,
        )
        for number, one in enumerate([99.0, *seconds], start=-1)
    ]
    given = {"route": "a -> b", "proves": "nothing", "text_bytes": 2_000_000} | more
    return Case(workload, rows, contender, runs=tuple(runs), **given)  # type: ignore[arg-type]


def result(*cases: Case, **more: Any) -> Result:
    """One of these cases."""
    given = {
        "kind": "run",
        "suite": "test",
        "created": "2026-01-02T03:04:05+00:00",
        "tableferry": "0.1.0",
        "machine": {
            "cpu": "x",
            "cores": 2,
            "memory_mb": 8000,
            "platform": "Linux x86_64",
            "python": "3.11.7",
        },
        "servers": {"postgres": "18.6, on this machine", "clickhouse": "26.9, elsewhere"},
        "settings": {"runs": 3, "warmups": 1},
    }
    return Result(**{**given, **more}, cases=cases)
