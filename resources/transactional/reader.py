"""A server as one of its sessions sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.errors import InputError
from tableferry.resources.transactional.statements import Session


class SessionReader:
    """What of an `Endpoint` counts and digests need, with what a session has not committed yet.

    Args:
        resource: the server.
        session: in its transaction; nothing else may be running on it.
    """

    def __init__(self, resource: Server, session: Session) -> None:
        self.system, self._resource, self._session = resource.system, resource, session

    def settings(self) -> ConnectionSettings:
        """Where the server is."""
        return self._resource.settings()

    def digests_by(self) -> DigestsBy:
        """The server: a session's rows do not come as Arrow."""
        return "server"

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result; see `Endpoint.query`."""
        refuse_snapshot(self.system, snapshot)
        return self._session.query(sql)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Refused: a session's rows do not come as Arrow.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.settings()}: rows that are not committed are read by queries only")
        yield
