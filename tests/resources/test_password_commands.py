"""Passwords that a program prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tableferry.pipelines.settings import server
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import password_commands
from tableferry.resources.connecting.names import connection_names
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource

RESOURCES = (PostgresResource, SqlServerResource, ClickHouseResource)


@pytest.fixture
def counting(tmp_path: Path) -> str:
    """A program that prints another password each time."""
    script = tmp_path / "token of mine.py"
    script.write_text(
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "number = len(file.read_text()) if file.exists() else 0\n"
        "file.write_text('x' * (number + 1))\n"
        "print(f'secret-{number}')\n"
    )
    return f"{sys.executable} '{script}' {tmp_path / 'asked'}"


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_password_is_asked_for_kept_and_asked_for_anew(
    resource: type[PostgresResource], counting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = resource(host="h", password_command=counting)
    assert [endpoint.settings().password for _ in range(3)] == ["secret-0"] * 3
    assert not endpoint.settings().failed("login refused").transient, "it is new: it is wrong"
    assert endpoint.settings().password == "secret-1"
    monkeypatch.setattr(password_commands, "FRESH_SECONDS", 0.0)
    assert endpoint.settings().failed("login refused").transient, "another one may be right"
    assert endpoint.settings().password == "secret-2"
    always = resource(host="h", password_command=counting, password_command_seconds=0)
    assert [always.settings().password for _ in range(2)] == ["secret-3", "secret-4"]


def test_it_is_declared_by_a_field_an_option_or_a_variable(
    counting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://me@h/db?sslmode=require&password_command=echo%20abc&password_command_seconds=9"
    settings = PostgresResource(url=url).settings()
    assert (settings.password, dict(settings.options)) == ("abc", {"sslmode": "require"})
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES", "mssql://me@h/db")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_PASSWORD_COMMAND", counting)
    assert "sales" in connection_names()
    assert not any("password" in name for name in connection_names())
    assert server("sales").settings().password == "secret-0"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no-such-program --now", "no-such-program: no such file or directory"),
        ("sh -c 'echo expired >&2; exit 3'", "sh ended with 3: expired"),
        ("true", "should print the password in one line, and printed nothing"),
        ("printf 'a\\nb'", "printed more than that"),
        ("printf '\\377'", "printed what is not UTF-8 text"),
        ("echo 'open", "no closing quotation"),
    ],
)
def test_a_program_that_gives_no_password_is_named(command: str, says: str) -> None:
    with pytest.raises(InputError, match=f"^password_command: .*{says}"):
        PostgresResource(host="h", password_command=command).settings()


def test_a_password_beside_it_and_no_number_of_seconds_are_refused() -> None:
    with pytest.raises(InputError, match="the password is given as well"):
        PostgresResource(url="postgresql://u:p@h/d", password_command="echo x").settings()
    with pytest.raises(InputError, match="password_command_seconds should be a number of seconds"):
        PostgresResource(
            url="postgresql://u@h/d?password_command=echo%20x&password_command_seconds=soon"
        ).settings()


def test_it_is_not_printed(counting: str) -> None:
    endpoint = PostgresResource(host="h", user="me", password_command=counting)
    settings = endpoint.settings()
    for text in (repr(endpoint), str(endpoint), repr(settings), str(settings)):
        assert counting not in text and "secret-0" not in text
    assert "secret-0" not in str(settings.failed("password secret-0 refused"))
