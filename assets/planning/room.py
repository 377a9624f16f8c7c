"""The room that the rows of a run take in its targets, and beside them while they are staged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tableferry.assets.planning.forecast import moved_whole
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted, size

SAMPLE_ROWS = 1_000


@dataclass(frozen=True)
class Room:
    """The room that the rows of a run take in one target."""

    target: str
    written: int
    """Bytes of the rows that are written; those that they replace are freed later, if any."""
    staging: int
    """Bytes of staging tables at a time, if rows are staged."""
    parts: int | None = None
    """Parts that the target gets, before they are merged; None in a system without."""

    def __str__(self) -> str:
        parts = f" in {counted(self.parts, 'part')}" if self.parts else ""
        staging = f"; staging tables up to {size(self.staging)} at a time"
        return f"{self.target}: about {size(self.written)} to write{parts}{staging}"


def rooms(plan: TransferPlan, servers: Servers, row_bytes: float, lanes: int) -> Iterator[Room]:
    """Yield the room that each hop needs of which ranges move as a whole.

    Args:
        plan: the plan, with its fingerprints and decisions.
        servers: the servers of the transfer.
        row_bytes: the bytes of a row on the wire.
        lanes: how many ranges are written at a time.
    """
    for hop in plan.hops:
        rows = sorted(moved_whole(plan, hop).values(), reverse=True)
        if not any(rows):
            continue
        stored, loader = _stored_bytes(hop, servers, row_bytes), loader_of(hop.plan.target.system)
        staged = rows if plan.transfer.write.whole_table else rows[:lanes]
        block = loader.most_in_part
        parts = block and sum(
            max(1, math.ceil(count / block.rows), math.ceil(count * row_bytes / block.bytes))
            for count in rows
            if count
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


def sampled_row_bytes(plan: TransferPlan, servers: Servers) -> float | None:
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
