"""Which names servers have."""

from __future__ import annotations

import pytest

from tableferry.resources.connecting.names import (
    connection_names,
    set_variable,
    system_of,
    table_of,
    url_variable,
)
from tableferry.resources.errors import InputError


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_PG", "postgresql://me:s3cret@db/sales")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_lake", "https://me:s3cret@ch/warehouse")


def test_the_scheme_says_which_system_it_is() -> None:
    assert (system_of("sales_pg").name, system_of("lake").name) == ("postgres", "clickhouse")
    assert connection_names()[-2:] == ("sales_pg", "lake")
    assert url_variable("sqlserver") == "TABLEFERRY_SQLSERVER_URL"
    assert set_variable("lake") == "TABLEFERRY_CONNECTION_lake"


@pytest.mark.parametrize("text", ["sales_pg://public.orders", "Sales_PG://public.orders"])
def test_a_table_keeps_its_connection(text: str) -> None:
    table = table_of(text)
    assert (table.system_name, table.connection) == ("postgres", "sales_pg")
    assert str(table) == "sales_pg://public.orders"
    assert table_of(str(table)) == table
    assert table != table_of("postgres://public.orders")


def test_an_unknown_name_is_refused_with_the_variable_to_set() -> None:
    with pytest.raises(InputError, match="set TABLEFERRY_CONNECTION_HR to the URL of its server"):
        table_of("hr://public.people")


@pytest.mark.parametrize(
    ("variable", "url", "message"),
    [
        (
            "TABLEFERRY_CONNECTION_POSTGRES",
            "postgresql://db/x",
            "should be TABLEFERRY_POSTGRES_URL",
        ),
        ("TABLEFERRY_CONNECTION_2ND", "postgresql://db/x", "a letter first"),
    ],
)
def test_names_that_no_reference_can_have(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str, message: str
) -> None:
    monkeypatch.setenv(variable, url)
    with pytest.raises(InputError, match=message):
        connection_names()


def test_another_scheme_is_refused_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_ERP", "oracle://me:s3cret@db/x")
    with pytest.raises(InputError, match="TABLEFERRY_CONNECTION_ERP should be a URL") as refused:
        table_of("erp://public.orders")
    assert "s3cret" not in str(refused.value)
