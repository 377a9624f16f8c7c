"""Ways to log in to a SQL Server: what is declared, and what the tools are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableferry.pipelines.settings import server
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.bcp_process import running
from tableferry.resources.sqlserver.bcp_tool import TOOL, BcpTool, Encryption
from tableferry.resources.sqlserver.login import Login
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.source import require_bcp

BCP, FREEBCP = BcpTool("/opt/bin/bcp", "bcp"), BcpTool("/usr/bin/freebcp", "freebcp")
SETTINGS = ConnectionSettings("sqlserver", "db.example", 1433, "shop", None, "t0ken-t0ken")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("h/d?authentication=Entra", "should be one out of ActiveDirectoryDefault, ActiveDirecto"),
        ("h/d?trusted_connection=maybe", "should be yes or no"),
        ("h/d?trusted_connection=yes&authentication=ActiveDirectoryMSI", "two ways to log in"),
        ("u:p@h/d?trusted_connection=yes", "takes no password"),
        ("u@h/d?trusted_connection=yes", "takes no user"),
        ("h/d?authentication=ActiveDirectoryMSI&password_command=echo%20x", "takes no password"),
        ("u@h/d?authentication=ActiveDirectoryDefault", "takes no user"),
        ("h/d?authentication=ActiveDirectoryAccessToken", "a password_command that prints it"),
        ("u:p@h/d?authentication=ActiveDirectoryServicePrincipal", "or AZURE_TENANT_ID"),
        ("u:p@h/d?tenant=t", "tenant is for authentication=ActiveDirectoryServicePrincipal only"),
    ],
)
def test_what_contradicts_itself_is_refused(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_TENANT_ID", raising=False)
    with pytest.raises(InputError, match=says):
        SqlServerResource(url=f"mssql://{url}").login()


def test_options_fields_and_variables_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES", "mssql://an-id@h/db")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_AUTHENTICATION", "activedirectorymsi")
    by_variable = server("sales").login()  # type: ignore[attr-defined]
    by_url = SqlServerResource(url="mssql://an-id@h/db?authentication=ActiveDirectoryMSI").login()
    by_field = SqlServerResource(
        url="mssql://an-id@h/db", authentication="ActiveDirectoryMSI"
    ).login()
    assert {one.method for one in (by_variable, by_url, by_field)} == {"ActiveDirectoryMSI"}
    monkeypatch.delenv("TABLEFERRY_CONNECTION_SALES_AUTHENTICATION")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES", "mssql://h/db")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES_TRUSTED_CONNECTION", "yes")
    assert server("sales").login().kerberos  # type: ignore[attr-defined]
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SALES", "postgresql://h/db")
    with pytest.raises(InputError, match="_TRUSTED_CONNECTION: postgres has no trusted_conn"):
        server("sales")


def test_the_drivers_string_has_no_token_and_kerberos_no_user() -> None:
    token = "t0ken-t0ken"
    server = SqlServerResource(
        url="mssql://h/d?authentication=ActiveDirectoryAccessToken", password=token
    )
    assert token not in server.connection_string()
    assert "UID" not in server.connection_string()
    assert server.login().get_token().token == token
    kerberos = SqlServerResource(url="mssql://h/d?trusted_connection=yes").connection_string()
    assert "Trusted_Connection={yes}" in kerberos
    assert "PWD" not in kerberos


def test_a_service_principal_is_asked_for_its_token_by_ourselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver's bulk copy freezes with one that it is told by name."""
    monkeypatch.setenv("AZURE_TENANT_ID", "0-1-2")
    server = SqlServerResource(
        url="mssql://an-id:s3cret@h/d?authentication=ActiveDirectoryServicePrincipal"
    )
    assert server.login().token_provider is not None
    assert server.login().tenant == "0-1-2"
    for part in ("Authentication", "s3cret", "an-id"):
        assert part not in server.connection_string()


def test_bcp_logs_in_the_same_way_and_freebcp_by_passwords_only(tmp_path: Path) -> None:
    trusted, token = Login(SETTINGS, kerberos=True), Login(SETTINGS, "ActiveDirectoryAccessToken")
    file = tmp_path / "rows"
    for login, options in ((trusted, ["-T"]), (token, ["-G", "-P", f"{tmp_path}/token"])):
        command = BCP.command("[t]", "in", file, None, login, Encryption())
        at = command.index(options[0])
        assert command[at : at + len(options)] == options
        assert "-U" not in command
        with pytest.raises(InputError, match="by a password only; use Microsoft's bcp"):
            FREEBCP.command("[t]", "in", file, None, login, Encryption())


def test_bcp_reads_the_token_from_a_file_that_is_ours_alone(tmp_path: Path) -> None:
    program = tmp_path / "bcp"
    program.write_text(
        "#!/bin/sh\nstat -c %a token >&2\n"
        f"[ \"$(tr -d '\\0' < token)\" = {SETTINGS.given_password} ] && echo 3 rows copied.\n"
    )
    program.chmod(0o755)
    login = Login(SETTINGS, "ActiveDirectoryAccessToken")
    tool = BcpTool(str(program), "bcp")
    command = tool.command("[t]", "in", tmp_path / "f", None, login, Encryption())
    with (
        login.token_file(tmp_path / "token"),
        running(tool, command, login, tmp_path, task="t") as work,
    ):
        result = work.wait()
    assert (result.rows, result.errors.strip()) == (3, "600")
    assert not (tmp_path / "token").exists()
    assert SETTINGS.given_password not in " ".join(command)


def test_a_plan_sees_that_freebcp_could_not_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "freebcp"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(TOOL, str(program))
    server = SqlServerResource(url="mssql://h/d?trusted_connection=yes")
    require_bcp(server, "arrow")
    with pytest.raises(InputError, match="by a password only"):
        require_bcp(server, "text")
