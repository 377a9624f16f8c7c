"""Outcomes of `ferry plan`, `check` and `adopt`, as plain data to print or to write as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tableferry.assets.log.states import State
from tableferry.assets.planning.room import Outlook, RowsToMove
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.running.work import RangeOutcome
from tableferry.assets.verifying.checked import Findings
from tableferry.pipelines.command.show.range_views import RangeView, TransferView
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.words import counted


@dataclass(frozen=True)
class PlannedRange:
    """The planned action for one range in one hop."""

    hop: int
    target: str
    range: str
    decision: Decision
    rows: int | None = None
    """Its rows in the source."""
    to_move: RowsToMove = field(default_factory=RowsToMove)
    """The rows that would move, if they are not simply all and were counted."""
    refused: str = ""
    """Why a run would not move it, though it should."""

    @property
    def state(self) -> str:
        """`skip`, `run` or `refused`."""
        if not self.decision.runs:
            return "skip"
        return "refused" if self.refused else "run"

    @property
    def reason(self) -> str:
        return str(self.decision.reason)

    @property
    def detail(self) -> str | None:
        """More about the reason: why nothing would move, or the number of rows that would."""
        if self.state == "refused":
            return self.refused
        return ": ".join(filter(None, (self.decision.detail, str(self.to_move)))) or None

    @property
    def why(self) -> str:
        """The reason and what there is to say about it; a refusal is a note."""
        if self.state == "refused":
            return self.reason
        return str(replace(self.decision, detail=self.detail or ""))

    def json(self) -> dict[str, Any]:
        """Return the `--json` form, which has the fields of a range without a record."""
        to_move = self.to_move
        view = RangeView(
            self.range,
            State.MISSING,
            hop=self.hop,
            target=self.target,
            rows=self.rows,
            rows_moved=to_move.moved,
            inserted=to_move.inserted,
            updated=to_move.updated,
            deleted=to_move.deleted,
            whole_because=to_move.whole_because,
        )
        decision = {"state": self.state, "reason": self.reason, "detail": self.detail}
        return {**view.json(), **decision}


@dataclass(frozen=True)
class PlanView:
    """The plan of a transfer."""

    transfer: str
    ranges: list[PlannedRange]
    notes: list[str] = field(default_factory=list)
    """Remarks for the user, a line each."""
    hazards: list[tuple[str, Hazard]] = field(default_factory=list)
    """What targets may do to published rows, each with the target."""
    outlook: Outlook | None = None
    """What is known of a run beforehand; None if it has nothing to do."""

    @property
    def errors(self) -> list[str]:
        """Why a run would not move ranges that it should move, a line per reason."""
        refused: dict[str, set[str]] = defaultdict(set)
        for each in self.ranges:
            if each.state == "refused":
                refused[each.refused].add(each.range)
        return [
            f"{self.transfer}: {counted(len(ranges), 'range')} will be refused: {why}"
            for why, ranges in refused.items()
        ]

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        hazards = [{"target": target, **hazard.json()} for target, hazard in self.hazards]
        ranges = [range_.json() for range_ in self.ranges]
        errors = self.errors
        document = TransferView(self.transfer, [], not errors, errors, notes=self.notes).json()
        outlook = self.outlook and asdict(self.outlook)
        return {**document, "ranges": ranges, "hazards": hazards, "outlook": outlook}


class CheckView(Findings):
    """The verdicts about a transfer."""

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": self.good,
            "summary": self.closing,
            "errors": self.errors,
            "checks": [
                {
                    "hop": check.hop.number,
                    "table": str(check.hop.plan.target),
                    "range": check.range,
                    "warning": check.warning,
                    **check.verdict.to_json(),
                }
                for check in self.checks
            ],
            "not_committed": [asdict(range_) for range_ in self.open_ranges],
        }


@dataclass(frozen=True)
class AdoptionView:
    """What became of the ranges that were compared to be adopted."""

    transfer: str
    compared: list[RangeOutcome]
    dry_run: bool = False
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: Sequence[str] = ()
    """Why a run would not move the ranges that are left."""

    @property
    def adopted(self) -> int:
        """How many ranges of all hops are adopted, or would be."""
        return sum(outcome.good for outcome in self.compared)

    @property
    def closing(self) -> str:
        """A summary in one line."""
        if not self.compared:
            return "nothing to adopt: every range is committed and unchanged"
        done = "would be adopted" if self.dry_run else "adopted"
        line = f"{self.adopted} of {len(self.compared)} ranges {done}"
        if left := len(self.compared) - self.adopted:
            moves = f"`ferry run {self.transfer}` moves the other {left}"
            refused = f"a run would refuse the other {left}: {'; '.join(self.refused)}"
            line += f"; {refused if self.refused else moves}"
        return line

    def state(self, outcome: RangeOutcome) -> str:
        """What became of a range, in a word or two."""
        if not outcome.good:
            return "left"
        return "equal" if self.dry_run else "adopted"

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": not self.errors,
            "dry_run": self.dry_run,
            "summary": self.closing,
            "errors": self.errors,
            "notes": self.notes,
            "ranges": [
                {
                    "hop": outcome.hop.number,
                    "target": str(outcome.hop.plan.target),
                    "range": outcome.record.range,
                    "state": self.state(outcome),
                    "rows": outcome.rows_there,
                    "why_not": outcome.record.why,
                    "checks": {verdict.check: verdict.passed for verdict in outcome.verdicts},
                }
                for outcome in self.compared
            ],
        }
