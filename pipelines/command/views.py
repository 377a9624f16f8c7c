"""What the commands found out, as plain data to print or to write as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from assets.asset_keys import asset_key
from assets.declaring.manifest import Transfer
from assets.log import ledger
from assets.log.records import RangeRecord, Reason, State
from assets.planning.decisions import Decision
from assets.planning.resolve import checks_of
from assets.verifying.on_demand import Checked, NotCommitted, closing_line

SHOWN = (
    *("hop", "target", "range", "rows", "bytes", "seconds", "moving_seconds", "rows_per_second"),
    *("attempts", "run_id", "timestamp", "checks", "error", "since", "rows_moved"),
)
"""What the `--json` form has of a range as it is here; other fields are in the event log."""


@dataclass(frozen=True, kw_only=True)
class RangeView(RangeRecord):
    """The record of a range, with where it belongs and how its checks ended."""

    hop: int
    target: str
    checks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether the range is in the target, and no check of it failed."""
        return self.state.settled and all(self.checks.values())

    @property
    def problem(self) -> str | None:
        """Why it is not good, in one line."""
        if self.good:
            return None
        failed = [name for name, passed in self.checks.items() if not passed]
        if failed and self.state.settled:
            return f"{self.target} {self.range}: {', '.join(failed)} FAILED when last checked"
        return NotCommitted(self.target, self.range, self.state, self.error).summary()

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        shown = {name: getattr(self, name) for name in SHOWN}
        return {**shown, "state": str(self.state), "reason": None, "detail": None}


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

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return _document(self.transfer, self.ranges, notes=self.notes)


@dataclass(frozen=True)
class TransferView:
    """What became of a transfer."""

    transfer: str
    ranges: list[RangeView]
    good: bool = True
    errors: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else there is to say, a line each."""

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return _document(
            self.transfer, self.ranges, self.good, self.errors, self.run_ids, self.notes
        )


def range_views(
    instance: dg.DagsterInstance, transfer: Transfer, number: int, names: Sequence[str]
) -> list[RangeView]:
    """What the event log says of these ranges in one hop, counted from 1."""
    target = transfer.hops[number - 1].to
    records = ledger.records(instance, asset_key(target), names)
    checks = ledger.verdicts(instance, asset_key(target), checks_of(transfer))
    return [
        RangeView(
            **vars(records.get(name) or RangeRecord(name, State.MISSING)),
            hop=number,
            target=str(target),
            checks=checks.get(name, {}) if name in records else {},
        )
        for name in names
    ]


def _document(
    transfer: str,
    ranges: Sequence[RangeView | PlannedRange],
    good: bool = True,
    errors: Sequence[str] = (),
    run_ids: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "transfer": transfer,
        "ok": good,
        "errors": list(errors),
        "run_ids": list(run_ids),
        "notes": list(notes),
        "ranges": [one.json() for one in ranges],
    }


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
