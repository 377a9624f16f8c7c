"""What is known of a run beforehand: its rows by range, the room they take, and the last runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tableferry.assets.declaring.profiles import profile
from tableferry.assets.log.queries import Log
from tableferry.assets.log.runs import seconds_of_moves
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.actions import action_of_move
from tableferry.assets.planning.rows.decision import Action, Decision
from tableferry.assets.planning.rows.deltas import from_watermark, most_rows
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.checks.delta import delta_of
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import TableferryError, describe
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted, duration, size

SAMPLE_ROWS = 1_000


@dataclass(frozen=True)
class Room:
    """The room that the rows of a run take in one target."""

    target: str
    written: int
    """Bytes of the rows that are written; those that they replace are freed later, if any."""
    staging: int
    """Bytes of staging tables at a time."""
    parts: int | None = None
    """Parts that the target gets, before they are merged; None in a system without."""

    def __str__(self) -> str:
        parts = f" in {counted(self.parts, 'part')}" if self.parts else ""
        staging = f"; staging tables up to {size(self.staging)} at a time"
        return f"{self.target}: about {size(self.written)} to write{parts}{staging}"


@dataclass(frozen=True)
class Outlook:
    """What is known beforehand of a run that has something to do."""

    rows: int
    """Rows of the ranges that move as a whole, once per hop."""
    bytes: int | None
    """Their bytes on the wire; None if nothing is known of the size of the rows."""
    room: Sequence[Room]
    """The room that they take, by target."""
    last_seconds: Sequence[float]
    """How long the last runs of the transfer took that moved something, the newest first."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that a user reads."""
        if self.rows:
            of_bytes = f", {size(self.bytes)}" if self.bytes else ""
            yield f"{counted(self.rows, 'row')} to move{of_bytes}"
        yield from map(str, self.room)
        if self.last_seconds:
            took = ", ".join(map(duration, self.last_seconds))
            number = len(self.last_seconds)
            yield f"the last {counted(number, 'run')} took {took}" + (
                " (the newest first)" if number > 1 else ""
            )


def outlook(plan: TransferPlan, servers: Servers, log: Log) -> Outlook | None:
    """Look ahead to the run of a plan; None if it has nothing to do.

    Args:
        plan: the plan, with its fingerprints and decisions.
        servers: the servers of the transfer.
        log: the event log.
    """
    if not any(decision.runs for decided in plan.decided.values() for decision in decided.values()):
        return None
    whole = {hop.number: _rows_of_whole_ranges(plan, hop) for hop in plan.hops}
    rows = sum(map(sum, whole.values()))
    row_bytes = _sampled_row_bytes(plan, servers) if rows else None
    room = [] if row_bytes is None else [*_rooms(plan, servers, whole, row_bytes)]
    total = None if row_bytes is None else int(rows * row_bytes)
    return Outlook(rows, total, room, seconds_of_moves(log, plan.transfer))


def _rows_of_whole_ranges(plan: TransferPlan, hop: Hop) -> list[int]:
    """Return the rows of each range of a hop that moves as a whole, in descending order.

    The others are compared first, or only, or have only newer rows moved.
    """
    rows = [
        plan.fingerprints[name].rows
        for name, decision in plan.decided[hop.number].items()
        if decision.action is Action.MOVE_ALL
    ]
    return sorted(filter(None, rows), reverse=True)


def _rooms(
    plan: TransferPlan, servers: Servers, whole: Mapping[int, Sequence[int]], row_bytes: float
) -> Iterator[Room]:
    """Yield the room that each hop needs of which ranges move as a whole.

    Args:
        plan: the plan.
        servers: the servers of the transfer.
        whole: the rows of these ranges, by hop.
        row_bytes: the bytes of a row on the wire.
    """
    parallel = plan.transfer.parallel
    lanes = parallel.runs * (parallel.load or profile(plan.transfer.profile).load)
    for hop in plan.hops:
        rows = whole[hop.number]
        if not rows:
            continue
        stored, loader = _stored_bytes(hop, servers, row_bytes), loader_of(hop.plan.target.system)
        staged = rows if plan.transfer.write.whole_table else rows[:lanes]
        block = loader.most_in_part
        parts = block and sum(
            max(1, math.ceil(count / block.rows), math.ceil(count * row_bytes / block.bytes))
            for count in rows
        )
        yield Room(
            str(hop.plan.target), int(sum(rows) * stored), int(sum(staged) * stored), parts or None
        )


def _stored_bytes(hop: Hop, servers: Servers, row_bytes: float) -> float:
    """Return the bytes of a row in the target: as of the rows it has, or else typically."""
    table = hop.plan.target
    if hop.existing is not None and not table.system.by_path:
        with suppress(TableferryError):
            sizes = source_of(table.system).sizes(servers.endpoint(table), [table])
            known = sizes.get(table)
            if known is not None and known.rows and known.bytes:
                return known.bytes / known.rows
    return row_bytes * loader_of(table.system).stored_share


def _sampled_row_bytes(plan: TransferPlan, servers: Servers) -> float | None:
    """Return the bytes of a row on the wire, by the first rows of the first range that has any.

    None if no range has rows, or they cannot be read as they are.
    """
    first, source = plan.hops[0].plan, plan.transfer.source
    for name, fingerprint in plan.fingerprints.items():
        if not fingerprint.rows:
            continue
        key_range = plan.ranges[name]
        with (
            suppress(TableferryError),
            source_of(source.system).read_arrow(
                servers.endpoint(source),
                first,
                key_range,
                first.select(key_range, "arrow"),
                batch_rows=SAMPLE_ROWS,
            ) as batches,
        ):
            batch = next((batch for batch in batches if batch.num_rows), None)
            return batch.nbytes / batch.num_rows if batch is not None else None
        return None
    return None


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
