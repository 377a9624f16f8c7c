"""What a run may do to its source: statements, snapshots, and waiting for others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from tableferry.assets.log.states import State
from tableferry.assets.planning import transfer_plan
from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.one import runner
from tableferry.resources.connecting import guard
from tableferry.resources.connecting.gate import close_gates
from tableferry.resources.contract.snapshots import SharedSnapshot
from tableferry.resources.digest import stretches
from tableferry.resources.errors import TableferryError
from tableferry.resources.postgres.server import PostgresServer
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import ask_clickhouse

pytestmark = pytest.mark.integration

COPY = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, at integer NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g % 7 FROM generate_series(1, 4000) g",
)
Make = Callable[..., Ferry]
ONE_BY_ONE = "{export: 1, load: 1}"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch, nothing_known: Callable[[], None]) -> None:
    """Has each statement read a range alone, until one has told how many it can."""
    nothing_known()
    for name in ("FIRST_VALUES", "FIRST_ROWS", "FEW"):
        monkeypatch.setattr(stretches, name, 1)
    monkeypatch.setattr(stretches, "GROWTH", 1)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent to PostgreSQL."""
    sent: list[str] = []
    query, read_text = PostgresServer.query, PostgresServer.read_text

    def noting_query(self: PostgresServer, sql: str, **how: Any) -> Any:
        sent.append(sql)
        return query(self, sql, **how)

    def noting_text(self: PostgresServer, sql: str, **how: Any) -> Any:
        sent.append(sql)
        return read_text(self, sql, **how)

    monkeypatch.setattr(PostgresServer, "query", noting_query)
    monkeypatch.setattr(PostgresServer, "read_text", noting_text)
    return sent


KEYS = {
    "integers": (
        "CREATE TABLE {t} (id integer PRIMARY KEY, v text)",
        "INSERT INTO {t} SELECT g * 3 - 2000, 'v' || g FROM generate_series(1, 3000) g",
    ),
    "texts": (
        'CREATE TABLE {t} (id text COLLATE "C" PRIMARY KEY, v text)',
        "INSERT INTO {t} SELECT chr(65 + g % 50) || md5(g::text), 'v' || g"
        " FROM generate_series(1, 3000) g ORDER BY 1",
    ),
    "uuids": (
        "CREATE TABLE {t} (id uuid PRIMARY KEY, v text)",
        "INSERT INTO {t} SELECT md5(g::text)::uuid, 'v' || g FROM generate_series(1, 3000) g"
        " ORDER BY 1",
    ),
    "composite": (
        "CREATE TABLE {t} (id integer, n integer, v text, PRIMARY KEY (id, n))",
        "INSERT INTO {t} SELECT g / 7, g, 'v' || g FROM generate_series(1, 3000) g",
    ),
    "nulls": (
        "CREATE TABLE {t} (id bigint, v text)",
        "INSERT INTO {t} SELECT nullif(g % 1000, 0), 'v' || g FROM generate_series(1, 3000) g"
        " ORDER BY 1",
        "CREATE INDEX ON {t} (id)",
    ),
    "infinite": (
        "CREATE TABLE {t} (id date, v text)",
        "INSERT INTO {t} SELECT date '2020-01-01' + g % 900, 'v' || g"
        " FROM generate_series(1, 3000) g ORDER BY 1",
        "CREATE INDEX ON {t} (id)",
        "INSERT INTO {t} VALUES ('infinity', 'last'), ('-infinity', 'first'), (NULL, 'none')",
    ),
}


@pytest.mark.parametrize("method", ["content", "row_version"])
@pytest.mark.parametrize("name", KEYS)
def test_stretches_have_the_fingerprints_of_one_statement(
    ferry: Make, name: str, method: str, cut: None, statements: list[str]
) -> None:
    settings = {"ranges": "{rows: 400}", "fingerprint": method}
    to = {"infinite": "['postgres://public.{t}_copy']"}.get(name, COPY)
    one = ferry(to, *KEYS[name], **settings)
    try:
        view = one.run()
        assert view.good, view.errors
        in_stretches = len([sql for sql in statements if "GROUP BY" in sql or "AS ferry" in sql])
        statements.clear()
        one.declare(to, **settings, source_limits="{longest_statement: none}")
        again = one.run()
        assert again.good and not one.moved(again), again.errors
        whole = len([sql for sql in statements if "GROUP BY" in sql or "AS ferry" in sql])
        assert in_stretches > whole
    finally:
        one.source("DROP TABLE IF EXISTS {t}_copy")


