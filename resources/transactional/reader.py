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
from tableferry.resources.transactional.statements import TargetSession


class SessionReader:
    """The part of an `Endpoint` that counts and digests need, on a session's uncommitted rows.

    Args:
        resource: the server.
        session: in its transaction; nothing else may be running on it.
    """

    def __init__(self, resource: Server, session: TargetSession) -> None:
        self.system, self._resource, self._session = resource.system, resource, session

    limits: None = None
    """It reads what this process has written."""

    def settings(self) -> ConnectionSettings:
        """See `Endpoint.settings`."""
        return self._resource.settings()

    def digests_by(self) -> DigestsBy:
        """Return "server": a session's rows do not come as Arrow."""
        return "server"

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """See `Endpoint.query`."""
        refuse_snapshot(self.system, snapshot)
        return self._session.query(sql)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Refuse: see `digests_by`.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.settings()}: rows that are not committed are read by queries only")
        yield
