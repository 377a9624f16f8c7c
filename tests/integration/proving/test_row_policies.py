"""Policies of SQL Server and ClickHouse that hide rows: refused, unless that is declared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress

import mssql_python
import pytest

from tableferry.resources.contract.catalog import inspection_of
from tableferry.resources.errors import RowsHidden
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

HOPS = "['sqlserver://dbo.{t}']"
_numbers = itertools.count(1)


@pytest.fixture
def policy(mssql_url: str) -> Iterator[Callable[[str], str]]:
    """Has a policy let all rows of a table of `dbo` through, by a function of all ids."""
    if looking.ask_sqlserver(mssql_url, "SELECT CAST(SERVERPROPERTY('babelfish') AS int)")[0][0]:
        pytest.skip("Babelfish has no security policies")
    made: list[str] = []

    def make(table: str) -> str:
        name = own(f"policy{next(_numbers)}")
        # the stand-in looks at no function
        with suppress(mssql_python.Error):
            looking.ask_sqlserver(
                mssql_url,
                f"CREATE FUNCTION dbo.{name}_f (@id int) RETURNS TABLE WITH SCHEMABINDING AS "
                "RETURN SELECT 1 AS shown WHERE @id > 0",
            )
        looking.ask_sqlserver(
            mssql_url,
            f"CREATE SECURITY POLICY dbo.{name} ADD FILTER PREDICATE dbo.{name}_f(id) "
            f"ON dbo.{table} WITH (STATE = ON)",
        )
        made.append(name)
        return name

    yield make
    for name in made:
        drop(mssql_url, name)


def drop(url: str, policy: str) -> None:
    with suppress(mssql_python.Error):
        looking.ask_sqlserver(url, f"DROP SECURITY POLICY dbo.{policy}")
    with suppress(mssql_python.Error):
        looking.ask_sqlserver(url, f"DROP FUNCTION dbo.{policy}_f")


def test_a_security_policy_of_source_or_target_is_refused_or_declared(
    ferry: Callable[..., Ferry], policy: Callable[[str], str], stack: Servers
) -> None:
    one = ferry(
        HOPS,
        "CREATE TABLE {t} (id int PRIMARY KEY)",
        "INSERT INTO {t} SELECT i FROM generate_series(1, 10) i",
    )
    assert one.run().good
    name = policy(one.table)
    one.source("INSERT INTO {t} VALUES (11)")
    there = {"source": f"sqlserver://dbo.{one.table}"}
    through = "['clickhouse://warehouse.{t}']"
    for hops, declared in ((HOPS, {}), (through, there)):
        one.declare(hops, **declared)
        for ask in (one.plan, one.run):
            with pytest.raises(RowsHidden) as refused:
                ask()
            for word in (f"sqlserver://dbo.{one.table}", name, "row_security: apply", "STATE"):
                assert word in str(refused.value)
        one.declare(hops, **declared, row_security="apply")
        view = one.run()
        assert view.good, view.errors
        assert any("only rows that row-level security shows" in note for note in view.notes)
    table = TableRef("sqlserver", "dbo", one.table)
    server = SqlServerResource(url=stack.sqlserver_url)
    assert name in str(inspection_of(system("sqlserver")).withheld_from(server, table)[0])
    drop(stack.sqlserver_url, name)
    assert inspection_of(system("sqlserver")).withheld_from(server, table)[0] is None
