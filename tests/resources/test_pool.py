"""Connections are lent to one borrower at a time, and never after an error."""

from __future__ import annotations

import os
from itertools import count

import pytest

from tableferry.resources.connecting import pool as connection_pool
from tableferry.resources.connecting.pool import MOST_IDLE, ConnectionPool


class Session:
    def __init__(self, number: int) -> None:
        self.number, self.closed, self.stands = number, False, True

    def answers(self) -> bool:
        return self.stands

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def numbers() -> count[int]:
    return count(1)


@pytest.fixture
def connections() -> ConnectionPool[Session]:
    return ConnectionPool(Session.answers, lambda one: one.closed, Session.close)


def use(connections: ConnectionPool[Session], numbers: count[int], at: str = "here") -> Session:
    with connections.lent(at, lambda: Session(next(numbers))) as session:
        return session


def test_what_came_back_is_lent_again(
    connections: ConnectionPool[Session], numbers: count[int]
) -> None:
    first = use(connections, numbers)
    assert use(connections, numbers) is first
    assert use(connections, numbers, "elsewhere") is not first


def test_two_borrowers_have_two(connections: ConnectionPool[Session], numbers: count[int]) -> None:
    with connections.lent("here", lambda: Session(next(numbers))) as first:
        assert use(connections, numbers) is not first


def test_it_is_closed_after_an_error(
    connections: ConnectionPool[Session], numbers: count[int]
) -> None:
    with (
        pytest.raises(KeyError),
        connections.lent("here", lambda: Session(next(numbers))) as session,
    ):
        raise KeyError
    assert session.closed
    assert use(connections, numbers) is not session


def test_a_borrower_may_end_it(connections: ConnectionPool[Session], numbers: count[int]) -> None:
    with connections.lent("here", lambda: Session(next(numbers))) as session:
        session.close()
    assert use(connections, numbers) is not session


def test_one_that_was_idle_for_a_while_is_asked_first(
    connections: ConnectionPool[Session], numbers: count[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = use(connections, numbers)
    monkeypatch.setattr(connection_pool, "TRUSTED_SECONDS", 0)
    assert use(connections, numbers) is first
    first.stands = False
    assert use(connections, numbers) is not first
    assert first.closed


def test_few_are_kept_and_none_for_long(
    connections: ConnectionPool[Session], numbers: count[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Session] = []

    def borrow(left: int) -> None:
        with connections.lent("here", lambda: Session(next(numbers))) as session:
            made.append(session)
            if left:
                borrow(left - 1)

    borrow(MOST_IDLE + 1)
    assert sum(not session.closed for session in made) == MOST_IDLE
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 0)
    monkeypatch.setattr(connection_pool, "TRUSTED_SECONDS", 0)
    use(connections, numbers)
    assert all(session.closed for session in made)


def test_a_forked_child_leaves_its_parents_connections_alone(
    connections: ConnectionPool[Session], numbers: count[int]
) -> None:
    mine = use(connections, numbers)
    child = os.fork()
    if child == 0:
        connections.close()
        os._exit(mine.closed or use(connections, numbers) is mine)
    assert os.waitpid(child, 0)[1] == 0
    assert use(connections, numbers) is mine
