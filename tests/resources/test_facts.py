"""What the process knows of its connections."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.facts import Facts
from tableferry.resources.postgres.server import PostgresServer

URL = "postgresql://ann:secret@db.example:5433/shop?sslmode=require"


def test_a_fact_is_asked_for_once_and_an_error_again() -> None:
    facts, asked = Facts(), list[str]()

    def fail() -> str:
        asked.append("failed")
        raise OSError

    def answer() -> None:
        asked.append("answered")

    for _ in range(2):
        with pytest.raises(OSError):
            facts.known("a", fail)
    for _ in range(2):
        # None is an answer, too
        assert facts.known("a", answer) is None
    assert asked == ["failed", "failed", "answered"]


def test_a_fact_of_a_version_holds_until_there_is_another() -> None:
    facts, answers = Facts(), iter("abc")
    found = [facts.known("file", lambda: next(answers), at) for at in (1, 1, 2, 2, 1)]
    assert found == ["a", "a", "b", "b", "c"]


def test_a_new_version_that_cannot_be_asked_for_leaves_no_answer_for_it() -> None:
    facts = Facts()
    facts.known("file", lambda: "old", 1)
    with pytest.raises(ZeroDivisionError):
        facts.known("file", lambda: 1 / 0, 2)
    assert facts.known("file", lambda: "new", 2) == "new"


def test_threads_that_want_one_fact_wait_for_it_and_others_do_not() -> None:
    facts, asked, held = Facts(), list[int](), threading.Event()

    def slow() -> int:
        asked.append(1)
        assert held.wait(60)
        return 1

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(facts.known, "slow", slow) for _ in range(3)]
        assert facts.known("other", lambda: 2) == 2
        held.set()
        assert [one.result() for one in waiting] == [1, 1, 1]
    assert asked == [1]


def test_what_is_noted_last_counts() -> None:
    facts = Facts()
    assert facts.latest("at", 0.0) == 0.0
    for at in (1.0, 2.0):
        facts.note("at", at)
        assert facts.latest("at", 0.0) == at


def test_facts_belong_to_the_connection_not_to_the_object() -> None:
    facts = PostgresServer(url=URL).settings().facts
    same = PostgresServer(
        url="postgresql://db.example/?sslmode=require", user="ann", port=5433, database="shop"
    )
    assert same.settings().facts is facts, "a new password changes no fact"
    others = [
        PostgresServer(url=URL, user="bob"),
        PostgresServer(url=URL, database="other"),
        PostgresServer(url=URL, host="other.example"),
        PostgresServer(url=URL, port=5434),
        PostgresServer(url=URL.replace("require", "verify-full")),
        ClickHouseServer(url="http://ann:secret@db.example:5433/shop"),
    ]
    assert len({id(one.settings().facts) for one in [*others, same]}) == 7
