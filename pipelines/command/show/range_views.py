"""The recorded state of a transfer's ranges, as plain data to print or to write as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tableferry.assets import judging
from tableferry.assets.log.ranges import RangeStatus, TargetStatus
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.resolve import checks_of
from tableferry.resources.words import counted

if TYPE_CHECKING:
    from tableferry.assets.declaring.manifest import Transfer
    from tableferry.resources.tables import TableRef

JSON_FIELDS = (
    *("hop", "target", "range", "rows", "bytes", "seconds", "moving_seconds", "rows_per_second"),
    *("attempts", "run_id", "timestamp", "checks", "error", "since", "rows_moved"),
    *("inserted", "updated", "deleted", "whole_because"),
    *("source_seconds", "longest_statement", "snapshot_seconds", "waited"),
    *("quarantined", "changed", "cast", "not_filled", "unchanged_by", "source_snapshot"),
)
"""The fields of a range in the `--json` form; the event log has others."""


NOTHING_WRONG = judging.RangeJudgement(judging.ProofState.PROVEN, good=True)
NOT_MOVED = judging.RangeJudgement(
    judging.ProofState.NOT_MOVED, (judging.why_not_committed(State.MISSING, None),)
)


@dataclass(frozen=True, kw_only=True)
class RangeView(RangeRecord):
    """The record of a range in one hop, and the verdicts of its checks."""

    hop: int
    target: str
    checks: Mapping[str, bool] = field(default_factory=dict)
    """Whether each declared check passed, and those that failed without being declared."""
    warned: tuple[str, ...] = ()
    """The checks that failed, but whose failure is no more than a warning."""
    judgement: judging.RangeJudgement = NOTHING_WRONG

    @property
    def changed(self) -> Mapping[str, int]:
        """The number of values that `on_overflow` changed in the move, by column."""
        return self.counts

    @property
    def good(self) -> bool:
        """Whether the range is in the target, and none of its checks has failed."""
        return self.judgement.good

    @property
    def problem(self) -> str | None:
        """Why the range is not good, in one line."""
        if self.good:
            return None
        return f"{self.target} {self.range}: {'; '.join(self.judgement.problems)}"

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        fields = {name: getattr(self, name) for name in JSON_FIELDS}
        return {**fields, "state": str(self.state), "reason": None, "detail": None}


@dataclass(frozen=True)
class TransferView:
    """The state of a transfer, and the outcome of a command on it."""

    transfer: str
    ranges: list[RangeView]
    good: bool = True
    errors: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Remarks for the user, a line each."""
    failed: bool = False
    """Whether a run, a range or a check has failed, more than that something is left to do."""

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": self.good,
            "errors": self.errors,
            "run_ids": self.run_ids,
            "notes": self.notes,
            "ranges": [range_.json() for range_ in self.ranges],
        }


def range_views(
    transfer: Transfer,
    statuses: Mapping[TableRef, TargetStatus],
    hop: int,
    names: Sequence[str] | None = None,
) -> list[RangeView]:
    """Return the recorded state of ranges in one hop (1-based), of all known ones by default."""
    target, declared = transfer.hops[hop - 1].to, checks_of(transfer)
    known, judged = statuses[target].ranges, judging.judge_ranges(transfer, target, statuses)
    views = []
    for name in known if names is None else names:
        status = known.get(name) or RangeStatus(RangeRecord(name, State.MISSING))
        views.append(
            RangeView(
                **vars(status.record),
                hop=hop,
                target=str(target),
                # of a level that is not declared, a failure counts, as it does in planning
                checks={
                    check.name: check.passed
                    for check in status.checks
                    if not check.source_newer and (check.name in declared or not check.passed)
                },
                warned=tuple(
                    check.name for check in status.checks if check.warning and not check.passed
                ),
                judgement=judged.get(name, NOT_MOVED),
            )
        )
    return views


def range_notes(views: Sequence[RangeView]) -> list[str]:
    """Describe the rows that were moved by themselves, and the values in the targets that the
    transfer changed, or could not fill."""
    notes: list[str] = []
    for target in dict.fromkeys(view.target for view in views):
        settled = [view for view in views if view.target == target and view.state.in_target]
        deltas = [view.written for view in settled if view.written]
        if deltas:
            kinds = dict.fromkeys(kind for delta in deltas for kind in delta)
            done = ", ".join(f"{sum(d.get(kind, 0) for d in deltas):,} {kind}" for kind in kinds)
            notes.append(f"{target}: rows that differed in {counted(len(deltas), 'range')}: {done}")
        signals = dict.fromkeys(name for view in settled for name in view.waited)
        if signals:
            waits = {name: sum(view.waited.get(name, 0.0) for view in settled) for name in signals}
            shown = ", ".join(f"{seconds:.0f} s for {name}" for name, seconds in waits.items())
            notes.append(f"{target}: the ranges waited for their source: {shown}")
        notes += [f"{target}: {text}" for text in judging.changed_values(settled, target)]
    return notes


@dataclass(frozen=True)
class TransferOutcome:
    """The outcome of one of several transfers."""

    view: TransferView
    seconds: float
    refused: Exception | None = None
    """Why it was not begun, if that is not recorded yet."""

    @property
    def moved(self) -> list[RangeView]:
        """The ranges that this command has moved; others may be committed by earlier ones."""
        return [
            range_
            for range_ in self.view.ranges
            if range_.state is State.COMMITTED and range_.run_id in self.view.run_ids
        ]

    @property
    def moved_ranges(self) -> set[str]:
        """The names of the ranges that this command has moved in any hop."""
        return {range_.range for range_ in self.moved}

    @property
    def rows(self) -> int:
        """The number of rows moved, each counted once for all hops."""
        rows: Counter[str] = Counter()
        for range_ in self.moved:
            rows |= {range_.range: range_.rows_of_move or 0}
        return rows.total()


View = TypeVar("View")


@dataclass(frozen=True)
class Attempt(Generic[View]):
    """The outcome of a command on one of several transfers."""

    transfer: str
    view: View | None
    """None if the command was refused."""
    errors: Sequence[str]
    seconds: float
