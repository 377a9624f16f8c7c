"""Servers made of what other libraries connect with: addresses, logins, options, refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import URL, create_engine, make_url

import tableferry
from tableferry.resources.errors import InputError

SECRET = "s3c@r/t?"


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (
            tableferry.from_sqlalchemy(
                URL.create(
                    "postgresql+psycopg2", "me", SECRET, "db", 5433, "shop", {"sslmode": "require"}
                )
            ),
            ("postgres", "db", 5433, "shop", {"sslmode": "require"}),
        ),
        (
            tableferry.from_sqlalchemy(
                make_url("postgresql+psycopg://me@/shop?host=a:1&host=b:2").set(password=SECRET)
            ),
            ("postgres", "a", 1, "shop", {}),
        ),
        (
            tableferry.from_sqlalchemy(
                URL.create(
                    *("mssql+pyodbc", "me", SECRET, "erp", None, "dwh"),
                    {"driver": "ODBC Driver 18 for SQL Server", "TrustServerCertificate": "yes"},
                )
            ),
            ("sqlserver", "erp", 1433, "dwh", {"trust_server_certificate": "yes"}),
        ),
        (
            tableferry.from_psycopg(f"host=/run/pg dbname=shop user=me password='{SECRET}'"),
            ("postgres", "/run/pg", 5432, "shop", {}),
        ),
        (
            tableferry.from_psycopg(
                SimpleNamespace(
                    conninfo="postgresql://me@db/shop?connect_timeout=5",
                    kwargs={"password": SECRET, "autocommit": True},
                )
            ),
            ("postgres", "db", 5432, "shop", {"connect_timeout": "5"}),
        ),
        (
            tableferry.from_clickhouse(
                SimpleNamespace(host="ch", user="me", password=SECRET, database=None, secure=True)
            ),
            ("clickhouse", "ch", 8443, "default", {}),
        ),
    ],
)
def test_an_adapter_keeps_address_login_and_options(server: Any, expected: Any) -> None:
    settings = server.settings()
    found = (settings.system, settings.host, settings.port, settings.database, settings.options)
    assert (*found[:4], dict(found[4])) == expected
    assert (settings.user, settings.password) == ("me", SECRET)
    assert SECRET not in repr(server)


def test_a_variable_is_looked_up_when_the_server_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(dg.ConfigurableResource):  # type: ignore[type-arg]
        host: str
        user: str = "default"
        password: str = ""
        database: str | None = None
        secure: bool = False

    theirs = Theirs(host=dg.EnvVar("LAKE_HOST"), password=dg.EnvVar("LAKE_KEY"), database="dw")
    server = tableferry.from_clickhouse(theirs, http_port=8124)
    with pytest.raises(InputError, match="LAKE_HOST is not set"):
        server.settings()
    monkeypatch.setenv("LAKE_HOST", "lake")
    monkeypatch.setenv("LAKE_KEY", SECRET)
    settings = server.settings()
    assert (settings.host, settings.port, settings.password) == ("lake", 8124, SECRET)


@pytest.mark.parametrize(
    ("make", "given", "expected"),
    [
        (tableferry.from_clickhouse, object(), "object has no host"),
        (tableferry.from_psycopg, object(), "object is no connection, pool or string of psycopg"),
        (tableferry.from_psycopg, f"secret {SECRET}", "no connection string of psycopg"),
        (tableferry.from_sqlalchemy, f"secret {SECRET}", "no engine or URL of SQLAlchemy"),
        (tableferry.from_sqlalchemy, object(), "no engine or URL of SQLAlchemy"),
        (tableferry.from_sqlalchemy, create_engine("sqlite://"), "no system for sqlite://"),
        (tableferry.from_sqlalchemy, "mssql+pyodbc:///?odbc_connect=DSN", "odbc_connect: the"),
    ],
)
def test_what_is_none_of_them_is_refused_without_its_values(
    make: Any, given: object, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        make(given)
    assert SECRET not in str(caught.value) and caught.value.__cause__ is None
