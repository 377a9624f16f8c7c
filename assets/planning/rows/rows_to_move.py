"""How many rows of a range a run would move, by what its source and target hold now."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.actions import action_of_move
from tableferry.assets.planning.rows.decision import Action, Decision
from tableferry.assets.planning.rows.deltas import most_rows
from tableferry.assets.planning.rows.increments import from_watermark
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.checks.delta import delta_of
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.delta import Delta
from tableferry.resources.errors import TableferryError, describe
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted


@dataclass(frozen=True)
class RowsToMove:
    """The rows that a run would move of a range, if not simply all; None: not known."""

    moved: int | None = None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    whole_because: str | None = None
    """Why all of its rows would move although only those that differ were to."""

    def __str__(self) -> str:
        if self.whole_because:
            return f"all rows: {self.whole_because}"
        if self.inserted is None:
            return "" if self.moved is None else counted(self.moved, "row")
        return (
            f"{self.inserted:,} to insert, {self.updated:,} to update, {self.deleted:,} to delete"
        )


def delta_between(
    hop: Hop, servers: Servers, key_range: KeyRange, *, rows: int, most: int
) -> Delta:
    """Find the rows by which a range of a target differs from its source as both are now.

    Args:
        hop: the hop, whose target exists.
        servers: the servers of the transfer.
        key_range: the range.
        rows: about how many rows it has.
        most: maximum number of rows that may differ.

    Raises:
        TooManyDiffer: more rows differ.
        NotUnique: a row cannot be told by its primary key.
        DigestRefused: the servers do not compute a digest that both have.
    """
    comparison = servers.comparison(hop.found_plan, [key_range]).observed
    return delta_of(comparison, rows=rows, most=most, keeps=hop.options.keeps_rows(hop.plan))


def rows_to_move(
    plan: TransferPlan, hop: Hop, servers: Servers, name: str, decision: Decision
) -> RowsToMove:
    """Count the rows that a run would move of a range, where these are not simply all.

    The rows that differ are found as the run finds them, and the newer rows of an increment are
    counted. Reads both sides of the range.

    Args:
        plan: the plan, with the fingerprint of the range.
        hop: the hop, whose source holds already what the run would read.
        servers: the servers of the transfer.
        name: the range.
        decision: what was decided about it.
    """
    transfer, key_range, rows = plan.transfer, plan.ranges[name], plan.fingerprints[name].rows
    if decision.since:
        newer = from_watermark(hop.plan, transfer, decision.since)
        return RowsToMove(servers.side(newer, "source").counts([key_range])[name])
    action = decision.action
    if action is Action.COMPARE:
        action = action_of_move(plan, hop, servers, decision.reason, rows)
    if hop.not_yet or action is not Action.MOVE_DIFFERING:
        return RowsToMove()
    try:
        most = most_rows(transfer, hop, rows)
        delta = delta_between(hop, servers, key_range, rows=rows, most=most)
    except TableferryError as error:
        if is_transient(error):
            raise
        return RowsToMove(whole_because=describe(error))
    return RowsToMove(delta.moved, delta.inserted, delta.updated, delta.deleted)
