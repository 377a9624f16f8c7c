"""Passwords that a program prints."""

from __future__ import annotations

import os
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_postgres.auth import AzureWifTokenProvider

from tableferry.pipelines.settings import server
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import passwords
from tableferry.resources.connecting.address import Server
from tableferry.resources.connecting.names import connection_names
from tableferry.resources.connecting.passwords import PasswordCommand
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.settings import conninfo
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.guide import blocks
from tests.integration.support.beside import until

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
    assert not _refused(endpoint).transient, "it is new: it is wrong"
    assert endpoint.settings().password == "secret-1"
    monkeypatch.setattr(passwords, "FRESH_SECONDS", 0.0)
    assert _refused(endpoint).transient, "another one may be right"
    assert endpoint.settings().password == "secret-2"
    always = resource(host="h", password_command=counting, password_command_seconds=0)
    assert [always.settings().password for _ in range(2)] == ["secret-3", "secret-4"]


def _refused(endpoint: Server) -> ConnectionFailed:
    settings = endpoint.settings()
    assert settings.password
    return settings.failed("login refused", refused=True)


def test_only_a_login_asks_and_only_a_refused_one_asks_anew(
    counting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "FRESH_SECONDS", 0.0)
    endpoint = PostgresResource(host="h", password_command=counting)
    asked = tmp_path / "asked"
    assert str(endpoint.settings()) == "postgres at h:5432"
    assert endpoint.settings().redact("text") == "text"
    assert endpoint.settings().for_pool == endpoint.settings().for_pool
    assert not asked.exists()
    settings = endpoint.settings()
    assert settings.password == "secret-0"
    assert settings.failed("no answer", transient=True).transient
    assert not settings.failed("database does not exist").transient
    assert endpoint.settings().password == "secret-0"
    assert len(asked.read_text()) == 1


def test_a_child_is_not_kept_waiting_by_a_thread_of_its_parent(counting: str) -> None:
    """A fork copies the lock that a thread holds while it asks, but not the thread."""
    endpoint = PostgresResource(host="h", password_command="sleep 1")
    with ThreadPoolExecutor(1) as other, suppress(InputError):
        asking = other.submit(lambda: endpoint.settings().password)
        time.sleep(0.3)
        if (child := os.fork()) == 0:
            command = PasswordCommand("sleep 1", "x")
            os._exit(0 if passwords._asking[command.key].acquire(timeout=0.1) else 1)
        assert os.waitpid(child, 0)[1] == 0
        asking.result()


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
        assert PostgresResource(host="h", password_command=command).settings().password


def test_what_it_has_printed_is_not_in_its_complaint() -> None:
    command = "sh -c 'echo t0ken-t0ken; echo asked with t0ken-t0ken >&2; exit 3'"
    with pytest.raises(InputError, match=r"sh ended with 3: asked with \*\*\*$"):
        assert PostgresResource(host="h", password_command=command).settings().password


@pytest.mark.parametrize("printed", ['{"token": "t0ken-t0ken"}', '{"token":"t0ken-t0ken"}'])
def test_a_token_within_json_is_not_in_its_complaint(tmp_path: Path, printed: str) -> None:
    script = tmp_path / "program"
    script.write_text(f"echo '{printed}'; echo asked with t0ken-t0ken >&2; exit 3")
    with pytest.raises(InputError, match=r"sh ended with 3: asked with \*\*\*$"):
        assert PostgresResource(host="h", password_command=f"sh {script}").settings().password


@pytest.mark.parametrize("output", ["", " >/dev/null 2>&1"])
def test_a_program_in_the_background_ends_with_it(tmp_path: Path, output: str) -> None:
    started = tmp_path / "started"
    command = f"sh -c 'sleep 1000{output} & echo $! > {started}; echo secret'"
    began = time.monotonic()
    assert PostgresResource(host="h", password_command=command).settings().password == "secret"
    assert time.monotonic() - began < 20
    process = Path("/proc", started.read_text().strip(), "stat")
    until("its end", lambda: not process.exists() or process.read_text().split()[2] == "Z")


