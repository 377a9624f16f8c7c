"""The data of a transfer's report, and the verdict that follows from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tableferry.assets.judging import ProofState
from tableferry.assets.log.states import State
from tableferry.pipelines.reporting.evidence import CheckEntry, CheckOutcome, ExpectationEntry

EXAMPLES = 5
"""Maximum examples of unexpected values per expectation, over all ranges."""


@dataclass(frozen=True)
class RangeEntry:
    """One key range of one hop."""

    name: str
    state: str
    keys: str = ""
    """The bounds as a condition, e.g. `1 <= id < 250001`."""
    rows_source: int | None = None
    """Rows in the source, as the latest check counted them."""
    rows: int | None = None
    """Rows in the target."""
    rows_moved: int | None = None
    """Rows that the committing run moved."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Rows that it inserted, updated and deleted, if it moved only rows that differed."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """The number of values that `on_overflow` changed in that run, by column."""
    not_filled: tuple[str, ...] = ()
    """Target columns that the source has lost, so that these rows have no values for them."""
    bytes: int | None = None
    wire: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the phases export, load, finalise and reconcile."""
    fingerprint: str | None = None
    moved_at: str | None = None
    moved_by: str | None = None
    """Id of the run that committed the range."""
    adopted: bool = False
    """Found equal in the target, where no run of this event log has put it."""
    confirmed_at: str | None = None
    """When a later run found the range unchanged."""
    confirmed_by: str | None = None
    source_server: str | None = None
    target_server: str | None = None
    """System, address, database and version at the time of the move."""
    source_snapshot: str | None = None
    """The state of the source as of which the range was proven together with other tables."""
    error: str | None = None
    """The error of the latest attempt, if it failed."""
    checks: tuple[CheckEntry, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Declared checks without a verdict about the current rows."""
    proof: str = ProofState.PROVEN
    """How far it is proven, as a `ProofState`."""

    @property
    def committed(self) -> bool:
        return State(self.state).in_target

    @property
    def remarks(self) -> tuple[str, ...]:
        """Values that differ from the source's by design, or were not compared; a line each."""
        remarks = []
        if self.written:
            done = ", ".join(f"{rows:,} {name}" for name, rows in self.written.items())
            remarks.append(f"only rows that differed were moved: {done}")
        if self.changed:
            counts = ", ".join(f"{count} of {column}" for column, count in self.changed.items())
            remarks.append(f"values changed by on_overflow: {counts}")
        if self.not_filled:
            columns = ", ".join(self.not_filled)
            remarks.append(
                f"moved without {columns}, no longer filled: NULL, or the default, in these rows"
            )
        if self.adopted:
            remarks.append("adopted: found equal in the target, and not moved by a recorded run")
        not_compared = dict.fromkeys(
            f"not compared: {columns}"
            for check in self.checks
            for label, columns in check.details.items()
            if label.startswith("not_compared")
        )
        return (*remarks, *not_compared)

    @property
    def outcome(self) -> CheckOutcome:
        """Its proof as a badge: `warning` if it is not proven, or a check warns."""
        if self.proof == ProofState.FAILED:
            return "failed"
        warned = any(check.outcome == "warning" for check in self.checks)
        return "warning" if warned or self.proof != ProofState.PROVEN else "passed"


@dataclass(frozen=True)
class ColumnEntry:
    """One column of a hop's target, as of the newest committed range."""

    name: str
    type: str
    nullable: bool
    origin: str
    """The source column and its type."""


@dataclass(frozen=True)
class HopEntry:
    """One hop: its tables, its ranges in key order, its whole-table checks."""

    source: str
    target: str
    ranges: tuple[RangeEntry, ...]
    checks: tuple[CheckEntry, ...] = ()
    """The whole-table checks."""
    unchecked: tuple[str, ...] = ()
    """Whole-table checks without a verdict about the current table."""
    columns: tuple[ColumnEntry, ...] = ()
    drift: str = ""
    """How the columns of source and target have changed since the commit."""
    departures: tuple[str, ...] = ()
    """In what the target is not as the source, by declaration."""

    @property
    def rows(self) -> int:
        """Rows of committed ranges in the target."""
        return sum(entry.rows or 0 for entry in self.ranges if entry.committed)

    @property
    def rows_source(self) -> int:
        """Rows in the source, as far as they were counted."""
        return sum(entry.rows_source or 0 for entry in self.ranges)

    @property
    def last_commit(self) -> str | None:
        return max((entry.moved_at for entry in self.ranges if entry.moved_at), default=None)

    @property
    def servers(self) -> dict[str, list[str]]:
        """The servers that ranges were moved from and to, and the snapshots of consistent sets of
        tables as of which they were proven, without repetition."""
        by_role = {
            "From": dict.fromkeys(entry.source_server for entry in self.ranges),
            "To": dict.fromkeys(entry.target_server for entry in self.ranges),
            "As of snapshot": dict.fromkeys(entry.source_snapshot for entry in self.ranges),
        }
        return {
            role: [text for text in texts if text] for role, texts in by_role.items() if any(texts)
        }

    def count(self, outcome: CheckOutcome) -> int:
        """Count the checks with an outcome."""
        return sum(check.outcome == outcome for check in self.all_checks())

    def all_checks(self) -> Iterator[CheckEntry]:
        """Return the whole-table checks, then those of the ranges."""
        yield from self.checks
        for entry in self.ranges:
            yield from entry.checks