def test_a_table_without_a_key_is_cut_as_well(ferry: Make, cut: None) -> None:
    made = "CREATE TABLE {t} (v text, n integer)"
    filled = "INSERT INTO {t} SELECT repeat('v', 500), g FROM generate_series(1, 3000) g"
    settings = {"ranges": "{by: ctid, count: 6}", "key": ""}
    one = ferry(COPY, made, filled, **settings)
    assert one.run().good
    one.declare(COPY, **settings, source_limits="{longest_statement: none}")
    assert not one.moved(one.run())


def test_checks_in_stretches_say_the_same(ferry: Make, cut: None, statements: list[str]) -> None:
    one = ferry(COPY, *TABLE, ranges="{rows: 400}")
    assert one.run().good
    statements.clear()
    assert runner.check(one.session, one.table).good
    cut_into = len(statements)
    one.declare(COPY, ranges="{rows: 400}", source_limits="{longest_statement: none}")
    statements.clear()
    assert runner.check(one.session, one.table).good
    assert cut_into > len(statements)


@pytest.mark.parametrize("ranges", ["{rows: 250000}", "{rows: 400}", "{count: 4}"])
def test_a_small_table_takes_no_statement_more(
    ferry: Make, statements: list[str], ranges: str, nothing_known: Callable[[], None]
) -> None:
    numbers, others = [], []
    for limit in ("none", "3s"):
        nothing_known()
        one = ferry(COPY, *TABLE, ranges=ranges, source_limits=f"{{longest_statement: {limit}}}")
        statements.clear()
        assert one.run().good
        assert not one.moved(one.run())
        assert runner.check(one.session, one.table).good
        reading = [sql for sql in statements if f'"{one.table}"' in sql and "FROM" in sql]
        numbers.append(sorted(sql.replace(one.table, "t")[:150] for sql in reading))
        looks = [sql for sql in statements if sql not in reading]
        others.append(len(looks))
    assert numbers[0] == numbers[1]
    # how large a table of unknown ranges is, its catalog is asked once
    assert others[1] - others[0] <= 1


