"""Runs of several transfers, one after the other, and one summary of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from tableferry.assets.log.records import State
from tableferry.pipelines.command.listing import Column, Listing, Row
from tableferry.pipelines.command.range_views import TransferView
from tableferry.pipelines.command.render import number, shown
from tableferry.pipelines.command.session import Session
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.words import counted


@dataclass(frozen=True)
class OneOfSeveral:
    """What became of one transfer."""

    view: TransferView
    seconds: float

    @property
    def states(self) -> Counter[str]:
        """How many ranges are in each state."""
        return Counter(str(one.state) for one in self.view.ranges)

    @property
    def rows(self) -> int:
        """That were moved; those of a range count once, whatever the hops that it went through."""
        rows: dict[str, int] = {}
        for one in self.view.ranges:
            if one.state is State.COMMITTED:
                rows[one.range] = max(rows.get(one.range, 0), one.rows_of_move or 0)
        return sum(rows.values())


def chosen(
    session: Session, names: Sequence[str], tags: Sequence[str], *, every: bool
) -> list[str]:
    """The transfers that a command is about.

    Args:
        session: what is declared.
        names: those that are named.
        tags: `key` or `key=value`; those that have all of these.
        every: all valid ones.

    Raises:
        InputError: nothing is asked for, more than one way of asking is used, or nothing fits.
    """
    if sum((bool(names), bool(tags), every)) != 1:
        raise InputError("name the transfers, or give --tag, or --all: one of these")
    if names:
        return list(dict.fromkeys(names))
    found = [
        name
        for name, transfer in session.transfers.items()
        if all(_has(transfer.tags, tag) for tag in tags)
    ]
    if not found:
        if every:
            raise InputError(f"there is no valid transfer in {session.declared.path}")
        tagged = (one.tags.items() for one in session.transfers.values())
        known = sorted({f"{key}={value}" for of_one in tagged for key, value in of_one})
        raise InputError(
            f"no transfer in {session.declared.path} has {' and '.join(tags)}; "
            f"there are the tags {', '.join(known) or 'none'}"
        )
    return found


def each(names: Sequence[str], run: Callable[[str], TransferView]) -> Iterator[OneOfSeveral]:
    """Run the transfers in turn; one that cannot run stops no other."""
    for name in names:
        began = time.perf_counter()
        try:
            view = run(name)
        except TableferryError as error:
            view = TransferView(name, [], False, str(error).splitlines())
        yield OneOfSeveral(view, time.perf_counter() - began)


def document(found: Sequence[OneOfSeveral], errors: Sequence[str]) -> dict[str, Any]:
    """The `--json` form."""
    return {
        "ok": not errors,
        "errors": list(errors),
        "transfers": [one.view.json() for one in found],
    }


def show_summary(out: Console, found: Sequence[OneOfSeveral]) -> None:
    """Print a line per transfer, and one for all."""
    columns = [Column("transfer"), Column("result")]
    columns += [Column(name, right=True) for name in ("moved", "skipped", "failed")]
    columns += [Column("rows", right=True), Column("seconds", right=True)]
    rows = []
    for one in found:
        states = one.states
        skipped = states[State.SKIPPED_UNCHANGED]
        moved = states[State.COMMITTED]
        result = Text("ok", style="green") if one.view.good else Text("FAILED", style="red")
        cells = [shown(one.view.transfer), result]
        cells += [number(count) for count in (moved, skipped, states.total() - moved - skipped)]
        rows.append(Row([*cells, number(one.rows), Text(f"{one.seconds:.1f}")]))
    plain = not out.is_terminal
    out.print(Listing(columns, rows), soft_wrap=plain)
    good = sum(one.view.good for one in found)
    total = sum(one.rows for one in found)
    transfers = counted(len(found), "transfer")
    line = (
        f"{good} of {transfers} {'is' if good == 1 else 'are'} well; {counted(total, 'row')} moved"
    )
    out.print(Text(line, style="bold"), soft_wrap=plain)


def _has(tags: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in tags and (not equals or tags[key] == value)
