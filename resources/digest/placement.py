"""Whether a server or the client computes the digests of the server's rows: who does for less.

SQL Server digests rows quickly; Babelfish sends them several times faster than it digests them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal, cast

from tableferry.resources.digest.definition import RECORD
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.probe import DigestRefused, require_client, summed_constants
from tableferry.resources.endpoint import Endpoint
from tableferry.resources.probe import remembered
from tableferry.resources.server import Server

logger = logging.getLogger(__name__)

ENOUGH_ROWS = 20_000
"""Of fewer it does not matter who digests them, and a trial would cost more than it saves."""

CHEAP = 20e-6
"""Seconds a row that a client needs in any case, to read it and to digest it."""

SMALL, LARGE = 0, 3
"""Powers of ten of a trial's rows: what both take (to connect, to plan) is not the rows'."""

_digested: dict[str, int] = {}
_lock = threading.Lock()


def client_computes(endpoint: Endpoint, found: DigestSql, rows: Callable[[], int]) -> bool:
    """Whether the client should compute digests from the rows that the server sends.

    Where that is not declared, both are tried once per server and process, with constants.

    Args:
        endpoint: the server.
        found: how it computes digests.
        rows: counts those that are wanted now; asked by the first query of a process.

    Raises:
        DigestRefused: the client should by declaration, and gets other digests than it should.
    """
    if found.algorithm == RECORD:
        return False
    server = cast(Server, endpoint)
    who = server.digests_by()
    if who == "auto":
        many = _rows(server)
        if many is None:
            many = rows()
            digested(endpoint, many)
        if many < ENOUGH_ROWS:
            return False
        who = remembered(server, ("digests by", found), lambda: _cheaper(endpoint, found))
    if who == "client":
        require_client(endpoint, found)
    return who == "client"


def digested(endpoint: Endpoint, rows: int) -> None:
    """Note that so many rows of a server are digested for this process."""
    address = cast(Server, endpoint).settings().address
    with _lock:
        _digested[address] = _digested.get(address, 0) + rows


def _rows(server: Server) -> int | None:
    with _lock:
        return _digested.get(server.settings().address)


def _cheaper(endpoint: Endpoint, found: DigestSql) -> Literal["server", "client"]:
    def seconds(who: Literal["server", "client"]) -> float:
        times = []
        for tens in (SMALL, LARGE):
            began = time.perf_counter()
            rows, _ = summed_constants(endpoint, found, who, tens)
            times.append(time.perf_counter() - began)
        return max(0.0, times[1] - times[0]) / rows

    by_server = seconds("server")
    if by_server <= CHEAP:
        return "server"
    try:
        require_client(endpoint, found)
    except DigestRefused as error:
        logger.warning("%s", error)
        return "server"
    by_client = seconds("client")
    # a trial of two thousand rows is no more exact than that
    cheaper: Literal["server", "client"] = "client" if 2 * by_client < by_server else "server"
    logger.info(
        "%s digests a row in %.0f microseconds, the client in %.0f: the %s will",
        cast(Server, endpoint).settings(),
        by_server * 1e6,
        by_client * 1e6,
        cheaper,
    )
    return cheaper