@dataclass(frozen=True)
class Suite:
    """The results of one expectation over all ranges of a target."""

    name: str
    type: str
    arguments: Mapping[str, Any]
    met: int
    """The number of ranges that meet the expectation."""
    failed: int
    unexpected: int | None
    examples: tuple[str, ...]


@dataclass(frozen=True)
class RunEntry:
    """One Dagster run that moved or checked the transfer."""

    run_id: str
    kind: str
    """`move` or `check`."""
    outcome: str
    """`succeeded`, `failed`, `canceled` or `unfinished`."""
    launched_by: str
    ranges: str
    """The ranges of the run; empty means all."""
    started_at: str | None = None
    ended_at: str | None = None
    error: str = ""
    unanswered: bool = False
    """Whether the run failed, and no later run succeeded for the same targets."""


@dataclass(frozen=True)
class ReportProblem:
    """One reason why the report is not a pass."""

    text: str
    where: str = ""
    """The `anchor` of the part of the report that it is about."""


@dataclass(frozen=True)
class Report:
    """The evidence about one transfer at one moment."""

    transfer: str
    created_at: str
    """ISO 8601 in UTC."""
    hops: tuple[HopEntry, ...]
    problems: tuple[ReportProblem, ...] = ()
    """The reasons why the report is not a pass, those of the whole transfer first."""
    description: str = ""
    runs: tuple[RunEntry, ...] = ()
    """The newest run comes first."""
    not_seen: str = ""
    """Why the servers could not be queried; the event log is enough for a report."""
    refused: str = ""
    """Why the transfer could no longer run."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The declaration of the transfer, without secrets."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The identity of each server when the report was made."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of Tableferry, Dagster and the drivers."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """What each check proves when it passes."""
    dagster_url: str | None = None

    @property
    def passed(self) -> bool:
        """Whether everything is committed, checked and green, and no run has failed since."""
        return not self.problems

    @property
    def last_success(self) -> RunEntry | None:
        """The newest run that succeeded."""
        return next((run for run in self.runs if run.outcome == "succeeded"), None)

    def suites(self) -> list[tuple[str, list[Suite]]]:
        """Return the results of each expectation per target."""
        return [(hop.target, suites) for hop in self.hops if (suites := _suites(hop))]

    def counts(self) -> dict[str, int]:
        """Count ranges and rows of the last hop, and the checks of all hops."""
        outcomes = [check.outcome for hop in self.hops for check in hop.all_checks()]
        return {
            "ranges": len(self.hops[-1].ranges),
            "rows": self.hops[-1].rows,
            "checks": len(outcomes),
            "failed_checks": outcomes.count("failed"),
            "warnings": outcomes.count("warning"),
        }

    def run_url(self, run_id: str | None) -> str | None:
        """Return the URL of the run's page in Dagster's web UI."""
        return f"{self.dagster_url}/runs/{run_id}" if self.dagster_url and run_id else None


def moment(text: str | None) -> str:
    """Format an ISO 8601 time for people, in UTC."""
    if text is None:
        return "an unknown time"
    return f"{dt.datetime.fromisoformat(text).astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def anchor(hop: int, range_: int | None = None) -> str:
    """Return the HTML anchor of a hop, or of one of its ranges (both 1-based)."""
    return f"hop-{hop}" if range_ is None else f"hop-{hop}-range-{range_}"


def _suites(hop: HopEntry) -> list[Suite]:
    by_name: dict[str, list[ExpectationEntry]] = {}
    for entry in hop.ranges:
        for check in entry.checks:
            for expectation in check.expectations:
                by_name.setdefault(expectation.name, []).append(expectation)
    suites = []
    for name, results in by_name.items():
        unexpected = [item.unexpected for item in results if item.unexpected is not None]
        met = sum(item.passed for item in results)
        examples = dict.fromkeys(text for item in results for text in item.examples)
        suites.append(
            Suite(
                name=name,
                type=results[0].type,
                arguments=results[0].arguments,
                met=met,
                failed=len(results) - met,
                unexpected=sum(unexpected) if unexpected else None,
                examples=tuple(examples)[:EXAMPLES],
            )
        )
    return suites
