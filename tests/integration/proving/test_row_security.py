"""PostgreSQL's row-level security: what it would hide is refused, unless that is declared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tableferry.resources.errors import InputError, RowsHidden, TableferryError
from tableferry.resources.postgres.resource import PostgresResource
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

_numbers = itertools.count(1)


@pytest.fixture
def tenant(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A role for which policies hold, and `there`, a connection with its login."""
    # sessions are kept, and a role that is made again is another one
    role, server = own(f"tenant{next(_numbers)}"), urlsplit(stack.postgres_url)
    looking.ask_postgres(
        stack.postgres_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'T3nant-pw'",
        f"CREATE SCHEMA {role} AUTHORIZATION {role}",
    )
    login = server._replace(netloc=f"{role}:T3nant-pw@{server.hostname}:{server.port}")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", login.geturl())
    yield role
    looking.ask_postgres(stack.postgres_url, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def hide(ferry: Ferry, table: str, role: str) -> None:
    """Let the role see, and write, the rows of even ids only."""
    ferry.source(
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY even ON {table} TO {role} USING (id % 2 = 0)",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}",
    )


def test_a_source_under_a_policy_is_refused_or_declared(
    ferry: Callable[..., Ferry], tenant: str
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, n int)",
        "INSERT INTO {t} SELECT i, i FROM generate_series(1, 10) i",
    )
    declared = {"source": f"there://public.{one.table}", "ranges": "{count: 2}"}
    hide(one, one.table, tenant)
    one.declare("['clickhouse://warehouse.{t}']", **declared)
    for ask in (one.plan, one.run):
        with pytest.raises(RowsHidden) as refused:
            ask()
        for word in (one.table, "there://public", "BYPASSRLS", "row_security: apply", tenant):
            assert word in str(refused.value)
    one.declare("['clickhouse://warehouse.{t}']", **declared, row_security="apply")
    view = one.run()
    assert view.good, view.errors
    rows = f"SELECT id FROM warehouse.{one.table} ORDER BY id"
    clickhouse = one.session.servers.endpoints["clickhouse"]
    assert [row[0] for row in clickhouse.query(rows)] == [2, 4, 6, 8, 10]
    said = "only rows that row-level security shows"
    assert any(said in note for note in (*view.notes, *one.plan().notes))
    assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}
    one.source(f"ALTER ROLE {tenant} BYPASSRLS")
    assert "source_changed" in {planned.reason for planned in one.plan().ranges}
    one.declare("['clickhouse://warehouse.{t}']", **declared)
    assert one.run().good
    assert len(clickhouse.query(rows)) == 10


def test_a_policy_below_a_view_is_found_when_it_is_read(
    ferry: Callable[..., Ferry], tenant: str, stack: Servers
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY)",
        "INSERT INTO {t} SELECT i FROM generate_series(1, 10) i",
    )
    hide(one, one.table, tenant)
    one.source(
        f"CREATE VIEW {tenant}.v WITH (security_invoker) AS SELECT * FROM {{t}}",
        f"GRANT SELECT ON {tenant}.v TO {tenant}",
    )
    one.declare("['clickhouse://warehouse.{t}']", source=f"there://{tenant}.v")
    with pytest.raises(TableferryError, match=f"{one.table}.*row-level security.*BYPASSRLS"):
        one.plan()


def test_a_target_under_a_policy_is_refused_or_declared(
    ferry: Callable[..., Ferry], tenant: str, stack: Servers
) -> None:
    hops = f"['there://{tenant}.{{t}}']"
    one = ferry(
        hops,
        "CREATE TABLE {t} (id int PRIMARY KEY)",
        "INSERT INTO {t} SELECT i FROM generate_series(2, 10, 2) i",
    )
    copy = f"{tenant}.{one.table}"
    one.source(f"CREATE TABLE {copy} (id int PRIMARY KEY)", f"INSERT INTO {copy} VALUES (3)")
    hide(one, copy, tenant)
    with pytest.raises(RowsHidden, match=rf"there://{copy}: .*BYPASSRLS"):
        one.run()
    assert one.rows(f"SELECT count(*) FROM {copy}") == [(1,)]
    one.declare(hops, row_security="apply")
    view = one.run()
    assert view.good, view.errors
    assert [row[0] for row in one.rows(f"SELECT id FROM {copy} ORDER BY id")] == [2, 3, 4, 6, 8, 10]
    # a shadow would have no policies
    one.source(f"ALTER TABLE {copy} OWNER TO {tenant}")
    one.declare(hops, write="swap")
    with pytest.raises(InputError, match="would lose its row-level security by a swap"):
        one.run(force=True)


def test_the_owner_sees_all(stack: Servers, ferry: Callable[..., Ferry], tenant: str) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id int PRIMARY KEY)")
    hide(one, one.table, tenant)
    assert one.plan().ranges
    one.source("ALTER TABLE {t} FORCE ROW LEVEL SECURITY", f"ALTER TABLE {{t}} OWNER TO {tenant}")
    shown = PostgresResource(url=stack.postgres_url).under_policies()
    assert shown.query("SHOW row_security") == [("on",)]
