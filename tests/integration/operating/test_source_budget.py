"""What all runs together take of a source: connections and megabytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psutil
import psycopg
import pytest
from click.testing import CliRunner

from tableferry.assets.log.states import State
from tableferry.pipelines.cli import main
from tableferry.resources.connecting.gate import close_gates
from tableferry.resources.connecting.guard import CREDIT_SECONDS
from tests.integration.conftest import Ferry
from tests.integration.support.beside import beside
from tests.integration.support.crashing import Command, ask_sqlserver, crash, reopen

pytestmark = pytest.mark.integration

BOUNDED = "TABLEFERRY_CONNECTION_BOUNDED"
MAX_CONNECTIONS, MAX_RATE = f"{BOUNDED}_MAX_CONNECTIONS", f"{BOUNDED}_MAX_MB_PER_SECOND"
POOL = "source/bounded"
SOURCE = "bounded://public.{t}"
COPY = "['clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 4000) g",
)
Make = Callable[..., Ferry]


@pytest.fixture
def bounded(ferry: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a transfer whose source is a connection with a budget, and sessions of a name."""
    close_gates()  # the slots of the test before are no part of another budget

    def make(hops: str, *statements: str, most: str = "", rate: str = "", **settings: str) -> Ferry:
        one = ferry(hops, *statements)
        name = urlencode({"application_name": one.table})
        monkeypatch.setenv(BOUNDED, f"{one.stack.postgres_url}?{name}")
        monkeypatch.setenv(MAX_CONNECTIONS, most)
        monkeypatch.setenv(MAX_RATE, rate)
        one.declare(hops, source=SOURCE.format(t=one.table), **settings)
        return one

    return make


@contextmanager
def sampled(look: Callable[[], int]) -> Iterator[list[int]]:
    """Take a number again and again."""
    numbers: list[int] = []
    with beside(lambda: numbers.append(look()), 0.004):
        yield numbers


@contextmanager
def sessions_of(one: Ferry) -> Iterator[list[int]]:
    """How many sessions the source's server has of this connection, again and again."""
    with psycopg.connect(one.stack.postgres_url, autocommit=True) as connection:

        def look() -> int:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = %s AND backend_type = 'client backend'",
                [one.table],
            ).fetchone()
            assert row is not None
            return int(row[0])

        with sampled(look) as numbers:
            yield numbers


def slots_held(one: Ferry) -> int:
    return one.session.instance.event_log_storage.get_concurrency_info(POOL).active_slot_count


@pytest.mark.parametrize("most", [1, 3])
def test_a_run_within_few_connections(bounded: Make, most: int) -> None:
    settings = {"ranges": "{count: 3}", "parallel": "{export: 4, load: 2}"}
    one = bounded(COPY, *TABLE, most=str(most), reconcile="full_hash", **settings)
    plural = "" if most == 1 else "s"
    assert f"bounded: all runs together read by at most {most} connection{plural}" in (
        one.plan().notes
    )
    with sessions_of(one) as sessions:
        view = one.run()
        assert view.good, view.errors
        one.source("UPDATE {t} SET name = 'new' WHERE id = 5")
        assert len(one.moved(one.run())) == 1
    assert max(sessions) == most
    storage = one.session.instance.event_log_storage
    assert storage.get_concurrency_info(POOL).slot_count == most
    for _ in range(200):
        if not slots_held(one):
            break
        time.sleep(0.05)
    assert slots_held(one) == 0, "nothing is kept by a process that reads nothing"


def test_runs_at_once_share_the_connections_and_a_dead_one_gives_them_back(
    bounded: Make, tmp_path: Path
) -> None:
    one = bounded(COPY, *TABLE, most="2", ranges="{count: 3}", parallel="{export: 4, load: 2}")
    second, name = tmp_path / "transfers" / "u.yaml", f"{one.table}_u"
    second.write_text(
        f"transfer: {name}\nsource: {SOURCE.format(t=one.table)}\nkey: id\n"
        f"hops: ['sqlserver://dbo.{one.table}']\nranges: {{count: 3}}\n"
    )
    killed, *commands = (Command(tmp_path / folder) for folder in ("killed", "first", "second"))
    for folder in ("killed", "first", "second"):
        (tmp_path / folder).mkdir()
    with sessions_of(one) as sessions:
        crash(killed, one.table, "after_load")
        assert slots_held(one) == 2, "those of the dead process"
        for command, transfer in zip(commands, (one.table, name), strict=True):
            command.start("run", transfer)
        for command in commands:
            assert command.wait() == 0, command.output
    assert max(sessions) == 2
    reopen(one)
    assert slots_held(one) == 0
    assert ask_sqlserver(one, f"SELECT count(*) FROM dbo.{one.table}") == [(4000,)]


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_rows_are_read_at_the_pace_of_the_budget(bounded: Make, wire: str) -> None:
    table = "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL)"
    rows = "INSERT INTO {t} SELECT g, repeat('x', 996) FROM generate_series(1, 2400) g"
    hops = f"[{{{{to: 'clickhouse://warehouse.{{t}}', wire: {wire}}}}}]"
    one = bounded(hops, table, rows, rate="0.4", ranges="{count: 2}")
    time.sleep(CREDIT_SECONDS)  # of the test before
    started = time.monotonic()
    view = one.run()
    assert view.good, view.errors
    assert time.monotonic() - started >= 2400 * 1000 / 400_000
    assert {range_.state for range_ in view.ranges if range_.rows} == {State.COMMITTED}


