"""The wire format text into and out of SQL Server: the same values as by Arrow, through freebcp."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.integration.test_types_postgres_sqlserver import CASES as INTO
from tests.integration.typed_servers import Case, PostgresEnd, SqlServerEnd, check_all

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("freebcp") is None and shutil.which("bcp") is None,
        reason="neither freebcp (Debian package freetds-bin) nor bcp is installed",
    ),
]


@pytest.fixture(scope="module")
def postgres(stack):
    end = PostgresEnd(stack.postgres_url)
    yield end
    end.connection.close()


@pytest.fixture(scope="module")
def sqlserver(stack):
    return SqlServerEnd(stack.sqlserver_url)


@pytest.mark.parametrize("case", INTO, ids=lambda case: case.name)
def test_every_value_arrives_exactly_or_is_refused(
    postgres: PostgresEnd, sqlserver: SqlServerEnd, case: Case
) -> None:
    check_all(postgres, sqlserver, replace(case, wires=("text",)), max_examples=2)
