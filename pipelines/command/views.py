"""What the commands found out, as plain data to print or to write as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tableferry.assets.log.records import Reason, State
from tableferry.assets.planning.decisions import Decision
from tableferry.assets.verifying.on_demand import Checked, NotCommitted, closing_line
from tableferry.pipelines.command.range_views import RangeView, document
from tableferry.resources.contract.hazards import Hazard


@dataclass(frozen=True)
class PlannedRange:
    """What would become of one range in one hop."""

    hop: int
    target: str
    range: str
    decision: Decision
    rows: int | None = None
    """In the source."""

    @property
    def state(self) -> str:
        """`skip` or `run`."""
        return "skip" if self.decision.reason is Reason.UNCHANGED else "run"

    @property
    def reason(self) -> str:
        """Why."""
        return str(self.decision.reason)

    @property
    def detail(self) -> str | None:
        """Of the reason, where there is more to say."""
        return self.decision.detail or None

    def json(self) -> dict[str, Any]:
        """The `--json` form: that of a range of which nothing is recorded, and the decision."""
        view = RangeView(
            self.range, State.MISSING, hop=self.hop, target=self.target, rows=self.rows
        )
        decided = {"state": self.state, "reason": self.reason, "detail": self.detail}
        return {**view.json(), **decided}


@dataclass(frozen=True)
class PlanView:
    """What `ferry plan` found out about a transfer."""

    transfer: str
    ranges: list[PlannedRange]
    notes: list[str] = field(default_factory=list)
    """What else there is to say, a line each."""
    hazards: list[tuple[str, Hazard]] = field(default_factory=list)
    """What the targets may do to rows when they are published, with the target."""

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        found = [{"target": target, **one.json()} for target, one in self.hazards]
        return {**document(self.transfer, self.ranges, notes=self.notes), "hazards": found}


@dataclass(frozen=True)
class CheckView:
    """What `ferry check` found out about a transfer."""

    transfer: str
    checks: list[Checked]
    open_ranges: list[NotCommitted]
    """Ranges that are not committed, or whose latest attempt failed."""

    @property
    def good(self) -> bool:
        return bool(self.checks) and not self.errors

    @property
    def errors(self) -> list[str]:
        """Why it is not good, one line each."""
        found = [one.summary() for one in self.checks if one.failed]
        found += [one.summary() for one in self.open_ranges]
        return found if self.checks or found else [self.closing]

    @property
    def closing(self) -> str:
        """One line for all."""
        return closing_line(self.checks, self.open_ranges)

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": self.good,
            "summary": self.closing,
            "errors": self.errors,
            "checks": [
                {
                    "target": str(one.hop.plan.target),
                    "range": one.range,
                    "warning": one.warning,
                    **one.verdict.to_json(),
                }
                for one in self.checks
            ],
            "not_committed": [asdict(one) for one in self.open_ranges],
        }
