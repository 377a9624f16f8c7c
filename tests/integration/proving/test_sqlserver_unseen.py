"""What SQL Server does not show a login without VIEW DEFINITION is unknown, and not absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tableferry.resources.contract.catalog import Use, inspection_of
from tableferry.resources.errors import RowsHidden
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.servers import SQLSERVER, named, own, shared_stack

local_postgres = pytest.importorskip("tableferry_local.postgres")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(named(SQLSERVER)), reason="the stand-in has such a login"),
]

HOPS = "['sqlserver://dbo.{t}']"
GRANT = "GRANT VIEW DEFINITION TO"
ROWS = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' FROM generate_series(1, 10) i",
)


@pytest.fixture
def limited(mssql_url: str) -> str:
    """The URL of a login that has rights on `dbo` alone."""
    at = urlsplit(mssql_url)
    return at._replace(netloc=at.netloc.replace("sa:", "sa_limited:", 1)).geturl()


@pytest.fixture
def lines(mssql_url: str) -> Iterator[Callable[[str], str]]:
    """Has a table of another schema refer to one of `dbo`, and follow its deletions."""
    schema = own("unseen_sales")
    looking.ask_sqlserver(mssql_url, f"CREATE SCHEMA {schema}")

    def make(table: str) -> str:
        for sql in (
            f"CREATE TABLE {schema}.lines (line int PRIMARY KEY, id int NOT NULL)",
            f"INSERT INTO {schema}.lines SELECT id, id FROM dbo.{table}",
        ):
            looking.ask_sqlserver(mssql_url, sql)
        # of the PostgreSQL behind the stand-in
        url = shared_stack().postgres_url.rpartition("/")[0]
        looking.ask_postgres(
            f"{url}/{local_postgres.SQLSERVER_DATABASE}",
            f'ALTER TABLE "tableferry.{schema}".lines ADD FOREIGN KEY (id) '
            f'REFERENCES "tableferry.dbo".{table} (id) ON DELETE CASCADE',
        )
        return f"{schema}.lines"

    yield make
    for sql in (f"DROP TABLE IF EXISTS {schema}.lines", f"DROP SCHEMA {schema}"):
        looking.ask_sqlserver(mssql_url, sql)


@pytest.mark.parametrize("write", ["replace", "upsert", "swap"])
def test_foreign_keys_of_others_refuse_what_they_may_follow(
    ferry: Callable[..., Ferry],
    lines: Callable[[str], str],
    mssql_url: str,
    limited: str,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
) -> None:
    one = ferry(HOPS, *ROWS, write=write)
    assert one.run().good
    referring = lines(one.table)
    one.source("UPDATE {t} SET note = 'new'")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", limited)
    one.declare(HOPS, write=write, row_security="apply")
    refused = command("run", one.table)
    assert refused.exit_code, refused.output
    for word in ("foreign keys of other tables", "sa_limited", GRANT):
        assert word in refused.output
    assert looking.ask_sqlserver(mssql_url, f"SELECT COUNT(*) FROM {referring}") == [(10,)]
    looking.ask_sqlserver(mssql_url, f"DROP TABLE {referring}")
    one.declare(HOPS, write=write, row_security="apply")
    assert one.run().good, "nothing refers to it"


def test_security_policies_that_are_not_shown_are_not_taken_for_none(
    ferry: Callable[..., Ferry], limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *ROWS)
    assert one.run().good
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", limited)
    there = {"source": f"sqlserver://dbo.{one.table}"}
    for hops, declared in ((HOPS, {}), ("['clickhouse://warehouse.{t}']", there)):
        one.declare(hops, **declared)
        for ask in (one.plan, one.run):
            with pytest.raises(RowsHidden, match=r"sa_limited.*GRANT VIEW DEFINITION TO"):
                ask()
    one.declare("['clickhouse://warehouse.{t}']", **there, row_security="apply")
    assert one.run().good


def test_what_is_made_anew_may_have_permissions_that_are_not_shown(
    ferry: Callable[..., Ferry], limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *ROWS)
    assert one.run().good
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", limited)
    one.declare(HOPS, row_security="apply")
    refused = command("run", one.table, "--recreate")
    assert refused.exit_code == 2, refused.output
    assert "may not see those of others" in refused.output and GRANT in refused.output


def test_a_default_that_is_not_shown_is_not_taken_for_none(
    ferry: Callable[..., Ferry], mssql_url: str, limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, "CREATE TABLE {t} (id int PRIMARY KEY, a int NOT NULL DEFAULT 7)")
    looking.ask_sqlserver(
        mssql_url,
        f"CREATE TABLE dbo.{one.table} (id int NOT NULL PRIMARY KEY, a int NOT NULL DEFAULT 7, "
        "more int NOT NULL DEFAULT 1, version rowversion)",
    )
    sides = (f"postgres://public.{one.table}", f"sqlserver://dbo.{one.table}")
    exclude = ("--exclude", "more,version")
    compared = command("compare", *sides, "--schema", *exclude)
    assert compared.exit_code == 0, compared.output
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", limited)
    compared = command("compare", *sides, "--schema", *exclude)
    assert "not shown to this login" in compared.output, compared.output
    one.source("INSERT INTO {t} VALUES (1, 2)")
    one.declare(HOPS, row_security="apply")
    assert one.run().good, "the server fills the others"


def test_the_doctor_asks_for_the_right(limited: str) -> None:
    table = TableRef("sqlserver", "dbo", "t")
    for use in (Use(reads=(table,)), Use(writes=(table,))):
        server = SqlServerResource(url=limited)
        found = inspection_of(system("sqlserver")).health(server, use)
        do = [do for one in found if one.subject == "privileges" for do in one.do]
        assert f'{GRANT} "sa_limited";' in do
