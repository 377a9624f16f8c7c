"""What the commands found out, as plain data to print or to write as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from assets.log.records import rate
from assets.verifying.on_demand import Checked, NotCommitted, closing_line


@dataclass(frozen=True)
class RangeView:
    """One range of one hop, as the commands show it."""

    hop: int
    target: str
    range: str
    state: str
    reason: str | None = None
    detail: str | None = None
    """Of the reason, where there is more to say."""
    rows: int | None = None
    bytes: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    moving_seconds: float | None = None
    attempts: int = 1
    run_id: str | None = None
    timestamp: float | None = None
    checks: dict[str, bool] = field(default_factory=dict)
    error: str | None = None

    @property
    def rows_per_second(self) -> float | None:
        """None where it would say nothing of the throughput, see `assets.log.records.rate`."""
        return rate(self.rows, self.moving_seconds)


@dataclass(frozen=True)
class TransferView:
    """What a command found out about a transfer."""

    transfer: str
    ranges: list[RangeView]
    good: bool = True
    errors: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return {
            "transfer": self.transfer,
            "ok": self.good,
            "errors": self.errors,
            "run_ids": self.run_ids,
            "ranges": [
                {**asdict(view), "rows_per_second": view.rows_per_second} for view in self.ranges
            ],
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