@pytest.fixture
def ageing(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The age of every snapshot that is held; it can be set."""
    age = [0.0]
    held = property(lambda self: age[0] if self._snapshot is not None else 0.0)
    monkeypatch.setattr(SharedSnapshot, "age", held)
    return age


def once_committed(one: Ferry, then: Callable[[], None]) -> Callable[[Progress], None]:
    """Hears of a run, and does something while its first range becomes visible."""
    done = threading.Event()

    def hear(event: Progress) -> None:
        if event.phase == "finalise" and not done.is_set():
            done.set()
            then()

    return hear


def test_an_old_snapshot_ends_between_ranges(ferry: Make, ageing: list[float]) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 4}", parallel=ONE_BY_ONE)

    def write() -> None:
        one.source("UPDATE {t} SET name = 'late'")
        ageing[0] = 10_000

    view = one.run(on_progress=once_committed(one, write))
    assert view.good, view.errors
    before = one.rows("SELECT pg_sleep(0)")
    assert before
    again = one.run()
    assert again.good and len(one.moved(again)) == 1, "the first was read before, the others after"
    assert runner.check(one.session, one.table, level="full_hash").good
    ages = {each.snapshot_seconds for each in view.ranges if each.rows}
    assert 10_000 in ages


@pytest.mark.parametrize("key", ["id", "at"])
def test_an_old_snapshot_ends_while_ranges_are_fingerprinted(
    ferry: Make, ageing: list[float], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    one = ferry(COPY, *TABLE, key=key, ranges="{count: 4}", parallel=ONE_BY_ONE)
    assert one.run().good
    one.source("UPDATE {t} SET name = 'new'")
    fingerprints_of, under = transfer_plan.fingerprints_of, list[str | None]()

    def fingerprinted(*arguments: Any, snapshot: str | None = None, **options: Any) -> Any:
        under.append(snapshot)
        if len(under) == 3:
            one.source("UPDATE {t} SET name = 'late'")
        return fingerprints_of(*arguments, snapshot=snapshot, **options)

    ageing[0] = 10_000
    with monkeypatch.context() as patch:
        patch.setattr(transfer_plan, "fingerprints_of", fingerprinted)
        patch.setattr(transfer_plan, "LEAST_ROWS_PER_SECOND", 0)
        view = one.run()
    assert view.good, view.errors
    ranges = len(view.ranges)
    assert len(under) == (ranges if key == "id" else 1), "rows may not leave ranges of the key"
    assert len({*under}) == len(under), "each part is read under another snapshot"
    again = one.run()
    assert again.good and not one.moved(again), "what was read is what was fingerprinted then"
    assert runner.check(one.session, one.table, level="full_hash").good


def test_a_table_that_changes_while_it_is_fingerprinted_under_two_snapshots_is_read_again(
    ferry: Make, ageing: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 4}", parallel=ONE_BY_ONE)
    assert one.run().good
    one.source("UPDATE {t} SET name = 'new'")
    fingerprints_of, parts = transfer_plan.fingerprints_of, list[int]()

    def fingerprinted(*arguments: Any, snapshot: str | None = None, **options: Any) -> Any:
        parts.append(len(arguments[3]))
        if len(parts) == 3:
            one.source(
                "TRUNCATE {t}", "INSERT INTO {t} SELECT g, 'other', 1 FROM generate_series(1, 50) g"
            )
        return fingerprints_of(*arguments, snapshot=snapshot, **options)

    monkeypatch.setattr(transfer_plan, "fingerprints_of", fingerprinted)
    monkeypatch.setattr(transfer_plan, "LEAST_ROWS_PER_SECOND", 0)
    ageing[0] = 10_000
    assert one.run().good
    assert len(parts) > 5, "from the beginning"
    assert ask_clickhouse(one, f"SELECT count() FROM warehouse.{one.table}") == [(50,)]
    assert runner.check(one.session, one.table, level="full_hash").good


def test_rows_that_move_to_an_earlier_range_meanwhile_are_moved_by_the_next_run(
    ferry: Make, ageing: list[float]
) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 4}", parallel=ONE_BY_ONE)

    def exchange() -> None:
        one.source("UPDATE {t} SET id = id - 5000 WHERE id > 3990", "DELETE FROM {t} WHERE id = 1")
        ageing[0] = 10_000

    view = one.run(on_progress=once_committed(one, exchange))
    assert view.good or all("changed" in str(each) for each in view.errors)
    for _ in range(2):
        again = one.run()
    assert again.good
    assert runner.check(one.session, one.table, level="full_hash").good


def test_ranges_that_rows_may_leave_are_read_in_one_state(
    ferry: Make, ageing: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    one = ferry(COPY, *TABLE, key="at", ranges="{count: 4}", parallel=ONE_BY_ONE)

    def write() -> None:
        one.source("UPDATE {t} SET at = 6 - at, name = 'late'")
        ageing[0] = 10_000

    with caplog.at_level(logging.WARNING):
        view = one.run(on_progress=once_committed(one, write))
    assert view.good, view.errors
    assert sum("may change range with 'at'" in each for each in caplog.messages) == 1
    assert len(one.moved(one.run())) > 1, "all were read before the update"
    assert runner.check(one.session, one.table, level="full_hash").good


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ranges": "{by: ctid, count: 4}", "key": ""}, "stored in another range"),
        ({"key": "at", "ranges": "{count: 4}"}, "may change range with 'at'"),
    ],
)
def test_a_declared_age_fails_by_name_where_one_state_is_needed(
    ferry: Make, ageing: list[float], settings: dict[str, str], why: str
) -> None:
    made = (
        TABLE
        if "at" in settings.values()
        else (TABLE[0].replace("integer PRIMARY KEY", "int"), TABLE[1])
    )
    limits = {"source_limits": "{oldest_snapshot: 5m}", "parallel": ONE_BY_ONE}
    one = ferry(COPY, *made, **settings, **limits)

    def age() -> None:
        ageing[0] = 10_000

    view = one.run(on_progress=once_committed(one, age))
    assert not view.good
    failed = [each for each in view.ranges if each.state is State.FAILED]
    assert failed and len(failed) < len(view.ranges)
    assert all("oldest_snapshot of 300 s" in str(each.error) for each in failed)
    assert all(why in str(each.error) for each in failed)
    ageing[0] = 0.0
    assert one.run().good
    assert runner.check(one.session, one.table, level="full_hash").good


@pytest.fixture
def probed(ferry: Make, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a transfer that waits while a number in a table of the source is above 5."""
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(guard, "_guards", {})
    made: list[Ferry] = []

    def make(number: str, longest: str = "20s", **settings: str) -> Ferry:
        signal = "CREATE TABLE {t}_signal AS SELECT " + number + " AS n"
        one = ferry(COPY, *TABLE, signal)
        made.append(one)
        limits = (
            f"{{probe: SELECT n FROM public.{one.table}_signal, probe_above: 5,"
            f" longest_wait: {longest}}}"
        )
        given = {"ranges": "{count: 4}", "parallel": ONE_BY_ONE, **settings}
        one.declare(COPY, source_limits=limits, **given)
        return one

    yield make
    for one in made:
        one.source("DROP TABLE IF EXISTS {t}_signal")


def later(seconds: float, do: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, do)
    timer.start()
    return timer


def test_a_run_waits_for_its_source_and_says_so(probed: Any) -> None:
    one = probed("9")
    heard: list[str] = []
    timer = later(1.5, lambda: one.source("UPDATE {t}_signal SET n = 1"))
    view = one.run(on_progress=lambda event: heard.append(event.phase))
    timer.join()
    assert view.good, view.errors
    # planning waits as well, before the first statement that reads the table
    assert all(each.source_seconds is not None for each in view.ranges)
    one.source("UPDATE {t}_signal SET n = 9", "UPDATE {t} SET name = 'new'")

    def clear() -> None:
        one.source("UPDATE {t}_signal SET n = 1")

    one.source("UPDATE {t}_signal SET n = 1")
    heard.clear()
    timers: list[threading.Timer] = []

    def busy() -> None:
        one.source("UPDATE {t}_signal SET n = 9")
        timers.append(later(1.5, clear))

    first = once_committed(one, busy)

    def both(event: Progress) -> None:
        heard.append(event.phase)
        first(event)

    view = one.run(on_progress=both)
    assert view.good, view.errors
    timers[0].join()
    assert sum(each.waited.get("probe", 0) for each in view.ranges) > 0.5
    status = runner.status(one.session, one.table)
    assert sum(each.waited.get("probe", 0) for each in status.ranges) > 0.5, "as recorded"


def test_a_source_that_stays_busy_fails_the_rest_by_name(probed: Any) -> None:
    one = probed("1", longest="1s")
    busy = once_committed(one, lambda: one.source("UPDATE {t}_signal SET n = 9"))
    began = time.monotonic()
    view = one.run(on_progress=busy)
    assert not view.good and time.monotonic() - began < 60
    good = [each for each in view.ranges if each.state is not State.FAILED]
    failed = [each for each in view.ranges if each.state is State.FAILED]
    assert good and failed
    assert all("probe is 9, above its bound of 5: given up" in str(e.error) for e in failed)
    one.source("UPDATE {t}_signal SET n = 1")
    guard._guards.clear()
    again = one.run()
    assert again.good and {each.range for each in failed} >= {*one.moved(again)}


def errors_of(one: Ferry) -> str:
    """What a run says that fails, before or in its ranges."""
    try:
        view = one.run()
    except TableferryError as error:
        return str(error)
    assert not view.good
    assert not [each for each in view.ranges if each.state.in_target]
    return " ".join(view.errors)


@pytest.mark.parametrize(
    ("number", "said"),
    [("NULL::int", "it is NULL"), ("'many'::text", "it is 'many'"), ("true", "it is True")],
)
def test_a_probe_of_no_number_fails_by_name(probed: Any, number: str, said: str) -> None:
    one = probed(number)
    assert f"probe of its source_limits should be one number; {said}" in errors_of(one)


def test_a_probe_that_fails_fails_by_name(probed: Any) -> None:
    one = probed("1")
    one.source("DROP TABLE {t}_signal")
    said = errors_of(one)
    assert "probe of its source_limits cannot be read" in said and "does not exist" in said


@pytest.mark.parametrize("most", [1, 2])
def test_a_run_of_few_connections_waits_without_a_deadlock(
    probed: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    close_gates()
    one = probed("1", parallel="{export: 4, load: 2}")
    name = urlencode({"application_name": one.table})
    monkeypatch.setenv("TABLEFERRY_CONNECTION_BOUNDED", f"{one.stack.postgres_url}?{name}")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_BOUNDED_MAX_CONNECTIONS", str(most))
    limits = (
        f"{{probe: SELECT n FROM public.{one.table}_signal, probe_above: 5, longest_wait: 20s}}"
    )
    one.declare(
        COPY,
        source=f"bounded://public.{one.table}",
        source_limits=limits,
        ranges="{count: 4}",
        parallel="{export: 4, load: 2}",
    )
    timers: list[threading.Timer] = []

    def busy() -> None:
        one.source("UPDATE {t}_signal SET n = 9")
        timers.append(later(1.0, lambda: one.source("UPDATE {t}_signal SET n = 1")))

    view = one.run(on_progress=once_committed(one, busy))
    assert view.good, view.errors
    timers[0].join()
    close_gates()


@pytest.mark.parametrize(
    "signal", ["active_sessions: 100000", "replica_lag: 1h", "oldest_xmin: 2000000000"]
)
def test_the_signals_of_the_server_can_be_read(ferry: Make, signal: str) -> None:
    one = ferry(COPY, *TABLE, source_limits=f"{{{signal}}}")
    assert one.run().good
