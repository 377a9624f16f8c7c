"""The budget of a source: how it is declared, and what a process may open within it."""

from __future__ import annotations

import threading
import time

import pytest

from tableferry.resources.connecting.gate import Gate
from tableferry.resources.connecting.guard import Pace, stop_waiting
from tableferry.resources.connecting.names import connection_names
from tableferry.resources.connecting.pool import ConnectionPool
from tableferry.resources.contract import limits
from tableferry.resources.contract.limits import Budget, Unshared
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.files.server import FilesServer
from tableferry.resources.postgres.server import PostgresServer

POSTGRES = "TABLEFERRY_POSTGRES"
URL = "postgresql://me@db/shop"


def test_the_environment_overrides_what_code_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    server = PostgresServer(url=URL, max_connections=5, max_mb_per_second=2.5)
    assert server.budget("postgres") == Budget(5, 2.5)
    monkeypatch.setenv(f"{POSTGRES}_MAX_CONNECTIONS", "2")
    assert server.budget("postgres") == Budget(2, 2.5)
    assert str(server.budget("postgres")) == "2 connections and 2.5 MB/s"
    assert server.budget("sales") == Budget(5, 2.5)
    assert PostgresServer(url=URL).budget("sales") is None
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_MAX_MB_PER_SECOND", "20")
    assert PostgresServer(url=URL).budget("sales") == Budget(None, 20.0)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1001", "٣", "9" * 5000])
def test_connections_that_are_no_number_are_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(f"{POSTGRES}_MAX_CONNECTIONS", value)
    with pytest.raises(InputError, match=f"^{POSTGRES}_MAX_CONNECTIONS .*1 to 1000.*{value[:9]}"):
        PostgresServer(url=URL).budget("postgres")


@pytest.mark.parametrize("value", ["0", "-1", "0.05", "fast", "nan", "inf"])
def test_rates_that_are_no_number_are_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(f"{POSTGRES}_MAX_MB_PER_SECOND", value)
    with pytest.raises(InputError, match=f"^{POSTGRES}_MAX_MB_PER_SECOND .*0.1.*'{value}'"):
        PostgresServer(url=URL).budget("postgres")


def test_a_budget_of_what_has_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="files cannot have a budget"):
        FilesServer(max_connections=2).budget("files")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALSE_MAX_CONNECTIONS", "2")
    with pytest.raises(InputError, match="TABLEFERRY_CONNECTION_SALSE is not set"):
        connection_names()
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALSE", URL)
    assert connection_names()[-1] == "salse"
    monkeypatch.setenv("TABLEFERRY_CONNECTION_POSTGRES_MAX_CONNECTIONS", "2")
    with pytest.raises(InputError, match="should be TABLEFERRY_POSTGRES_MAX_CONNECTIONS"):
        connection_names()


