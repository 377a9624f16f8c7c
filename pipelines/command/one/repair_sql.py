"""`ferry repair --sql`: the statements that would put right the rows that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tableferry.assets.log.ledger import committed_records
from tableferry.assets.planning.intent import Intent
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.room import delta_between
from tableferry.assets.planning.rows.deltas import MOST_ROWS, only_whole
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import (
    TransferPlan,
    extend_ranges,
    plan_transfer,
)
from tableferry.assets.running.repairs import damaged_sources, require_repairable
from tableferry.pipelines.command.one.finding import match_ranges, select_hops
from tableferry.pipelines.command.session import Session
from tableferry.resources.columns.conform import conform
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import KeyRange

BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Script:
    """What puts one range of one target right."""

    target: str
    range: str
    inserted: int
    updated: int
    deleted: int
    statements: list[str]

    def lines(self) -> Iterator[str]:
        """The script as text."""
        title = (
            f"-- {self.target}, range {self.range}: {self.inserted} inserted, {self.updated} "
            f"updated, {self.deleted} deleted"
        )
        # names may hold line breaks, and what a command line replaces
        yield "".join(each if each.isprintable() else "?" for each in title).replace("$(", "$ (")
        for statement in self.statements:
            yield f"{statement};"


def scripts(
    session: Session, name: str, ranges: Sequence[str] = (), *, hop: int | None = None
) -> Iterator[Script]:
    """Compare the committed ranges of a transfer, and write what would put each right.

    Args:
        session: the session of the command.
        name: the transfer.
        ranges: names of ranges; by default all that are committed.
        hop: only this hop, counted from 1.

    Raises:
        InputError: there is no such transfer, hop or range, or rows cannot be written by
            themselves.
        TableferryError: too many rows differ, or they cannot be told by their primary key.
    """
    servers, plan = plan_of_repair(session, name, hop)
    log, known, transfer = session.instance, plan.ranges, plan.transfer
    chosen_hops = select_hops(name, plan.hops, hop)
    chosen = match_ranges(name, ranges, known) or list(known)
    if damaged := damaged_sources(plan, hop, servers, log, chosen):
        raise TableferryError("; ".join(f"{name}: {why}" for why in damaged.values()))
    rows = {
        (each.number, key): record.rows or 0
        for each in chosen_hops
        for key, record in committed_records(log, each.spec.to, known).items()
    }
    # what the next hop should have is known once this one has it
    right = set(chosen)
    for selected in chosen_hops:
        if not plan.declared.write.moves:
            there = servers.side(selected.plan, "source").counts([*known.values()])
            rows |= {(selected.number, key): number for key, number in there.items()}
        for key in chosen:
            number = rows.get((selected.number, key))
            if number is None or key not in right:
                continue
            if why := only_whole(transfer, selected):
                raise InputError(
                    f"{name}: {selected.plan.target}: its rows cannot be put right by themselves: "
                    f"{why}"
                )
            if script := _script(selected, servers, known[key], number):
                right.remove(key)
                yield script


def plan_of_repair(session: Session, name: str, hop: int | None) -> tuple[Servers, TransferPlan]:
    """Return the servers and the plan of a repair that moves nothing, with the known ranges.

    Those of a transfer that moves nothing are brought up to date first.

    Raises:
        InputError: there is no such transfer or hop, or its targets cannot be repaired.
    """
    transfer, log = session.transfer(name), session.instance
    servers, intent = session.servers_of(transfer), Intent(repair=True)
    plan = plan_transfer(transfer, servers, log, intent, purpose="compare")
    require_repairable(plan, select_hops(name, plan.hops, hop), servers)
    if not transfer.write.moves:
        ranges = extend_ranges(transfer, servers, log, replaces=False).ranges
        plan = replace(plan, ranges=ranges)
    return servers, plan


def _as_printed(plan: CopyPlan) -> CopyPlan | None:
    """Select each column as its server prints it, where the target's reads that alike.

    None if a column is converted on its way.
    """
    system = plan.source.system
    printed = []
    for column in plan.columns:
        unread = source_of(system).unread_sql("copy_text", column.source)
        if system != plan.target.system or unread is None or column.text_sql != unread:
            return None
        printed.append(replace(column, arrow_sql=system.dialect.text(unread)))
    return replace(plan, columns=tuple(printed))


def _script(hop: Hop, servers: Servers, key_range: KeyRange, rows: int) -> Script | None:
    plan = hop.plan
    source = servers.endpoint(plan.source)
    delta = delta_between(hop, servers, key_range, rows=rows, most=MOST_ROWS)
    if not delta.moved and not delta.deleted:
        return None
    printed = _as_printed(plan)
    refused = [each.target.name for each in plan.columns if each.arrow_sql is None]
    if refused and not printed:
        raise InputError(
            f"{plan.target}: the values of {refused[0]!r} cannot be written as constants; "
            "`ferry repair` without --sql puts them right"
        )

    def moved() -> Iterator[pa.RecordBatch]:
        for part in delta.parts(printed or plan):
            with source_of(plan.source.system).read_arrow(
                source, part, key_range, part.select(key_range, "arrow"), batch_rows=BATCH_ROWS
            ) as reader:
                for batch in reader:
                    yield batch if printed else conform(batch, part, {})

    publication = Publication(plan, key_range, "", "", delta=delta)
    statements = servers.target(plan.target).script(publication, hop.options, moved())
    return Script(
        str(plan.target),
        key_range.name,
        delta.inserted,
        delta.updated,
        delta.deleted,
        list(statements),
    )
