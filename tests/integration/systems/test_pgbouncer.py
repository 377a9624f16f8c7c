"""PgBouncer in front of PostgreSQL: used where it keeps sessions, refused by name where not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tableferry.resources.connecting.gate import close_gates
from tableferry.resources.contract.catalog import Use
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ConnectionFailed, InputError, StatementFailed
from tableferry.resources.postgres.arrow_session import pool as arrow_pool
from tableferry.resources.postgres.health import findings
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import _pool
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.pgbouncer import pgbouncer
from tests.servers import Servers

pytestmark = pytest.mark.integration

ROWS = "INSERT INTO {t} SELECT i, 'note ' || i, i / 7.0, now() FROM generate_series(1, 400) i"
TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, note text, n numeric(12, 4), at timestamptz)"
IGNORED = {"ignore_startup_parameters": "options,extra_float_digits"}
UNCLEANED = {"server_reset_query": ""}
LEFT = {
    "prepared statements": "SELECT count(*) FROM pg_prepared_statements",
    "temporary tables": "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
    "advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
    "AND pid = pg_backend_pid()",
    "channels": "SELECT count(*) FROM pg_listening_channels()",
}
MOST_SESSIONS = 12
"""More than any test makes a pool open."""


def state_of(connection: psycopg.Connection) -> dict[str, object]:
    """What another client finds in a session: settings, and what LEFT asks for.

    A client that names no application is shown the last one's by PgBouncer itself.
    """
    given = ("client_encoding", "in_hot_standby", "application_name")
    rows = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
    state: dict[str, object] = {
        name: value for name, value in rows if name not in given and "." not in name
    }
    for what, sql in LEFT.items():
        state[what] = connection.execute(sql.encode()).fetchall()[0][0]
    return state


def left_in(url: str) -> list[dict[str, object]]:
    """What other clients find in the sessions of a pool, all of which they take."""
    with ExitStack() as opened:
        clients = [
            opened.enter_context(closing(psycopg.connect(url, autocommit=True)))
            for _ in range(MOST_SESSIONS)
        ]
        return [state_of(client) for client in clients]


def alone_in(url: str) -> dict[str, object]:
    """What another client finds in the session that a pool lends it first."""
    with psycopg.connect(url, autocommit=True) as client:
        return state_of(client)


def only(states: list[dict[str, object]]) -> dict[str, object]:
    """The state that all sessions have."""
    for state in states:
        assert state == states[0]
    return states[0]


@pytest.mark.parametrize(
    "startup",
    [{}, IGNORED, UNCLEANED, {**IGNORED, **UNCLEANED}],
    ids=["refuses options", "drops options", "refuses, not reset", "drops, not reset"],
)
def test_a_pool_of_sessions_is_read_and_written_by_every_wire(
    ferry: Callable[..., Ferry], stack: Servers, copies: str, startup: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pgbouncer(stack.postgres_url, pool_mode="session", **startup) as through:
        before = only(left_in(through))
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through)
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        looking.ask_postgres(stack.postgres_url, f"CREATE SCHEMA {copies}")
        for wire in ("pgcopy", "text", "arrow"):
            names = f"{copies}.{one.table}_{wire}"
            into = f"{{to: 'clickhouse://warehouse.{one.table}', wire: {wire}}}"
            hops = f"[{{to: 'there://{names}', wire: {wire}}}"
            hops += "]" if wire == "pgcopy" else f", {into}, 'there://{names}_back']"
            one.declare(
                hops.replace("{", "{{").replace("}", "}}"), source=f"there://public.{one.table}"
            )
            view = one.run(force=True)
            assert view.good, (wire, view.errors)
            back = names if wire == "pgcopy" else f"{names}_back"
            assert one.rows(f"SELECT * FROM public.{{t}} EXCEPT SELECT * FROM {back}") == []
        assert only(left_in(through)) == before


@pytest.mark.parametrize("declared", ["source", "target"])
@pytest.mark.parametrize(
    ("pool_mode", "more"),
    [
        ("transaction", {}),
        ("transaction", {"default_pool_size": "1"}),
        ("transaction", {"server_round_robin": "1"}),
        ("transaction", {"server_round_robin": "1", "min_pool_size": "3"}),
        ("statement", {}),
    ],
)
def test_a_pool_of_transactions_is_refused_before_anything_is_set(
    ferry: Callable[..., Ferry], stack: Servers, pool_mode: str, more: dict[str, str],
    declared: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pgbouncer(stack.postgres_url, pool_mode=pool_mode, **IGNORED, **more) as through:
        before = only(left_in(through))
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through)
        if declared == "source":
            one.declare("['clickhouse://warehouse.{t}']", source=f"there://public.{one.table}")
        else:
            one.declare("['there://public.{t}_copy']")
        started = time.monotonic()
        with pytest.raises(ConnectionFailed, match="pool_mode = session") as refused:
            one.run()
        assert time.monotonic() - started < 60
        assert not refused.value.transient
        with pytest.raises(ConnectionFailed, match="pool_mode = session"):
            PostgresResource(url=through).read_arrow("SELECT 1 AS n").__enter__()
        assert only(left_in(through)) == before
        assert one.rows("SELECT to_regclass('public.{t}_copy')") == [(None,)]


def test_two_sessions_that_are_lent_in_turn_are_noticed(stack: Servers) -> None:
    """Each of two clients that ask by turns gets always the same one."""
    pool = {"pool_mode": "transaction", "default_pool_size": "2", "server_round_robin": "1"}
    with pgbouncer(stack.postgres_url, **pool, **IGNORED) as through:
        with psycopg.connect(through) as one, psycopg.connect(through) as other:
            one.execute("SELECT 1")
            other.execute("SELECT 1")
        for _ in range(2):
            with pytest.raises(ConnectionFailed, match="pool_mode = session"):
                PostgresResource(url=through).query("SELECT 1")


def test_a_pool_whose_mode_changes_is_named(stack: Servers) -> None:
    """ADBC asks for the types by statements that it prepares."""
    pool = {"pool_mode": "session", "default_pool_size": "3", "server_round_robin": "1"}
    with pgbouncer(stack.postgres_url, **pool, **IGNORED) as through:
        server = PostgresResource(url=through)
        assert server.query("SELECT 1") == [(1,)]
        place = urlsplit(through)._replace(path="/pgbouncer").geturl()
        with psycopg.connect(place, autocommit=True, prepare_threshold=None) as console:
            console.execute("SET pool_mode = 'transaction'")
        with pytest.raises(ConnectionFailed, match="pool_mode = session"):
            server.read_arrow("SELECT 1 AS n").__enter__()


def test_what_is_broken_off_leaves_clean_sessions(stack: Servers) -> None:
    """Statements that fail, reading that stops, and locks that are still held."""
    many = "SELECT g AS n, repeat('x', 99) AS x FROM generate_series(1, 3000000) g"
    failing = "SELECT 1 / (20000 - g) AS n FROM generate_series(1, 30000) g"
    with pgbouncer(stack.postgres_url, pool_mode="session", **UNCLEANED) as through:
        before = only(left_in(through))
        server = PostgresResource(url=through)
        for _ in range(3):
            with server.read_arrow(many, batch_rows=1000) as reader:
                assert reader.read_next_batch().num_rows
            with server.read_text(many) as chunks:
                assert next(chunks)
            with pytest.raises(StatementFailed), server.read_arrow(failing) as reader:
                reader.read_all()
            with pytest.raises(StatementFailed), server.read_text(failing) as chunks:
                list(chunks)
            for read in (server.query, server.execute):
                with pytest.raises(StatementFailed):
                    read(failing)
            with server.snapshot() as snapshot, pytest.raises(StatementFailed):
                server.query(failing, snapshot=snapshot)
            with closing(server.open_session()) as session:
                session.execute("SELECT pg_advisory_lock(4711)")
                session.execute("CREATE TEMP TABLE left_behind (n int)")
                session.execute("PREPARE left_behind AS SELECT 1")
                with pytest.raises(StatementFailed):
                    session.execute("SELECT 1 / 0")
            assert only(left_in(through)) == before


def test_a_pool_of_one_session_is_no_pool_of_transactions(stack: Servers) -> None:
    with pgbouncer(stack.postgres_url, pool_mode="session", default_pool_size="1") as through:
        source = PostgresResource(url=through)
        assert source.query("SELECT 1") == [(1,)]
        with source.read_arrow("SELECT 2 AS n") as reader:
            assert reader.read_all().num_rows == 1
        found = {one.subject: one for one in findings(source, Use())}
        assert found["snapshot"].says.startswith("the one session of the pool leaves none")
        assert all("does not say" not in one.says for one in found.values())
        table, held = TableRef("postgres", "public", "t"), HeldSnapshot("00000003-0000001B-1")
        alone = source.within_budget("there")
        with source_of(source.system).shared_snapshot(alone, table) as shared:
            assert shared is None
        with (
            pytest.raises(InputError, match="a snapshot needs a second one"),
            source_of(source.system).shared_snapshot(alone, table, held) as shared,
        ):
            shared.name()


def declare_through(one: Ferry, wire: str, **more: str) -> None:
    """Declare four ranges that are read through the pool, by a wire."""
    one.declare(
        f"[{{{{to: 'clickhouse://warehouse.{one.table}', wire: {wire}}}}}]",
        source=f"there://public.{one.table}",
        ranges="{count: 4}",
        **more,
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_readers_fit_a_small_pool_by_a_budget(
    ferry: Callable[..., Ferry], stack: Servers, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_gates()  # the slots of the test before are no part of another budget
    with pgbouncer(stack.postgres_url, pool_mode="session", default_pool_size=str(size)) as through:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE_MAX_CONNECTIONS", str(size))
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        for wire in ("text", "arrow"):
            declare_through(one, wire)
            started = time.monotonic()
            view = one.run(force=True)
            assert view.good, view.errors
            assert time.monotonic() - started < 60


@pytest.mark.parametrize(("size", "startup"), [(1, {}), (2, UNCLEANED), (3, IGNORED)])
def test_readers_fit_a_small_pool_by_themselves(
    ferry: Callable[..., Ferry], stack: Servers, size: int, startup: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A first load, a run after a change, and what others of the pool find then."""
    close_gates()
    pool = {"pool_mode": "session", "default_pool_size": str(size), **startup}
    with pgbouncer(stack.postgres_url, **pool) as through:
        before = alone_in(through)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", f"{through}?connect_timeout=30")
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        for wire in ("text", "arrow"):
            declare_through(one, wire, parallel="{export: 4, load: 4}")
            started = time.monotonic()
            view = one.run(force=True)
            assert view.good, view.errors
            one.source(f"UPDATE {{t}} SET note = '{wire}' WHERE id % 100 = 7")
            view = one.run()
            assert view.good, view.errors
            assert time.monotonic() - started < 60
            plural = "" if size == 1 else "s"
            rule = f"there: a pooler between lends {size} connection{plural}, so that ranges"
            for notes in (view.notes, one.plan().notes):
                assert sum(rule in note for note in notes) == 1, notes
        copied = f"SELECT count(), countIf(note = 'arrow') FROM warehouse.{one.table}"
        assert one.session.servers.endpoints["clickhouse"].query(copied) == [(400, 4)]
        close_gates()
        assert alone_in(through) == before


