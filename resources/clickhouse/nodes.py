"""Several servers behind one address, and tables that several servers share.

Tableferry's own tables (staging tables, markers, locks) are plain ones of the server that answers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

DISPLAY_NAME = "X-ClickHouse-Server-Display-Name"
"""The header of every answer with the server's `display_name`, by default its host's name."""

ONE_NODE = "Name one of them by its own address in the connection"


class OneNode:
    """A pool of HTTP connections that refuses answers of several servers in turn.

    A server that takes the place of another one, as after a failure, is no second one: that one
    does not come back.
    """

    def __init__(self, pool: Any, address: str) -> None:
        self._pool, self._address = pool, address
        self._names: list[str] = []
        """Whoever has answered, the latest last."""
        self._lock = threading.Lock()

    def request(self, *arguments: Any, **options: Any) -> Any:
        """Send a request, as `urllib3.PoolManager` does.

        Raises:
            InputError: a server answers again after another one has.
        """
        response = self._pool.request(*arguments, **options)
        if name := response.headers.get(DISPLAY_NAME):
            with self._lock:
                returned = name in self._names[:-1]
                if name not in self._names:
                    self._names.append(name)
            if returned:
                response.close()
                raise InputError(several(self._address, self._names))
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def several(address: str, names: Iterable[str]) -> str:
    """Say why several servers at one address are refused."""
    return (
        f"{address}: several servers answer in turn ({', '.join(sorted(names))}), and what one of "
        f"them has been told or sent, another may not know yet, or never. {ONE_NODE}"
    )


def require_one_node(table: TableRef, database_engine: str) -> None:
    """Refuse a target whose database makes each table on several servers.

    Raises:
        InputError: it does; Replicated databases send DDL to all replicas, and rows of plain tables
            to none (https://clickhouse.com/docs/engines/database-engines/replicated).
    """
    if database_engine == "Replicated":
        raise InputError(
            f"{table}: its database has the engine Replicated, which makes every table on all "
            "replicas, staging tables, markers and locks too, while their rows stay on one of "
            "them. Take a target in a database with the engine Atomic on one of the servers"
        )
