"""What a refusal must not have done: written to a server before it was told.

Every run, plan and validation of the tests is watched, so that all refusals that any test meets are
asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tableferry.assets import transfer
from tableferry.assets.running import execute
from tableferry.pipelines.command.one import runner, validation
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.sqlserver.connection import SqlServerConnection

WRITES = re.compile(
    r"\s*(ALTER|COMMENT|CREATE|DELETE|DENY|DROP|EXCHANGE|EXEC|GRANT|INSERT|MERGE|RENAME|TRUNCATE"
    r"|UPDATE)\b",
    re.IGNORECASE,
)
PASSING = re.compile(r"CREATE (TEMPORARY TABLE|TABLE #)|DROP TABLE (IF EXISTS )?(#|pg_temp)", re.I)
"""What is the session's own."""


class Watch:
    """The statements that write, of the runs and plans that are under way."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.under_way = 0
        self.decided = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a run or a plan; of several at once it cannot be told whose a statement is."""
        self.under_way += 1
        if self.under_way == 1:
            self.written, self.decided = [], False
        else:
            self.decided = True
        try:
            yield
        finally:
            self.under_way -= 1

    def statement(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Note what is executed."""

        def executed(itself: Any, sql: str, *arguments: Any, **options: Any) -> Any:
            if self.under_way and WRITES.match(sql) and not PASSING.match(sql):
                self.written.append(sql)
            return method(itself, sql, *arguments, **options)

        return executed

    def run(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Require that a run that is refused before its first range has written nothing."""

        def ran(*arguments: Any, **options: Any) -> Any:
            with self.watching():
                try:
                    return method(*arguments, **options)
                except InputError as error:
                    if self.written and not self.decided:
                        raise AssertionError(f"refused after {self.written[0]}: {error}") from error
                    raise

        return ran

    def plan(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Require that a plan or a validation writes nothing, whatever comes of it."""

        def planned(*arguments: Any, **options: Any) -> Any:
            with self.watching():
                try:
                    return method(*arguments, **options)
                finally:
                    assert self.decided or not self.written, self.written[0]

        return planned

    def ranges(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Note that a run has decided, and begins."""

        def begun(*arguments: Any, **options: Any) -> Any:
            self.decided = True
            return method(*arguments, **options)

        return begun


@contextmanager
def refusals_touch_nothing() -> Iterator[None]:
    """Watch all runs, plans and validations of this process."""
    watch = Watch()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (PostgresServer, PostgresSession, SqlServerConnection, ClickHouseServer):
            patch.setattr(kind, "execute", watch.statement(kind.execute))
        patch.setattr(transfer, "execute", watch.run(transfer.execute))
        patch.setattr(execute, "run_ranges", watch.ranges(execute.run_ranges))
        patch.setattr(runner, "plan", watch.plan(runner.plan))
        patch.setattr(validation, "validate", watch.plan(validation.validate))
        yield
