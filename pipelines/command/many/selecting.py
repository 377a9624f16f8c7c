"""Selects the transfers of a command, and sums up what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from tableferry.assets.log.records import State
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.listing import Column, Listing, Row
from tableferry.pipelines.command.show.range_views import RangeView, TransferView
from tableferry.pipelines.command.show.render import number, shown
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted, those_there


@dataclass(frozen=True)
class TransferOutcome:
    """The outcome of one of several transfers."""

    view: TransferView
    seconds: float

    @property
    def moved(self) -> list[RangeView]:
        """The ranges that this command has moved; others may be committed by earlier ones."""
        return [
            range_
            for range_ in self.view.ranges
            if range_.state is State.COMMITTED and range_.run_id in self.view.run_ids
        ]

    @property
    def rows(self) -> int:
        """The number of rows moved, each counted once for all hops."""
        rows: Counter[str] = Counter()
        for range_ in self.moved:
            rows |= {range_.range: range_.rows_of_move or 0}
        return rows.total()


def select(
    session: Session,
    names: Sequence[str],
    tags: Sequence[str],
    *,
    select_all: bool,
    moving: bool = False,
) -> list[str]:
    """Return the transfers that a command names, or that have all tags (`key` or `key=value`).

    Args:
        session: the session of the command.
        names: the transfers that the user names.
        tags: the tags that transfers should have.
        select_all: take all transfers.
        moving: leave out transfers that move nothing, unless they are named.

    Raises:
        InputError: not exactly one way of selection is used, or nothing matches.
    """
    if sum((bool(names), bool(tags), select_all)) != 1:
        raise InputError("give transfer names, --tag or --all")
    if names:
        return list(dict.fromkeys(names))
    matches = [
        name
        for name, transfer in session.transfers.items()
        if all(_has(transfer.tags, tag) for tag in tags) and (transfer.write.moves or not moving)
    ]
    if not matches:
        if select_all:
            raise InputError(f"there is no valid transfer in {session.declared.path}")
        declared = session.transfers.values()
        known = sorted({f"{key}={value}" for item in declared for key, value in item.tags.items()})
        raise InputError(
            f"no transfer in {session.declared.path} has the tag {' and '.join(tags)}; "
            f"{those_there(tags[0], known, 'tag')}"
        )
    return matches


def show_summary(out: Console, outcomes: Sequence[TransferOutcome]) -> None:
    """Print a line per transfer, and a total."""
    columns = [Column("transfer"), Column("result")]
    columns += [Column(name, right=True) for name in ("moved", "skipped", "failed")]
    columns += [Column("rows", right=True), Column("seconds", right=True)]
    rows = []
    for outcome in outcomes:
        ranges = outcome.view.ranges
        skipped = sum(range_.state is State.SKIPPED_UNCHANGED for range_ in ranges)
        counts = (len(outcome.moved), skipped, sum(not range_.good for range_ in ranges))
        result = Text("ok", style="green") if outcome.view.good else Text("FAILED", style="red")
        cells = [shown(outcome.view.transfer), result]
        cells += [number(count) for count in counts]
        rows.append(Row([*cells, number(outcome.rows), Text(f"{outcome.seconds:.1f}")]))
    plain = not out.is_terminal
    out.print(Listing(columns, rows), soft_wrap=plain)
    good = sum(outcome.view.good for outcome in outcomes)
    total = counted(sum(outcome.rows for outcome in outcomes), "row")
    transfers = counted(len(outcomes), "transfer")
    out.print(Text(f"{good} of {transfers} succeeded; {total} moved", "bold"), soft_wrap=plain)


def _has(tags: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in tags and (not equals or tags[key] == value)