def test_a_sqlserver_is_read_by_as_few(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_MAX_CONNECTIONS", "1")
    one = ferry(COPY)
    table = f"dbo.{one.table}"
    ask_sqlserver(one, f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, name nvarchar(20))")
    rows = ", ".join(f"({number}, 'name')" for number in range(900))
    ask_sqlserver(one, f"INSERT INTO {table} VALUES {rows}")
    one.declare(
        COPY,
        source=f"sqlserver://{table}",
        ranges="{count: 4}",
        parallel="{export: 4, load: 4}",
    )
    port = int(one.stack.sqlserver_url.rpartition("@")[2].partition("/")[0].rpartition(":")[2])
    command = Command(tmp_path)
    process = psutil.Process(command.start("run", one.table))

    def look() -> int:
        try:
            found = process.net_connections("tcp")
        except psutil.Error:
            return 0
        there = [each for each in found if each.raddr and each.raddr.port == port]
        return sum(each.status == psutil.CONN_ESTABLISHED for each in there)

    with sampled(look) as connections:
        assert command.wait() == 0, command.output
    assert max(connections) == 1
    ask_sqlserver(one, f"DROP TABLE {table}")


def test_tables_are_compared_within_few_connections(bounded: Make) -> None:
    one = bounded(COPY, *TABLE, most="2")
    first, second = SOURCE.format(t=one.table), f"{SOURCE.format(t=one.table)}_copy"
    one.source(
        "CREATE TABLE {t}_copy AS SELECT * FROM {t} WHERE id <> 7",
        "UPDATE {t}_copy SET amount = amount + 1 WHERE id % 3 = 0",
    )
    with sessions_of(one) as sessions:
        for level in ("checksum", "full_hash"):
            options = ["--key", "id", "--level", level, "--recheck", "1x0s"]
            found = CliRunner().invoke(main, ["compare", first, second, *options])
            assert found.exit_code == 1, found.output
            assert "1 row only in A, 1,333 rows differ" in found.output
    assert max(sessions) == 2, "one for each table"
    for _ in range(200):
        if not slots_held(one):
            break
        time.sleep(0.05)
    assert slots_held(one) == 0, "nothing is kept by a process that reads nothing"


def test_comparisons_at_once_share_the_connections(bounded: Make, tmp_path: Path) -> None:
    one = bounded(COPY, *TABLE, most="2")
    first, second = SOURCE.format(t=one.table), f"{SOURCE.format(t=one.table)}_copy"
    one.source("CREATE TABLE {t}_copy AS SELECT id, name, -amount AS amount FROM {t}")
    commands = [Command(tmp_path / str(number)) for number in range(3)]
    with sessions_of(one) as sessions:
        for number, command in enumerate(commands):
            (tmp_path / str(number)).mkdir()
            command.start("compare", first, second, "--key", "id")
        for command in commands:
            assert command.wait() == 1, command.output
    assert max(sessions) == 2


def test_rows_that_differ_are_sent_at_the_pace_of_the_budget(bounded: Make) -> None:
    table = "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL)"
    rows = "INSERT INTO {t} SELECT g, repeat('x', 996) FROM generate_series(1, 600) g"
    one = bounded(COPY, table, rows, rate="0.3")
    other = f"postgres:SELECT id, '' AS name FROM public.{one.table}"
    time.sleep(CREDIT_SECONDS)  # of the test before
    started = time.monotonic()
    found = CliRunner().invoke(main, ["compare", SOURCE.format(t=one.table), other])
    assert found.exit_code == 1, found.output
    assert "600 rows differ" in found.output
    assert time.monotonic() - started >= 600 * 1000 / 300_000


def test_one_connection_is_enough_for_a_table_and_too_few_for_two(bounded: Make) -> None:
    one = bounded(COPY, *TABLE, most="1")
    assert one.run().good
    table = SOURCE.format(t=one.table)
    with sessions_of(one) as sessions:
        arguments = [
            "compare",
            table,
            f"clickhouse://warehouse.{one.table}",
            "--level",
            "full_hash",
        ]
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 0, found.output
        refused = CliRunner().invoke(main, ["compare", table, table])
        assert refused.exit_code == 2
        assert "to compare two of its tables takes two, one for each" in refused.stderr
    assert max(sessions) == 1
