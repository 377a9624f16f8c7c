"""What is known of the ranges of a transfer, as plain data to print or to write as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tableferry.assets.log.records import RangeRecord, State

if TYPE_CHECKING:
    from tableferry.assets.declaring.manifest import Transfer
    from tableferry.assets.log.asking import Log

SHOWN = (
    *("hop", "target", "range", "rows", "bytes", "seconds", "moving_seconds", "rows_per_second"),
    *("attempts", "run_id", "timestamp", "checks", "error", "since", "rows_moved"),
    *("changed", "not_filled"),
)
"""What the `--json` form has of a range as it is here; other fields are in the event log."""


@dataclass(frozen=True, kw_only=True)
class RangeView(RangeRecord):
    """The record of a range, with where it belongs and how its checks ended."""

    hop: int
    target: str
    checks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def changed(self) -> Mapping[str, int]:
        """How many values `on_overflow` changed when the range was moved, by column."""
        return self.counts

    @property
    def good(self) -> bool:
        """Whether the range is in the target, and no check of it failed."""
        return self.state.settled and all(self.checks.values())

    @property
    def problem(self) -> str | None:
        """Why it is not good, in one line."""
        if self.good:
            return None
        from tableferry.assets.verifying.on_demand import NotCommitted

        failed = [name for name, passed in self.checks.items() if not passed]
        if failed and self.state.settled:
            return f"{self.target} {self.range}: {', '.join(failed)} FAILED when last checked"
        return NotCommitted(self.target, self.range, self.state, self.error).summary()

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        shown = {name: getattr(self, name) for name in SHOWN}
        return {**shown, "state": str(self.state), "reason": None, "detail": None}


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
        return document(
            self.transfer, self.ranges, self.good, self.errors, self.run_ids, self.notes
        )


def range_views(log: Log, transfer: Transfer, number: int, names: Sequence[str]) -> list[RangeView]:
    """What the event log says of these ranges in one hop, counted from 1."""
    from tableferry.assets.log import ledger
    from tableferry.assets.planning.resolve import checks_of

    target = transfer.hops[number - 1].to
    records = ledger.records(log, target, names)
    checks = ledger.verdicts(log, target, checks_of(transfer))
    return [
        RangeView(
            **vars(records.get(name) or RangeRecord(name, State.MISSING)),
            hop=number,
            target=str(target),
            checks=checks.get(name, {}) if name in records else {},
        )
        for name in names
    ]


def range_notes(views: Sequence[RangeView]) -> list[str]:
    """Which values of the targets are not the source's, as far as the transfer has made them so."""
    found: list[str] = []
    for target in dict.fromkeys(view.target for view in views):
        there = [view for view in views if view.target == target and view.state.settled]
        columns = dict.fromkeys(name for view in there for name in view.changed)
        counts = {name: sum(view.changed.get(name, 0) for view in there) for name in columns}
        if counts:
            listed = ", ".join(f"{number} of {name}" for name, number in counts.items())
            found.append(f"{target}: values changed by on_overflow: {listed}")
        for name in dict.fromkeys(name for view in there for name in view.not_filled):
            without = [view.range for view in there if name in view.not_filled]
            others = "; the others keep their values" if len(without) < len(there) else ""
            found.append(
                f"{target}: {name!r} is NULL, or its default, in the rows moved since the source "
                f"lost it: in {len(without)} of {len(there)} ranges ({_few(without)}){others}"
            )
    return found


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


class _AsJson(Protocol):
    def json(self) -> dict[str, Any]: ...


def document(
    transfer: str,
    ranges: Sequence[_AsJson],
    good: bool = True,
    errors: Sequence[str] = (),
    run_ids: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The `--json` form of ranges, and of what a command has to say besides."""
    return {
        "transfer": transfer,
        "ok": good,
        "errors": list(errors),
        "run_ids": list(run_ids),
        "notes": list(notes),
        "ranges": [one.json() for one in ranges],
    }
