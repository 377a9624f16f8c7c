"""A role whose password changes all the time, as the tokens of cloud databases do."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tableferry.resources.connecting import passwords, pool
from tests.integration.conftest import Ferry
from tests.integration.support.beside import beside, until
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

ROLE = own("rotated")
SESSIONS = f"FROM pg_stat_activity WHERE usename = '{ROLE}'"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'note ' || i FROM generate_series(1, 600) i",
)


@pytest.fixture
def admin(stack: Servers) -> Iterator[psycopg.Connection]:
    """A connection that may change the role's password; the role reads all tables."""
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN IN ROLE pg_read_all_data".encode())
        yield connection
        connection.execute(f"DROP ROLE {ROLE}".encode())


@pytest.mark.slow
def test_a_run_of_many_ranges_follows_a_password_that_changes(
    ferry: Callable[..., Ferry], stack: Servers, admin: psycopg.Connection, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    token, asked, numbers = tmp_path / "token", tmp_path / "asked", itertools.count()

    def change() -> None:
        # a login in between is refused, as with a token that has just expired
        password = f"token-{next(numbers)}"
        admin.execute(f"ALTER ROLE {ROLE} PASSWORD '{password}'".encode())
        token.write_text(password)

    parts = urlsplit(stack.postgres_url)
    url = f"postgresql://{ROLE}@{parts.hostname}:{parts.port}{parts.path}"
    monkeypatch.setenv("TABLEFERRY_CONNECTION_ROTATED", url)
    monkeypatch.setenv(
        "TABLEFERRY_CONNECTION_ROTATED_PASSWORD_COMMAND", f"sh -c 'tee -a {asked} < {token}'"
    )
    monkeypatch.setattr(passwords, "FRESH_SECONDS", 0.0)
    change()
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    for wire in ("arrow", "text"):
        hop = f"[{{{{to: 'clickhouse://warehouse.{one.table}', wire: {wire}}}}}]"
        one.declare(hop, source=f"rotated://public.{one.table}", ranges="{rows: 20}")
        # so that this process has to log in again: what it has used just now it does not test
        admin.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}".encode())
        until("their end", lambda: not admin.execute(f"SELECT pid {SESSIONS}".encode()).fetchall())
        time.sleep(pool.TRUSTED_SECONDS)
        change()
        with beside(change, 2.0):
            view = one.run(force=True)
        assert view.good, view.errors
        assert len(view.ranges) >= 30
    assert asked.read_text().count("token") > 1, "a refused password was asked for anew"
    assert quote(token.read_text()) not in str(view.json())


def test_a_password_that_stays_wrong_ends_the_run(
    ferry: Callable[..., Ferry], stack: Servers, admin: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    admin.execute(f"ALTER ROLE {ROLE} PASSWORD 'right'".encode())
    parts = urlsplit(stack.postgres_url)
    monkeypatch.setenv(
        "TABLEFERRY_CONNECTION_ROTATED",
        f"postgresql://{ROLE}@{parts.hostname}:{parts.port}{parts.path}"
        "?password_command=echo%20wrong-one",
    )
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    one.declare(f"['clickhouse://warehouse.{one.table}']", source=f"rotated://public.{one.table}")
    with pytest.raises(Exception, match="password authentication failed") as refused:
        one.run()
    assert "wrong-one" not in str(refused.value)
