"""What a reviewer is sent about a transfer: the facts, and whether they add up to a pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tableferry.assets.log.check_records import CheckRecord, ExpectationRecord, Outcome

COMMITTED = ("committed", "skipped_unchanged")
"""States of a range whose rows are in the target."""

EXAMPLES = 5
"""Most examples of what an expectation did not expect, over all ranges."""


@dataclass(frozen=True)
class RangeEntry:
    """One key range of one hop."""

    name: str
    state: str
    keys: str = ""
    """Its bounds as a condition, e.g. `1 <= id < 250001`."""
    rows_source: int | None = None
    """As the check counted them that was last to do so."""
    rows: int | None = None
    """In the target."""
    rows_moved: int | None = None
    """By the run that committed them."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """How many values `on_overflow` changed then, by column."""
    not_filled: tuple[str, ...] = ()
    """Columns of the target that the source has lost, and that these rows were moved without."""
    bytes: int | None = None
    wire: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: export, load, finalise, reconcile."""
    fingerprint: str | None = None
    moved_at: str | None = None
    """When its rows were committed."""
    moved_by: str | None = None
    """Id of the run that did it."""
    confirmed_at: str | None = None
    """When a later run found it unchanged."""
    confirmed_by: str | None = None
    source_server: str | None = None
    target_server: str | None = None
    """What it was moved from and to: system, address, database and version then."""
    error: str | None = None
    """Of the latest attempt, if it failed."""
    checks: tuple[CheckRecord, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Declared checks without a verdict about the rows as they are now."""

    @property
    def committed(self) -> bool:
        return self.state in COMMITTED

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of its rows is not as in the source, or has not been compared: a line each."""
        found = []
        if self.changed:
            listed = ", ".join(f"{count} of {name}" for name, count in self.changed.items())
            found.append(f"values changed by on_overflow: {listed}")
        if self.not_filled:
            names = ", ".join(self.not_filled)
            found.append(f"moved without {names}, which the source has lost: NULL, or the default")
        left_out = dict.fromkeys(
            str(names)
            for check in self.checks
            for label, names in check.details.items()
            if label.startswith("not_compared")
        )
        return (*found, *(f"not compared: {names}" for names in left_out))

    @property
    def outcome(self) -> Outcome:
        """`passed` if it is committed and every declared check holds."""
        outcomes = {check.outcome for check in self.checks}
        if not self.committed or self.unchecked or "failed" in outcomes:
            return "failed"
        return "warning" if "warning" in outcomes else "passed"


@dataclass(frozen=True)
class ColumnEntry:
    """One column of a hop's target, as the newest committed range was written."""

    name: str
    type: str
    nullable: bool
    origin: str
    """Source column and its type."""


@dataclass(frozen=True)
class HopEntry:
    """One hop: its tables, its ranges in key order, its checks of the whole table."""

    source: str
    target: str
    ranges: tuple[RangeEntry, ...]
    checks: tuple[CheckRecord, ...] = ()
    """Of the whole table."""
    unchecked: tuple[str, ...] = ()
    """Checks of the whole table without a verdict about it as it is now."""
    columns: tuple[ColumnEntry, ...] = ()
    drift: str = ""
    """How source and target are no longer what was committed, as seen for this report."""

    @property
    def rows(self) -> int:
        """In the target, of its committed ranges."""
        return sum(entry.rows or 0 for entry in self.ranges if entry.committed)

    @property
    def rows_source(self) -> int:
        """In the source, as far as they were counted."""
        return sum(entry.rows_source or 0 for entry in self.ranges)

    @property
    def last_commit(self) -> str | None:
        """When rows were last committed."""
        return max((entry.moved_at for entry in self.ranges if entry.moved_at), default=None)

    @property
    def servers(self) -> dict[str, list[str]]:
        """What its ranges were moved from and to, each once."""
        found = {
            "From": dict.fromkeys(entry.source_server for entry in self.ranges),
            "To": dict.fromkeys(entry.target_server for entry in self.ranges),
        }
        return {
            role: [text for text in texts if text] for role, texts in found.items() if any(texts)
        }

    def count(self, outcome: Outcome) -> int:
        """How many of its checks ended so."""
        return sum(check.outcome == outcome for check in self.all_checks())

    def all_checks(self) -> Iterator[CheckRecord]:
        """Of the whole table, then of the ranges."""
        yield from self.checks
        for entry in self.ranges:
            yield from entry.checks


@dataclass(frozen=True)
class Suite:
    """One expectation over all ranges of a target."""

    name: str
    type: str
    arguments: Mapping[str, Any]
    met: int
    """In so many ranges."""
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
    """Which; empty means all."""
    started_at: str | None = None
    ended_at: str | None = None
    error: str = ""
    unanswered: bool = False
    """It failed or was refused, and no success of the same targets came after it."""


@dataclass(frozen=True)
class Problem:
    """One reason why the report is not a pass."""

    text: str
    where: str = ""
    """Of which part of the report, as `anchor`s name it."""


@dataclass(frozen=True)
class Report:
    """All that is known about one transfer at one moment."""

    transfer: str
    created_at: str
    """ISO 8601 in UTC."""
    hops: tuple[HopEntry, ...]
    description: str = ""
    runs: tuple[RunEntry, ...] = ()
    """The newest first."""
    not_seen: str = ""
    """Why the servers could not be asked for this report; the event log needs none."""
    refused: str = ""
    """Why the transfer could not run any more, as seen for this report."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """How the transfer is declared. No secrets."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """What each system said of itself when the report was made."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of Tableferry, Dagster and the drivers."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """What each check says when it passes."""
    dagster_url: str | None = None
    """Where Dagster's web UI is."""

    @property
    def passed(self) -> bool:
        """Whether all of it is committed, checked and green, and nothing has failed since."""
        return not self.problems

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the report is not a pass, what concerns the most first."""
        return tuple(_problems(self))

    @property
    def last_success(self) -> RunEntry | None:
        """The newest run that moved or checked without a failure."""
        return next((run for run in self.runs if run.outcome == "succeeded"), None)

    def suites(self) -> list[tuple[str, list[Suite]]]:
        """Per target, what became of each expectation over all ranges."""
        return [(hop.target, found) for hop in self.hops if (found := _suite(hop))]

    def counts(self) -> dict[str, int]:
        """Each range and row once, however many hops it takes; the checks of all hops."""
        outcomes = [check.outcome for hop in self.hops for check in hop.all_checks()]
        return {
            "ranges": len(self.hops[-1].ranges),
            "rows": self.hops[-1].rows,
            "checks": len(outcomes),
            "failed_checks": outcomes.count("failed"),
            "warnings": outcomes.count("warning"),
        }

    def run_url(self, run_id: str | None) -> str | None:
        """The run's page in Dagster's web UI."""
        return f"{self.dagster_url}/runs/{run_id}" if self.dagster_url and run_id else None


def moment(text: str | None) -> str:
    """An ISO 8601 time as people read it, in UTC."""
    if text is None:
        return "an unknown time"
    return f"{dt.datetime.fromisoformat(text).astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def anchor(hop: int, entry: int | None = None) -> str:
    """Name of a place in the report: a hop, or one of its ranges, both counted from 1."""
    return f"hop-{hop}" if entry is None else f"hop-{hop}-range-{entry}"


def _suite(hop: HopEntry) -> list[Suite]:
    by_name: dict[str, list[ExpectationRecord]] = {}
    for entry in hop.ranges:
        for check in entry.checks:
            for one in check.expectations:
                by_name.setdefault(one.name, []).append(one)
    found = []
    for name, ones in by_name.items():
        counted = [one.unexpected for one in ones if one.unexpected is not None]
        examples = [text for one in ones for text in one.examples]
        found.append(
            Suite(
                name=name,
                type=ones[0].type,
                arguments=ones[0].arguments,
                met=sum(one.passed for one in ones),
                failed=sum(not one.passed for one in ones),
                unexpected=sum(counted) if counted else None,
                examples=tuple(dict.fromkeys(examples))[:EXAMPLES],
            )
        )
    return found


def _problems(report: Report) -> Iterator[Problem]:
    if not any(hop.ranges for hop in report.hops):
        yield Problem("No key range is known: nothing was moved yet.")
    if report.refused:
        refused = report.refused.removesuffix(".")
        yield Problem(f"The transfer cannot run as its tables are now: {refused}.")
    for run in report.runs:
        if run.unanswered:
            reason = f": {run.error.splitlines()[0].removesuffix('.')}" if run.error else ""
            yield Problem(
                f"Run {run.run_id[:8]} of {moment(run.started_at)} {run.outcome}{reason}. None has "
                "succeeded since.",
                "runs",
            )
    for number, hop in enumerate(report.hops, start=1):
        if hop.drift:
            yield Problem(
                f"{hop.target}: {hop.drift} since its rows were committed.", anchor(number)
            )
        for check in hop.checks:
            if check.outcome == "failed":
                yield Problem(
                    f"{hop.target} as a whole: {check.summary.removesuffix('.')}.", anchor(number)
                )
        if hop.unchecked and all(entry.committed for entry in hop.ranges) and hop.ranges:
            yield Problem(
                f"{hop.target} as a whole: no verdict of {', '.join(hop.unchecked)} about the "
                "table as it is now.",
                anchor(number),
            )
        for position, entry in enumerate(hop.ranges, start=1):
            for text in _range_problems(entry):
                yield Problem(f"{hop.target} {entry.name}: {text}", anchor(number, position))


def _range_problems(entry: RangeEntry) -> Iterator[str]:
    failed = [check for check in entry.checks if check.outcome == "failed"]
    if not entry.committed and not failed:
        yield f"{entry.state}{f': {entry.error}' if entry.error else ', not committed'}"
    for check in failed:
        yield check.summary
    if entry.committed and entry.unchecked:
        yield f"no verdict of {', '.join(entry.unchecked)} about its rows as they are now"