def test_a_program_that_hangs_is_ended_with_those_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PATIENCE", 1.0)
    started = tmp_path / "started"
    command = f"sh -c 'sleep 1000 & echo $! > {started}; wait'"
    with pytest.raises(InputError, match="sh has not ended within 1 seconds"):
        assert PostgresResource(host="h", password_command=command).settings().password
    process = Path("/proc", started.read_text().strip(), "stat")
    until("its end", lambda: not process.exists() or process.read_text().split()[2] == "Z")


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
    assert settings.password == "secret-0"
    for text in (repr(endpoint), str(endpoint), repr(settings), str(settings)):
        assert counting not in text and "secret-0" not in text
    assert "secret-0" not in str(settings.failed("password secret-0 refused"))


class Tokens:
    """As Dagster's providers of the clouds' tokens are."""

    def __init__(self) -> None:
        self.given = 0

    def get_token(self) -> str:
        self.given += 1
        return f"t0ken-{self.given}"


def of_module() -> str:
    return "by-its-n4me"


def test_an_object_gives_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "FRESH_SECONDS", 0.0)
    first, second = Tokens(), Tokens()
    endpoint = PostgresResource(host="h", password_provider=first)
    another = PostgresResource(host="h", password_provider=second)
    assert [endpoint.settings().password for _ in range(2)] == ["t0ken-1"] * 2
    assert _refused(endpoint).transient
    assert endpoint.settings().password == "t0ken-2"
    assert (another.settings().password, second.given) == ("t0ken-1", 1), "each its own"
    assert endpoint.settings().for_pool != another.settings().for_pool
    assert "t0ken" not in str(endpoint.settings().failed("t0ken-1 and t0ken-2 refused"))
    called = PostgresResource(host="h", password_provider=lambda: "c4lled")
    assert called.settings().password == "c4lled"
    imported = PostgresResource(host="h", password_provider=f"{__name__}:of_module")
    assert imported.settings().password == "by-its-n4me"


def test_dagsters_own_providers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = AzureWifTokenProvider()
    monkeypatch.setattr(provider, "_fetch_token", lambda: ("azur3", time.time() + 900))
    endpoint = PostgresResource(host="h", password_provider=provider)
    seen: list[str | None] = []

    @dg.asset
    def rows(postgres: PostgresResource) -> None:
        seen.append(postgres.settings().password)

    assert dg.materialize([rows], resources={"postgres": endpoint}).success
    assert seen == ["azur3"]


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: None, "should give a text, and gave NoneType"),
        ("no.such.module:token", "ModuleNotFoundError"),
    ],
)
def test_an_object_that_gives_none_is_named(provider: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"^password_provider: .*{says}"):
        assert PostgresResource(host="h", password_provider=provider).settings().password
    with pytest.raises(InputError, match="password_command and password_provider"):
        PostgresResource(host="h", password_provider=provider, password_command="echo x").settings()


def test_the_guides_three_most_usual_logins_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the guide exports is what is used, and its programs get the words that it says."""
    logins = (block for block in blocks("security.md") if "ssh" not in block.text)
    said = [block for block in logins if "ferry doctor" in block.text][-3:]
    for program in ("aws", "vault"):
        (tmp_path / program).write_text('#!/bin/sh\necho "$*" | tr " " "+"\n')
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for command, _ in (command for block in said for command in block.commands[:-1]):
        name, _, value = command.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, *shlex.split(value))
    login = server("sqlserver").login()  # type: ignore[attr-defined]
    assert (login.method, login.settings.user) == ("ActiveDirectoryMSI", None)
    assert login.settings.address == "sqlserver at shop.database.windows.net:1433"
    assert server("sqlserver").encryption().encrypt == "yes"  # type: ignore[attr-defined]
    rds, cloud = (server(name).settings() for name in ("postgres", "clickhouse"))  # type: ignore[attr-defined]
    assert str(rds.password).startswith("rds+generate-db-auth-token+--hostname+shop.rds.example")
    assert "sslmode=verify-full" in conninfo(rds)
    assert cloud.password == "kv+get+-field=password+secret/clickhouse"
    assert (cloud.options["secure"], cloud.port, cloud.user) == ("yes", 8443, "ferry")
