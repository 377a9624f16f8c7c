"""The wire format text into and out of SQL Server: the same values as by Arrow, through freebcp."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.integration.moving.test_types_postgres_sqlserver import CASES as INTO
from tests.integration.moving.test_types_sqlserver_clickhouse import CASES as OUT_OF
from tests.integration.support.typed_servers import (
    Case,
    ClickHouseEnd,
    PostgresEnd,
    SqlServerEnd,
    check_all,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("freebcp") is None and shutil.which("bcp") is None,
        reason="neither freebcp (Debian package freetds-bin) nor bcp is installed",
    ),
]


NO_TEXT = ("varbinary", "binary", "image")
"""Types that travel out of SQL Server as Arrow only."""


@pytest.fixture(scope="module")
def postgres(stack):
    end = PostgresEnd(stack.postgres_url)
    yield end
    end.close()


@pytest.fixture(scope="module")
def sqlserver(stack):
    end = SqlServerEnd(stack.sqlserver_url)
    yield end
    end.close()


@pytest.fixture(scope="module")
def clickhouse(stack):
    end = ClickHouseEnd(stack.clickhouse_url)
    yield end
    end.close()


@pytest.mark.usefixtures("text_into_sqlserver")
@pytest.mark.parametrize("case", INTO, ids=lambda case: case.name)
def test_every_value_gets_into_sqlserver_or_is_refused(
    postgres: PostgresEnd, sqlserver: SqlServerEnd, case: Case
) -> None:
    check_all(postgres, sqlserver, replace(case, wires=("text",)), max_examples=2)


@pytest.mark.parametrize(
    "case",
    [case for case in OUT_OF if not case.type.startswith(NO_TEXT)],
    ids=lambda case: case.name,
)
def test_every_value_gets_out_of_sqlserver_or_is_refused(
    sqlserver: SqlServerEnd, clickhouse: ClickHouseEnd, case: Case
) -> None:
    check_all(sqlserver, clickhouse, replace(case, wires=("text",)), max_examples=2)
