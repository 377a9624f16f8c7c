"""Transactions of sessions in autocommit mode."""

from __future__ import annotations

from typing import Any

import pytest

from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.ddl import STATEMENTS


class Session:
    """Records what is executed; the statement in `fails` fails."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.executed = fails, list[str]()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return []

    def execute(self, sql: str) -> int:
        self.executed.append(sql)
        if sql == self.fails:
            raise StatementFailed("postgres", f"{sql} failed")
        return -1

    def close(self) -> None:
        pass


def test_a_transaction_commits() -> None:
    session = Session()
    with STATEMENTS.transaction(session):
        session.execute("INSERT")
    assert session.executed == ["BEGIN TRANSACTION", "INSERT", "COMMIT TRANSACTION"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_transaction_is_rolled_back_on_any_error(error: type[BaseException]) -> None:
    session = Session(fails="ROLLBACK")  # which does not hide the error
    with pytest.raises(error), STATEMENTS.transaction(session):
        raise error
    assert session.executed == ["BEGIN TRANSACTION", "ROLLBACK"]


def test_a_failed_commit_is_rolled_back() -> None:
    session = Session(fails="COMMIT TRANSACTION")
    with pytest.raises(StatementFailed, match="COMMIT"), STATEMENTS.transaction(session):
        pass
    assert session.executed[-1] == "ROLLBACK"
