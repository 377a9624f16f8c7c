"""The limits of a source: how they are declared, which hold, and what waits for them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from tableferry.resources.connecting import guard as guards
from tableferry.resources.connecting.guard import BusyWait, SourceBusy, stop_waiting
from tableferry.resources.contract.limits import DEFAULTS, NAMES, SourceLimits, parse, read
from tableferry.resources.errors import (
    ConnectionFailed,
    InputError,
    StatementFailed,
    TableferryError,
)
from tableferry.resources.files.server import FilesServer
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.server import SqlServerServer

URL = "postgresql://me@db/shop"
VARIABLE = "TABLEFERRY_POSTGRES_SOURCE_LIMITS"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("longest_statement", "2", 2.0),
        ("longest_statement", "250ms", 0.25),
        ("oldest_snapshot", "15m", 900.0),
        ("oldest_snapshot", "none", None),
        ("oldest_snapshot", None, None),
        ("replica_lag", "1.5 h", 5400.0),
        ("longest_wait", "2d", 172_800.0),
        ("active_sessions", "50", 50.0),
        ("oldest_xmin", 10_000_000, 10_000_000.0),
        ("parallel_workers", 0, 0.0),
        ("parallel_workers", "none", None),
        ("probe", "SELECT 1;", "SELECT 1"),
        ("probe_above", "-3.5", -3.5),
    ],
)
def test_a_limit_is_read(name: str, text: object, value: object) -> None:
    assert read(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("longest_statement", "0"),
        ("longest_statement", "10ms"),
        ("longest_statement", "soon"),
        ("longest_statement", "-3s"),
        ("longest_statement", True),
        ("oldest_snapshot", "0.5s"),
        ("oldest_snapshot", "9" * 400),
        ("longest_wait", "none"),
        ("longest_wait", None),
        ("active_sessions", "0"),
        ("active_sessions", "2.5"),
        ("active_sessions", "many"),
        ("oldest_xmin", "1e400"),
        ("parallel_workers", "-1"),
        ("probe", " "),
        ("probe", None),
        ("probe_above", "none"),
        ("probe_above", "nan"),
        ("probe_above", "inf"),
    ],
)
def test_a_limit_that_is_none_is_refused(name: str, text: object) -> None:
    with pytest.raises(ValueError, match="should be"):
        read(name, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("longest_statement", "name=value"),
        ("longest=3s", "'longest=3s' is not"),
        ("longest_statement=3s; longest_statement=4s", "at most one"),
        ("longest_statement=0", "longest_statement should be a duration of at least 0.1 s"),
        ("probe=SELECT 1", "go together"),
        ("probe_above=1", "go together"),
    ],
)
def test_a_connection_with_other_limits_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InputError, match=f"^{VARIABLE}.*{said}"):
        PostgresServer(url=URL).within_budget("postgres")


def test_variable_field_and_url_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "longest_statement=2s; probe=SELECT a = b FROM t; probe_above=0"
    given = {"longest_statement": 2.0, "probe": "SELECT a = b FROM t", "probe_above": 0.0}
    assert parse(said, "it") == given
    assert PostgresServer(url=URL, source_limits=said).declared_limits("sales") == given
    by_url = PostgresServer(url=f"{URL}?source_limits=oldest_snapshot%3D5m&sslmode=disable")
    assert by_url.declared_limits("sales") == {"oldest_snapshot": 300.0}
    assert by_url.settings().options == {"sslmode": "disable"}
    monkeypatch.setenv(VARIABLE, "active_sessions=3")
    assert by_url.declared_limits("postgres") == {"active_sessions": 3.0}


def test_the_strictest_limit_holds_and_the_defaults_only_alone() -> None:
    alone = SourceLimits.of({}, {})
    assert alone.longest_statement == DEFAULTS["longest_statement"]
    assert (alone.oldest_snapshot, alone.above, alone.declared) == (900.0, {}, frozenset())
    both = SourceLimits.of(
        {"longest_statement": 5.0, "oldest_snapshot": None, "probe": "A", "probe_above": 1.0},
        {"longest_statement": 4.0, "oldest_snapshot": 60.0, "probe": "B", "probe_above": 2.0},
    )
    assert (both.longest_statement, both.oldest_snapshot) == (4.0, 60.0)
    assert (both.probe, both.above) == ("A", {"probe": 1.0}), "the connection's"
    assert SourceLimits.of({}, {"longest_statement": None}).longest_statement is None


def test_what_a_system_does_not_have_is_refused() -> None:
    server = SqlServerServer(url="mssql://me@db/shop", source_limits="oldest_snapshot=5m")
    with pytest.raises(InputError, match="source_limits: SQL Server has no oldest_snapshot"):
        server.within_budget("sqlserver")
    held = SqlServerServer(url="mssql://me@db/shop").within_budget("sqlserver").limits
    assert held is not None and held.longest_statement == 3.0
    with pytest.raises(InputError, match="no longest_statement"):
        FilesServer(source_limits="longest_statement=3s").within_budget("files")
    assert FilesServer().within_budget("files").limits is None
    assert PostgresServer(url=URL).limits is None, "as a target"
    assert PostgresServer(url=URL).within_budget("postgres").limits == SourceLimits.of({})


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(guards, "SLICE_SECONDS", 0.001)


def probing(bound: float = 5, longest: float = 30) -> SourceLimits:
    declared = {"probe": "SELECT n", "probe_above": float(bound), "longest_wait": float(longest)}
    return SourceLimits.of(declared)


def answers(*values: Any) -> Iterator[Any]:
    return itertools.chain(values, itertools.repeat(values[-1]))


def test_readers_wait_until_the_signal_is_at_its_bound(looking_often: None) -> None:
    heard: list[str] = []
    values = answers(7, Decimal("5.5"), 5)
    one = BusyWait("shop")
    waited = one.wait(probing(), {}, lambda _: [(next(values),)], heard.append)
    assert list(waited) == ["probe"] and waited["probe"] >= 0.02
    assert heard == ["waiting as probe is 7, above its bound of 5", ""]
    assert one.wait(probing(), {}, lambda _: [(5,)]) == {}


def test_nobody_asks_without_a_bound_or_again_at_once() -> None:
    asked: list[str] = []

    def query(sql: str) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return [(1,)]

    BusyWait("shop").wait(SourceLimits.of({}), {"active_sessions": "S"}, query)
    assert not asked
    one = BusyWait("shop")
    for _ in range(100):
        one.wait(probing(), {}, query)
    assert asked == ["SELECT n"]


def test_a_signal_that_never_clears_fails_all_by_name(looking_often: None) -> None:
    one = BusyWait("shop")
    for _ in range(2):
        with pytest.raises(SourceBusy, match=r"^shop: probe is 7, above its bound of 5: given up"):
            one.wait(probing(longest=1), {}, lambda _: [(7,)])
    time.sleep(0.02)
    assert one.wait(probing(longest=1), {}, lambda _: [(4,)]) == {}, "it may clear later"


@pytest.mark.parametrize("value", [None, "7", True, float("nan"), "", b"7"])
def test_a_probe_of_no_number_is_refused(looking_often: None, value: Any) -> None:
    with pytest.raises(InputError, match=r"shop: probe of its source_limits should be one number"):
        BusyWait("shop").wait(probing(), {}, lambda _: [(value,)])


@pytest.mark.parametrize("rows", [[], [(1,), (2,)], [(1, 2)], [()]])
def test_a_probe_of_no_single_value_is_refused(looking_often: None, rows: Any) -> None:
    with pytest.raises(InputError, match="should be one number"):
        BusyWait("shop").wait(probing(), {}, lambda _: rows)


def test_a_probe_that_fails_is_refused_but_a_lost_connection_is_not(looking_often: None) -> None:
    def failing(error: Exception) -> Any:
        def query(_: str) -> list[tuple[Any, ...]]:
            raise error

        return query

    with pytest.raises(InputError, match=r"probe .* cannot be read: .*no such table"):
        BusyWait("shop").wait(probing(), {}, failing(StatementFailed("db:5432", "no such table")))
    with pytest.raises(ConnectionFailed):
        BusyWait("shop").wait(probing(), {}, failing(ConnectionFailed("gone")))


def test_a_signal_that_the_login_may_not_see_says_who_lets_it(looking_often: None) -> None:
    limits = SourceLimits.of({"active_sessions": 3.0})
    with pytest.raises(InputError, match=r"active_sessions.* it is NULL .*pg_read_all_stats"):
        BusyWait("shop").wait(limits, {"active_sessions": "S"}, lambda _: [(None,)])


def test_transfers_with_other_bounds_do_not_wait_for_each_other() -> None:
    ones = [guards.guard("shop", probing(bound)) for bound in (1, 2, 1)]
    assert ones[0] is ones[2] is not ones[1]


def test_a_wait_begins_anew_after_others_were_given_up(
    looking_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = BusyWait("shop")
    with pytest.raises(SourceBusy):
        one.wait(probing(longest=1), {}, lambda _: [(7,)])
    time.sleep(0.1)
    values = answers(7, 7, 5)
    assert one.wait(probing(longest=1), {}, lambda _: [(next(values),)])


def test_every_limit_has_a_place() -> None:
    assert {*DEFAULTS} < {*NAMES} and len(NAMES) == len({*NAMES}) == 9


def test_nobody_is_held_by_a_look_that_takes_long() -> None:
    one, asked, answer = BusyWait("shop"), threading.Event(), threading.Event()

    def query(_: str) -> list[tuple[Any, ...]]:
        asked.set()
        assert answer.wait(60)
        return [(1,)]

    with ThreadPoolExecutor(2) as pool:
        looking = pool.submit(one.wait, probing(), {}, query)
        assert asked.wait(60)
        waiting = pool.submit(one.wait, probing(), {}, query)
        time.sleep(0.2)
        stop_waiting()
        try:
            with pytest.raises(TableferryError, match="interrupted"):
                waiting.result(20)
        finally:
            answer.set()
        assert looking.result() == {}