class Sessions:
    """Connections of nothing, and how many of them are open."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.changing = threading.Lock()
        self.pool = ConnectionPool[object](lambda _: True, lambda _: False, self.close)

    def connect(self) -> object:
        with self.changing:
            self.open += 1
            self.most = max(self.most, self.open)
        return object()

    def close(self, _: object) -> bool:
        with self.changing:
            self.open -= 1
        return True


def test_a_pooler_bounds_what_is_declared() -> None:
    pool = Budget(3, 2.5, lent=2)
    assert (pool.slots, pool.shared_slots, pool.of_pooler) == (2, 3, True)
    assert pool.rule == (
        "a pooler between lends 2 connections, so that ranges take turns; all runs together read "
        "by at most 3 connections and 2.5 MB/s"
    )
    assert not Budget(2, lent=2).of_pooler
    assert Budget(lent=1).rule == (
        "a pooler between lends 1 connection, so that ranges take turns, and are read each in a "
        "state of its own"
    )


class Shared:
    """The slots of a few processes, which are threads here."""

    def __init__(self, number: int) -> None:
        self.free, self.lock = number, threading.Lock()

    def __call__(self, connection: str, number: int) -> Shared:
        return self

    def request(self, count: int) -> bool:
        with self.lock:
            granted = count <= self.free
            self.free -= count * granted
            return granted

    def withdraw(self) -> None: ...

    def release(self, count: int) -> None:
        with self.lock:
            self.free += count

    def shared(self) -> tuple[int, bool]:
        return 4, True


@pytest.mark.parametrize(("slots", "processes"), [(1, 1), (2, 3), (3, 2), (5, 3)])
def test_snapshots_and_readers_never_exceed_the_slots_nor_wait_for_ever(
    slots: int, processes: int
) -> None:
    shared, sessions = Shared(slots), Sessions()
    pool = sessions.pool
    gates = [Gate(f"process {number}", Budget(slots)) for number in range(processes)]

    def read(within: Gate, kind: str) -> None:
        for _ in range(3):
            with pool.lent(kind, sessions.connect, within):
                time.sleep(0.001)

    def run(within: Gate) -> None:
        kinds = ("queries", "streams")
        if not within.budget.has_snapshots:
            for kind in kinds:
                read(within, kind)
            return
        for _ in range(2):
            read(within, "queries")
            with within.holding(), pool.lent("queries", sessions.connect, within):
                readers = [
                    threading.Thread(target=read, args=(within, kind), daemon=True)
                    for kind in kinds * 2
                ]
                for reader in readers:
                    reader.start()
                for reader in readers:
                    reader.join()

    runs = []
    for within in gates:
        within.sharing = shared
        runs += [threading.Thread(target=run, args=(within,), daemon=True) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join(120)
    assert not [each for each in runs if each.is_alive()]
    assert 1 <= sessions.most <= slots
    for within in gates:
        within.close()
    assert (sessions.open, shared.free) == (0, slots)


def test_a_snapshot_needs_a_second_connection() -> None:
    with pytest.raises(InputError, match="one connection only"), Gate("a", Budget(1)).holding():
        pass


def test_who_waits_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Gate("full", Budget(1, rate=0.1))
    full.acquire()
    errors: list[str] = []

    def wait(begin: object, *arguments: object) -> None:
        try:
            begin(*arguments)  # type: ignore[operator]
        except TableferryError as error:
            errors.append(str(error))

    waiting = [
        threading.Thread(target=wait, args=(full.acquire,)),
        threading.Thread(target=wait, args=(full.keep_pace, 60_000_000)),
    ]
    for each in waiting:
        each.start()
    time.sleep(0.1)
    stop_waiting()
    for each in waiting:
        each.join()
    assert len(errors) == 2
    full.release(ended=True)
    full.acquire()


class Taken(Unshared):
    """Slots that other processes keep for ever."""

    def request(self, count: int) -> bool:
        return False


def test_who_waits_for_other_processes_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_WAIT_SECONDS", "0.5")
    taken = Gate("shop", Budget(2))
    taken.sharing = lambda connection, number: Taken()
    with pytest.raises(TableferryError) as error:
        taken.acquire()
    assert str(error.value) == (
        "shop: none of the 2 connections of its budget came free: given up after 0.5 s, as "
        "TABLEFERRY_WAIT_SECONDS says"
    )


def test_the_slots_of_a_budget_that_has_grown_are_asked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def sharing(connection: str, number: int) -> Shared:
        made.append(number)
        return Shared(number)

    monkeypatch.setenv("TABLEFERRY_WAIT_SECONDS", "5")
    source = Gate("shop", Budget(1))
    source.sharing = sharing
    with source.permit(ended=True):
        pass
    source.budget = Budget(2)
    with source.holding():
        assert made == [1, 2]


def test_who_waits_for_threads_of_its_own_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_WAIT_SECONDS", "1")
    full = Gate("full", Budget(1))
    full.acquire()
    started = time.monotonic()
    threading.Timer(2.0, full.release, kwargs={"ended": True}).start()
    full.acquire()
    assert time.monotonic() - started >= 1, "longer than others are waited for"


def test_threads_share_a_pace_and_idle_time_is_no_credit() -> None:
    pace, started = Pace(), time.monotonic()
    pace.keep(0, 1e6, lambda: None)
    readers = [
        threading.Thread(target=pace.keep, args=(100_000, 1e6, lambda: None)) for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert time.monotonic() - started >= 0.3
    time.sleep(0.6)
    started = time.monotonic()
    pace.keep(200_000, 1e6, lambda: None)
    assert time.monotonic() - started >= 0.2


def test_a_rate_is_shared_by_the_slots_that_are_held() -> None:
    half = Gate("half", Budget(4, rate=1.0))
    half.sharing = Shared(2)
    with half.permit(), half.permit():
        half.keep_pace(0)  # the others are given time to notice
        started = time.monotonic()
        half.keep_pace(600_000)
    # less whatever has been slept too long before, which is credit of half a second at most
    assert time.monotonic() - started >= 0.7, "2 of 4 slots are others'"
    assert Budget(rate=1.0).slots == limits.USUAL_CONNECTIONS
