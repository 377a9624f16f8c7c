"""Reads ranges of a transfer's tables into memory, with the values that the transfer moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pyarrow as pa

from tableferry.pipelines.command.one.finding import resolve_range, select_hops
from tableferry.pipelines.command.session import Session
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import BATCH_ROWS, Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef


def read(
    session: Session,
    name: str,
    range: str,
    *,
    side: Literal["source", "target"] = "source",
    hop: int | None = None,
) -> pa.Table:
    """Read a range into an Arrow table; `to_pandas()` makes a data frame of it.

    The source's rows have the types and names of the target, as they are loaded; those of the
    target are read as a transfer from it would read them. All of the range is held in memory.

    Args:
        session: the session of the command.
        name: the transfer.
        range: the range, by partition key, or by a key in it.
        side: whose rows.
        hop: of this hop (1-based); by default the source of the first, or the target of the last.

    Raises:
        InputError: the transfer, hop or range does not exist.
        TypeRefused: no Arrow type holds the values of a column of the target.
        ValueRefused: the target cannot hold a value of the source.
    """
    if side not in ("source", "target"):
        raise InputError(f"side is 'source' or 'target', not {side!r}")
    servers, resolved, key_range = resolve_range(session, name, range)
    of_source = side == "source"
    selected = select_hops(name, resolved.hops, hop)[0 if of_source else -1]
    plan = selected.plan
    if not of_source:
        plan = _from_target(selected.found_plan, servers.endpoint(plan.target))
    server, sql = servers.endpoint(plan.source), plan.select(key_range, "arrow")
    rows = (
        source_of(plan.source.system).read_arrow(
            server, plan, key_range, sql, batch_rows=BATCH_ROWS
        )
        if of_source
        else server.read_arrow(sql, batch_rows=BATCH_ROWS)
    )
    with rows as reader:
        return pa.Table.from_batches([conform(batch, plan, {}) for batch in reader], schema(plan))


def _from_target(plan: CopyPlan, server: Endpoint) -> CopyPlan:
    """Plan to read the columns that a hop writes from its target, as if for a Parquet file."""
    written = {column.target.name for column in plan.columns}
    columns = [column for column in server.columns(plan.target) if column.name in written]
    in_memory = TableRef("files", ".", "memory.parquet")
    reading = plan_copy(plan.target, columns, in_memory, key=plan.key.target.name)
    return replace(reading, where=plan.target_where)
