"""Refuses one table by several names, whose hops would replace each other's rows for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.namesakes import Namesake, alike
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.tables import TableRef

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
        if _same(table, other, server):
            where = server(table).settings()
            raise InputError(
                f"{transfer.transfer}: {table} and {other} are the same table, at {where}"
            )
    for hop in transfer.hops if transfer.write.moves else ():
        for name, other in namesakes:
            if _same(hop.to, other, server):
                raise InputError(
                    f"{transfer.transfer}: {hop.to} and {other} of transfer {name} are the same "
                    f"table, at {server(hop.to).settings()}; each would replace the other's rows: "
                    "give one of them another target"
                )


def _same(table: TableRef, other: TableRef, server: Server) -> bool:
    """Whether two references mean one table, as far as their servers tell."""
    if alike(table) != alike(other):
        return False
    try:
        return server(table).place(table) == server(other).place(other)
    except (ConnectionFailed, InputError):
        # where one of them is needed, that is told
        return False
