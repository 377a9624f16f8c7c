"""Targets of several transfers that may be one table by several names; only servers know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.tables import TableRef


class Namesake(NamedTuple):
    """A target that may be another transfer's, too."""

    transfer: str
    """The transfer that writes to it."""
    table: TableRef


def alike(table: TableRef) -> tuple[str, ...]:
    """What all names of a table have in common: a connection may have any name, a link leads to any
    folder, and some servers ignore case."""
    if table.system.by_path:
        return (table.system_name,)
    return table.system_name, table.schema.casefold(), table.name.casefold()


def namesakes_of(transfers: Iterable[Transfer]) -> dict[str, tuple[Namesake, ...]]:
    """Return the targets of other transfers that may be a transfer's own, by name of the transfer.

    Transfers without any are left out.
    """
    by_name: dict[tuple[str, ...], list[Namesake]] = defaultdict(list)
    for transfer in transfers:
        for hop in transfer.hops if transfer.write.moves else ():
            by_name[alike(hop.to)].append(Namesake(transfer.transfer, hop.to))
    namesakes: dict[str, tuple[Namesake, ...]] = {}
    for group in by_name.values():
        for name in {each.transfer for each in group}:
            others = tuple(each for each in group if each.transfer != name)
            if others:
                namesakes[name] = (*namesakes.get(name, ()), *others)
    return namesakes
