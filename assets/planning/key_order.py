"""Notes on tables in which no index serves the order of a text key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.ranges.key_kind import is_text_key
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


def order_notes(hops: Sequence[Hop], servers: Servers) -> Iterator[str]:
    """Yield a note per table of which each range is read, replaced and checked by a full scan."""
    first = hops[0].plan
    if not is_text_key(first.key.source, first.source.system):
        return
    yield from _unserved(first.source, first.key.source, servers)
    for hop in hops:
        key = hop.plan.key.target
        if hop.existing is not None:
            yield from _unserved(hop.plan.target, hop.existing.get(key.name, key), servers)
        elif not loader_of(hop.plan.target.system).orders_key(hop.plan):
            yield _note(hop.plan.target, key)


def _unserved(table: TableRef, key: Column, servers: Servers) -> Iterator[str]:
    source = source_of(table.system)
    if is_text_key(key, table.system) and not source.serves_order(
        servers.endpoint(table), table, key
    ):
        yield _note(table, key)


def _note(table: TableRef, key: Column) -> str:
    index = source_of(table.system).index_of_order(table, key)
    return (
        f"{table}: no index serves the order of the key {key.name!r}, so that each range reads the "
        f"whole table{f'; it would take {index}' if index else ''}"
    )
