"""Tables by several names: targets that may be one table, and their refusal; only servers know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import NamedTuple

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import ConnectionFailed, InputError
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


Server = Callable[[TableRef], Endpoint]
"""Returns the server of a table."""


def require_one_name(
    transfer: Transfer, server: Server, namesakes: Iterable[Namesake] = ()
) -> None:
    """Refuse a hop into a table that this transfer reads or writes, or that another one writes, by
    another name.

    Args:
        transfer: the transfer.
        server: the servers of all tables.
        namesakes: the targets of other transfers that may be one of its own.

    Raises:
        InputError: names both, and where they lead.
    """
    for table, other in combinations(transfer.tables, 2):
        if same := _same(table, other, server):
            where = server(table).settings()
            raise InputError(f"{transfer.transfer}: {table} and {other} {same}, at {where}")
    for hop in transfer.hops if transfer.write.moves else ():
        for name, other in namesakes:
            if same := _same(hop.to, other, server):
                raise InputError(
                    f"{transfer.transfer}: {hop.to} and {other} of transfer {name} {same}, at "
                    f"{server(hop.to).settings()}; each would replace the other's rows: give one "
                    "of them another target"
                )


def _same(table: TableRef, other: TableRef, server: Server) -> str | None:
    """Say that two references mean one table, as far as their servers tell; None if they do not."""
    if alike(table) != alike(other):
        return None
    here, there = server(table), server(other)
    try:
        if here.place(table) != there.place(other):
            return None
        instances = here.instance(), there.instance()
    except (ConnectionFailed, InputError):
        # where one of them is needed, that is told
        return None
    if instances[0] == instances[1]:
        return "are the same table"
    if None not in instances:
        return None
    return (
        "are the same table, or one is of a copy of the other's server, which a standby cannot "
        "tell: name its primary instead"
    )