def test_a_command_leaves_clean_sessions_when_it_ends(
    ferry: Callable[..., Ferry], stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers stay open for as long as it runs."""
    with pgbouncer(stack.postgres_url, pool_mode="session", **UNCLEANED) as through:
        before = only(left_in(through))
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE_MAX_MB_PER_SECOND", "50")
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        for wire in ("text", "arrow"):
            declare_through(one, wire)
            command = [
                sys.executable,
                "-m",
                "tableferry.pipelines.cli",
                "run",
                one.table,
                "--force",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert only(left_in(through)) == before


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_target_takes_two_sessions_of_a_pool(
    ferry: Callable[..., Ferry], stack: Servers, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = {"pool_mode": "session", "default_pool_size": str(size)}
    with pgbouncer(stack.postgres_url, **pool) as through:
        before = alone_in(through)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", f"{through}?connect_timeout=30")
        one = ferry("['there://public.{t}_copy']", TABLE, ROWS)
        try:
            for wire in ("text", "arrow"):
                one.declare(
                    f"[{{{{to: 'there://public.{one.table}_copy', wire: {wire}}}}}]",
                    ranges="{count: 4}", parallel="{export: 4, load: 4}",
                )  # fmt: skip
                started = time.monotonic()
                view = one.run(force=True)
                assert time.monotonic() - started < 60
                if size == 1:
                    assert "lends 1 connection, and a target takes 2" in view.errors[0]
                    continue
                assert view.good, view.errors
                one.source(f"UPDATE {{t}} SET note = '{wire}' WHERE id % 100 = 7")
                view = one.run()
                assert view.good, view.errors
                assert one.rows("SELECT * FROM {t} EXCEPT SELECT * FROM {t}_copy") == []
            assert alone_in(through) == before
        finally:
            one.source("DROP TABLE IF EXISTS {t}_copy")


@pytest.mark.parametrize("declared", [{}, {"MAX_MB_PER_SECOND": "50"}, {"MAX_CONNECTIONS": "3"}])
@pytest.mark.parametrize("size", [3, 4])
def test_source_and_target_in_one_pool_take_four(
    ferry: Callable[..., Ferry], stack: Servers, size: int, declared: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    close_gates()
    pool = {"pool_mode": "session", "default_pool_size": str(size)}
    with pgbouncer(stack.postgres_url, **pool) as through:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", f"{through}?connect_timeout=30")
        for bound, value in declared.items():
            monkeypatch.setenv(f"TABLEFERRY_CONNECTION_THERE_{bound}", value)
        one = ferry("['there://public.{t}_copy']", TABLE, ROWS)
        hops = f"[{{{{to: 'there://public.{one.table}_copy', wire: arrow}}}}]"
        one.declare(hops, source=f"there://public.{one.table}", ranges="{count: 4}")
        try:
            started = time.monotonic()
            view = one.run()
            assert time.monotonic() - started < 60
            if size == 3:
                assert "source and target together take 4 at a time" in view.errors[0]
            else:
                assert view.good, view.errors
                assert one.rows("SELECT * FROM {t} EXCEPT SELECT * FROM {t}_copy") == []
        finally:
            one.source("DROP TABLE IF EXISTS {t}_copy")


def test_a_session_is_waited_for_as_long_as_a_connection(stack: Servers) -> None:
    pool = {"pool_mode": "session", "default_pool_size": "1"}
    with pgbouncer(stack.postgres_url, **pool) as through, psycopg.connect(through) as other:
        other.execute("SELECT 1")
        server = PostgresResource(url=f"{through}?connect_timeout=3")
        for read in (server.query, lambda sql: server.read_arrow(sql).__enter__()):
            started = time.monotonic()
            with pytest.raises(ConnectionFailed, match=r"no session within 3 s.*_MAX_CONN") as told:
                read("SELECT 1")
            assert 2.5 < time.monotonic() - started < 60
            assert told.value.transient, "others may end theirs"
        other.close()
        assert server.query("SELECT 1") == [(1,)]


def test_a_socket_is_named_by_its_folder(stack: Servers) -> None:
    with pgbouncer(stack.postgres_url, by_socket=True, pool_mode="session") as through:
        query = f"{through.partition('?')[2]}&port={urlsplit(through).port}"
        login = through.partition("//")[2].partition("@")[0]
        user, _, password = login.partition(":")
        database = urlsplit(through).path
        for url in (
            f"postgresql://{database}?{query}&user={user}&password={password}",
            f"postgresql://{login}@{quote(query[5:].partition('&')[0], safe='')}:"
            f"{urlsplit(through).port}{database}",
        ):
            source = PostgresResource(url=url)
            assert source.query("SELECT 1") == [(1,)]
            with source.read_arrow("SELECT 2 AS n") as reader:
                assert reader.read_all().to_pylist() == [{"n": 2}]
        _pool.close()
        arrow_pool.close()


def test_a_role_that_garbles_types_is_refused_behind_a_pooler_that_drops_options(
    stack: Servers,
) -> None:
    role = "garbled"
    with looking.postgres(stack.postgres_url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        connection.execute(f"ALTER ROLE {role} SET quote_all_identifiers = on".encode())
    user = stack.postgres_url.partition("//")[2].partition("@")[0]
    url = stack.postgres_url.replace(user, f"{role}:x")
    try:
        with pgbouncer(url, pool_mode="session", **IGNORED) as through:
            with pytest.raises(ConnectionFailed, match="quote_all_identifiers"):
                PostgresResource(url=through).read_arrow("SELECT 1 AS n").__enter__()
            assert PostgresResource(url=through).query("SELECT 1") == [(1,)]
            _pool.close()
        with PostgresResource(url=url).read_arrow("SELECT 1 AS n") as reader:
            assert reader.read_all().num_rows == 1
    finally:
        arrow_pool.close()
        _pool.close()
        looking.ask_postgres(stack.postgres_url, f"DROP ROLE {role}")
