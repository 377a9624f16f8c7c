"""What was measured, and the JSON that keeps all of it: `schemas/result.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from tableferry.resources.errors import InputError
from tableferry_bench.statistics import Summary, summary

SCHEMA_VERSION = 1
"""Counted up when a field changes its meaning or goes away."""

Kind = Literal["run", "tune", "lab", "staging"]
MB = 1_000_000

UNITS = {
    "seconds": "s",
    "rows_per_second": "rows/s",
    "mb_per_second": "MB/s",
    "peak_rss_mb": "MB",
    "cpu_client": "s",
    "cpu_postgres": "s",
    "cpu_sqlserver": "s",
    "cpu_clickhouse": "s",
    "cpu_servers": "s",
    "system_client": "s",
    "system_postgres": "s",
    "system_sqlserver": "s",
    "system_clickhouse": "s",
    "system_servers": "s",
    "disk_bytes_per_row": "B",
    "uncompressed_bytes_per_row": "B",
}
"""The figures that a run has, and their units. MB is 10**6 bytes; those of `mb_per_second` are of
the source's rows as COPY text, whatever they are on a contender's own wire. `cpu_...` are all CPU
seconds, `system_...` those of them that the kernel took. Bytes per row are of the last target."""

PREPARATION = "source-preparation"
"""In place of a contender: the making of a table's rows at the source."""

MORE_IS_BETTER = frozenset({"rows_per_second", "mb_per_second"})


@dataclass(frozen=True)
class Skew:
    """How alike the ranges of a run are."""

    ranges: int
    rows: float | None
    """Rows of the largest range, by the mean of all."""
    seconds: float | None
    """The same of the seconds that they took."""


@dataclass(frozen=True)
class Stored:
    """What a table takes on the disk of its server."""

    disk_bytes: int
    """With indexes, as compressed as the server keeps it."""
    uncompressed_bytes: int | None = None
    """What it would take without compression, where the server tells."""


@dataclass(frozen=True)
class Run:
    """One measured run of one case."""

    round: int
    """Everything of a round ran next to each other, in turn; negative ones are warm-ups."""
    seconds: float
    """By the clock, from the start of the process until its end."""
    peak_rss_bytes: int
    """The most memory of the whole tree of processes, looked at every 50 ms."""
    cpu_seconds: Mapping[str, float | None]
    """By `client`, `postgres`, `sqlserver` and `clickhouse`; None where it could not be seen."""
    rows: int
    """That arrived, or were read."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds. `start`, `fingerprint`, `ranges` and `end` follow each other; those of the ranges
    (`export`, `load`, `reconcile`, `finalise`) are sums over all ranges, and overlap."""
    skew: Skew | None = None
    system_seconds: Mapping[str, float | None] = field(default_factory=dict)
    """Those of the CPU seconds that the kernel took, by the same names."""
    stored: Mapping[str, Stored] = field(default_factory=dict)
    """The targets, by system, the last one last."""
    machine_load: float | None = None
    """Processes that wanted a core when it began, on average of the last minute."""

    @property
    def counts(self) -> bool:
        """Whether it is more than a warm-up."""
        return self.round >= 0


@dataclass(frozen=True)
class Case:
    """One contender on one table."""

    workload: str
    """E.g. `wide`."""
    rows: int
    """The table's rows."""
    contender: str
    route: str
    """From where to where."""
    proves: str
    """What it knows about the rows that arrived."""
    text_bytes: int | None = None
    """The size of the table's rows as COPY text."""
    options: Mapping[str, str | int] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    skipped: str | None = None
    """Why it was not even tried."""
    failed: str | None = None
    """Why there are no more runs."""

    @property
    def name(self) -> str:
        """By which it is the same one in another result."""
        options = ",".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"{self.workload}:{self.rows} {self.contender}" + (f" {options}" if options else "")

    def figures(self, metric: str) -> dict[int, float]:
        """One figure of the runs that count, by number of the round.

        Args:
            metric: one of `UNITS`, or `phase_` and the name of a phase.
        """
        found = {run.round: self._figure(run, metric) for run in self.runs if run.counts}
        return {number: value for number, value in found.items() if value is not None}

    def summary(self, metric: str) -> Summary | None:
        """The same in short."""
        return summary(list(self.figures(metric).values()))

    def _figure(self, run: Run, metric: str) -> float | None:
        if metric == "seconds":
            return run.seconds
        if metric == "rows_per_second":
            return run.rows / run.seconds
        if metric == "mb_per_second":
            return self.text_bytes / MB / run.seconds if self.text_bytes else None
        if metric == "peak_rss_mb":
            return run.peak_rss_bytes / MB if run.peak_rss_bytes else None
        if metric.endswith("bytes_per_row"):
            last = list(run.stored.values())[-1:]
            size = getattr(last[0], metric.removesuffix("_per_row")) if last else None
            return None if size is None else size / run.rows
        kind, _, whose = metric.partition("_")
        if kind == "phase":
            return run.phases.get(whose)
        spent = run.system_seconds if kind == "system" else run.cpu_seconds
        if whose != "servers":
            return spent.get(whose)
        seen = [seconds for name, seconds in spent.items() if name != "client"]
        return sum(seconds for seconds in seen if seconds) if seen and None not in seen else None


@dataclass(frozen=True)
class Result:
    """One execution of a suite, a matrix, the lab or the staging experiments."""

    kind: Kind
    suite: str
    created: str
    """When, ISO 8601 in UTC."""
    tableferry: str
    """Its version."""
    machine: Mapping[str, str | int | float]
    servers: Mapping[str, str]
    """What they say they are, and whether they are on this machine; neither names nor addresses."""
    cases: tuple[Case, ...]
    settings: Mapping[str, str | int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True
    """False if it was interrupted: then the tables after that are missing."""
    schema_version: int = SCHEMA_VERSION

    def find(
        self,
        workload: str,
        rows: int,
        contender: str,
        options: Mapping[str, str | int] | None = None,
    ) -> Case | None:
        """The first case of a contender on a table, of those with these options where they are
        given."""
        wanted = (workload, rows, contender)
        return next(
            (
                case
                for case in self.cases
                if (case.workload, case.rows, case.contender) == wanted
                and (options or {}).items() <= case.options.items()
            ),
            None,
        )

    def tables(self) -> dict[tuple[str, int], list[Case]]:
        """The cases by workload and rows, in the order of the result."""
        found: dict[tuple[str, int], list[Case]] = {}
        for case in self.cases:
            found.setdefault((case.workload, case.rows), []).append(case)
        return found

    def to_json(self) -> str:
        """The document."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """The result in a file.

        Raises:
            InputError: it cannot be read, or is none, or one of another version.
        """
        try:
            document: Any = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except ValueError:
            raise InputError(f"{path} is not JSON") from None
        version = document.get("schema_version") if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{path} is no result of `ferry bench` of version {SCHEMA_VERSION}: "
                f"its schema_version is {version}"
            )
        try:
            return TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: {place}: {first['msg']}") from None


def best(cases: Sequence[Case], metric: str) -> Case | None:
    """The case with the best median of a figure."""
    known = [(found.median, case) for case in cases if (found := case.summary(metric))]
    if not known:
        return None
    pick = max if metric in MORE_IS_BETTER else min
    return pick(known, key=lambda one: one[0])[1]
