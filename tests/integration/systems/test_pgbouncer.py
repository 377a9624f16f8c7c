"""PgBouncer in front of PostgreSQL: used where it keeps sessions, refused by name where not."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tableferry.resources.errors import ConnectionFailed
from tableferry.resources.postgres.arrow_session import pool as arrow_pool
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import _pool
from tableferry.resources.postgres.settings import SESSION
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.pgbouncer import pgbouncer
from tests.servers import Servers

pytestmark = pytest.mark.integration

ROWS = "INSERT INTO {t} SELECT i, 'note ' || i, i / 7.0, now() FROM generate_series(1, 400) i"
TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, note text, n numeric(12, 4), at timestamptz)"
IGNORED = {"ignore_startup_parameters": "options,extra_float_digits"}


def settings_of(url: str) -> dict[str, str]:
    """All settings of a session, but for what a client gives when it logs in."""
    own = ("application_name", "client_encoding", "in_hot_standby")
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT name, setting FROM pg_settings").fetchall()
        return {name: value for name, value in rows if name not in own and "." not in name}


@pytest.mark.parametrize("startup", [{}, IGNORED], ids=["refuses options", "drops options"])
def test_a_pool_of_sessions_is_read_and_written_by_every_wire(
    ferry: Callable[..., Ferry], stack: Servers, copies: str, startup: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pgbouncer(stack.postgres_url, pool_mode="session", **startup) as through:
        before = settings_of(through)
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
        _pool.close()
        arrow_pool.close()
        assert settings_of(through) == before


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with pgbouncer(stack.postgres_url, pool_mode=pool_mode, **IGNORED, **more) as through:
        before = settings_of(through)
        one = ferry("['clickhouse://warehouse.{t}']", TABLE, ROWS)
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through)
        one.declare("['clickhouse://warehouse.{t}']", source=f"there://public.{one.table}")
        started = time.monotonic()
        with pytest.raises(ConnectionFailed, match="pool_mode = session") as refused:
            one.run()
        assert time.monotonic() - started < 10
        assert not refused.value.transient
        with pytest.raises(ConnectionFailed, match="pool_mode = session"):
            PostgresResource(url=through).read_arrow("SELECT 1 AS n").__enter__()
        for _ in range(4):
            after = settings_of(through)
            assert {name: after[name] for name in SESSION if name in after} == {
                name: before[name] for name in SESSION if name in before
            }
            assert after["search_path"] == before["search_path"]


def test_a_pool_of_one_session_is_no_pool_of_transactions(stack: Servers) -> None:
    with pgbouncer(stack.postgres_url, pool_mode="session", default_pool_size="1") as through:
        source = PostgresResource(url=through)
        assert source.query("SELECT 1") == [(1,)]
        _pool.close()


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
