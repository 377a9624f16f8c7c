"""Loads key ranges into SQL Server tables, each by one transaction."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from resources.sqlserver.connection import SqlServerConnection
from resources.sqlserver.ddl import STATEMENTS
from resources.sqlserver.load import SqlServerLoad
from resources.sqlserver.resource import SqlServerResource
from resources.transactional.target import TransactionalTarget


class SqlServerTarget(TransactionalTarget[SqlServerConnection]):
    """A SQL Server, or a Babelfish, as a load target: ranges are held by application locks.

    Args:
        resource: the server.
    """

    resource: SqlServerResource
    sql = STATEMENTS

    def _session(self) -> AbstractContextManager[SqlServerConnection]:
        return self.resource.connection()

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> SqlServerLoad:
        return SqlServerLoad(files=stack, **parts)
