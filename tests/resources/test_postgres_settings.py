"""Connection parameters of PostgreSQL, and the settings of its sessions."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from tableferry.resources.connecting.address import parse_url
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.settings import FIRST, SESSION, conninfo, statements
from tableferry.resources.postgres.system import SYSTEM

URL = "postgresql://ann:s3cret@db:5433/shop"


def test_the_url_overrides_defaults_but_not_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c geqo=off")
    url = f"{URL}?connect_timeout=3&client_encoding=LATIN1"
    parameters = conninfo_to_dict(conninfo(parse_url(SYSTEM, url)))
    assert parameters["connect_timeout"] == "3" and parameters["application_name"] == "tableferry"
    assert parameters["client_encoding"] == "UTF8"
    assert "options" not in parameters, "libpq reads the environment itself"
    assert (parameters["host"], parameters["port"]) == ("db", "5433")


@pytest.mark.parametrize(
    ("query", "options"),
    [("", "-c geqo=off -c jit=off"), ("?options=-c%20a%3Db", "-c a=b -c jit=off")],
)
def test_startup_options_are_added(
    monkeypatch: pytest.MonkeyPatch, query: str, options: str
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c geqo=off")
    parameters = conninfo_to_dict(conninfo(parse_url(SYSTEM, URL + query), "-c jit=off"))
    assert parameters["options"] == options


def test_an_unknown_parameter_is_refused_without_the_password() -> None:
    with pytest.raises(InputError, match="sslmoed") as refused:
        conninfo(parse_url(SYSTEM, f"{URL}?sslmoed=require"))
    assert "s3cret" not in str(refused.value)


def test_a_session_sets_its_search_path_before_anything_else() -> None:
    first, settings = statements(SESSION)
    assert first == FIRST
    assert "('standard_conforming_strings', 'on')" in settings
    assert "remote_apply" in settings
