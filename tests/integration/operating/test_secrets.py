"""What failing runs leave behind: events, logs, reports, command lines, tables; no password."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import sql

from tableferry_local.sqlserver.wire.federated import issue
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, staging_tables
from tests.servers import SQLSERVER, Servers, named, own

FREEBCP = shutil.which("freebcp")
pytestmark = pytest.mark.integration

ROLE = own("secretive")
PASSWORD = "p@ss:w0rd/%'\"#? {x}"
"""With all that URLs, SQL, JSON and connection strings write in another way."""

WRONG = "wr0ng-w0rd"

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, day date)",
    "INSERT INTO {t} SELECT g, '2020-01-01' FROM generate_series(1, 40) g",
    "UPDATE {t} SET day = 'infinity' WHERE id = 33",
)
RANGES = "{bounds: [11, 21, 31]}"


def spellings(password: str, user: str) -> set[bytes]:
    """The ways in which a password may stand somewhere."""
    doubled = (password.replace("'", "''"), password.replace("}", "}}"))
    texts = {password, quote(password), quote(password, safe=""), repr(password)[1:-1], *doubled}
    texts |= {json.dumps(one)[1:-1] for one in (*texts, json.dumps(password)[1:-1])}
    texts.add(base64.b64encode(f"{user}:{password}".encode()).decode())
    return {one.encode() for one in texts} | {password.encode("utf-16-le")}


@pytest.fixture
def source_url(stack: Servers) -> Iterator[str]:
    """The source's URL for a role whose password is hard to write."""
    role = sql.Identifier(ROLE)
    with psycopg.connect(stack.postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, PASSWORD))
        admin.execute(sql.SQL("GRANT pg_read_all_data TO {}").format(role))
        at = urlsplit(stack.postgres_url)
        login = f"{ROLE}:{quote(PASSWORD, safe='')}@{at.hostname}:{at.port}"
        yield at._replace(netloc=login).geturl()
        admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))


def test_what_failing_runs_leave_has_no_password(
    ferry: Callable[..., Ferry],
    stack: Servers,
    source_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    left = tmp_path / "left"
    left.mkdir()
    by_text = FREEBCP is not None
    if named(SQLSERVER) and by_text:
        by_text = looking.no_text_into_sqlserver(stack) is None
    wire = "text" if by_text else "arrow"
    one = ferry(
        f"[{{{{to: 'sqlserver://dbo.{{t}}', wire: {wire}}}}}, 'clickhouse://warehouse.{{t}}']",
        *TABLE,
        ranges=RANGES,
    )
    one.session.instance.dispose()
    urls = stack.environment() | {"TABLEFERRY_POSTGRES_URL": source_url}
    for name, url in urls.items():
        path = tmp_path / f"{name}.secret"
        path.touch(mode=0o600)
        path.write_text(f"{url}\n")
        monkeypatch.delenv(name)
        monkeypatch.setenv(f"{name}_FILE", str(path))
    monkeypatch.setenv("TABLEFERRY_ARTIFACTS", str(left / "artifacts"))
    wrapper(left, tmp_path, monkeypatch)
    command = Command(tmp_path)

    def run(*arguments: str, code: int, **environment: str) -> str:
        found = command.run(*arguments, **environment)
        with (left / "said").open("a") as said:
            said.write(f"{arguments}\n{command.output}")
        assert found == code, command.output
        return command.output

    def elsewhere(name: str, url: str) -> dict[str, str]:
        return {f"{name}_FILE": "", name: url}

    table = one.table
    assert "infinity" in run("run", table, "-v", code=1)
    crashed = run("run", table, "--force", code=-9, TABLEFERRY_CRASH_AT="after_load")
    tables = [*staging_tables(one, "sqlserver"), *staging_tables(one, "clickhouse")]
    assert tables, crashed
    if by_text:
        for kind, code in (("leaks", 1), ("leaks-at-once", 2)):
            (left / kind).touch()
            assert "***" in run("run", table, "-v", "--force", "--hop", "1", code=code)
            (left / kind).unlink()
    for name, url in urls.items():
        at = urlsplit(url)
        login = f"{at.username}:{quote(str(at.password), safe='')}"
        gone = at._replace(netloc=f"{login}@127.0.0.1:1").geturl()
        wrong = at._replace(netloc=f"{at.username}:{WRONG}@{at.hostname}:{at.port}").geturl()
        bad = url.replace("://", "://x/", 1)
        for other in (gone, wrong, bad):
            found = command.run(
                "run", table, "--force", "--log-level", "debug", **elsewhere(name, other)
            )
            assert found in (1, 2), command.output
            assert "Traceback" not in command.output
            with (left / "said").open("a") as said:
                said.write(command.output)
        let_in = name == "TABLEFERRY_SQLSERVER_URL" and looking.lets_anybody_in(url)
        run("doctor", code=0 if let_in else 1, **elsewhere(name, wrong))
    run("plan", table, "--json", code=0)
    run("run", table, "--force", "--dry-run", code=0)
    run("status", table, "--json", code=1)
    for kind in ("html", "json", "md"):
        run("report", table, "--format", kind, "--output", str(left / f"report.{kind}"), code=1)

    places = [left, Path(tmp_path / "dagster"), one.folder]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    files.append(Path(tmp_path / "output"))
    haystack = {str(path): path.read_bytes() for path in files}
    haystack["tables"] = "\n".join(tables).encode()
    for part, where in ((table, "said"), (table, "report.html"), ("infinity", "runs")):
        assert any(part.encode() in data for name, data in haystack.items() if where in name), where
    if by_text:
        assert b"freebcp" in haystack[str(left / "processes")]
    for url in (*urls.values(), source_url.replace(quote(PASSWORD, safe=""), WRONG)):
        at = urlsplit(url)
        password = PASSWORD if at.username == ROLE and WRONG not in url else str(at.password)
        for spelling in spellings(password, str(at.username)):
            found = [name for name, data in haystack.items() if spelling in data]
            assert not found, f"{at.scheme}: {spelling!r}"


def wrapper(left: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a script before freebcp that notes the processes, and tells the password if it should:
    at once, or not to what each process tries first, before it believes the server."""
    if FREEBCP is None:
        return
    path = folder / "freebcp-wrapper"
    path.write_text(
        "#!/bin/sh\n"
        f"cat /proc/$$/cmdline /proc/$$/environ /proc/$PPID/cmdline freetds.conf "
        f">> {left}/processes\n"
        f"if [ -e {left}/leaks ] && ! mkdir {left}/asked-$PPID 2>/dev/null; then leak=1; fi\n"
        f"if [ -e {left}/leaks-at-once ]; then leak=1; fi\n"
        'if [ "$leak" ]; then read p; echo "Msg 1, Level 16: $p" >&2; exit 1; fi\n'
        f'exec {FREEBCP} "$@"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("TABLEFERRY_BCP", str(path))


@pytest.mark.skipif(bool(named(SQLSERVER)), reason="the stand-in alone takes tokens of ours")
def test_what_programs_print_is_left_nowhere(
    ferry: Callable[..., Ferry],
    stack: Servers,
    source_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passwords and tokens of programs, that are good, and that have expired."""
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        *TABLE,
        ranges=RANGES,
    )
    one.session.instance.dispose()
    urls = stack.environment() | {"TABLEFERRY_POSTGRES_URL": source_url}
    at = {name: urlsplit(url) for name, url in urls.items()}
    server = at["TABLEFERRY_SQLSERVER_URL"]
    good, stale = (issue(str(server.username), str(server.password), age) for age in (3600, -5))
    printed = {
        "TABLEFERRY_POSTGRES": PASSWORD,
        "TABLEFERRY_SQLSERVER": good,
        "TABLEFERRY_CLICKHOUSE": str(at["TABLEFERRY_CLICKHOUSE_URL"].password),
    }
    for name, secret in printed.items():
        (tmp_path / name).write_text(f"{secret}\n")
        parts = at[f"{name}_URL"]
        user = "" if secret == good else f"{parts.username}@"
        place = parts._replace(netloc=f"{user}{parts.hostname}:{parts.port}").geturl()
        monkeypatch.setenv(f"{name}_URL", place)
        monkeypatch.setenv(f"{name}_PASSWORD_COMMAND", f"cat {tmp_path / name}")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_AUTHENTICATION", "ActiveDirectoryAccessToken")
    command, said = Command(tmp_path), ""
    for token, codes in ((good, (1, 0)), (stale, (2, 1))):
        (tmp_path / "TABLEFERRY_SQLSERVER").write_text(f"{token}\n")
        run = command.run("run", one.table, "-v", "--force", "--log-level", "debug")
        said += command.output
        assert (run, command.run("doctor")) == codes, command.output
        said += command.output
    assert "a token of the program cat" in said
    assert "login of the token's or ticket's user refused" in said
    files = [path for path in (tmp_path / "dagster").rglob("*") if path.is_file()]
    haystack = {str(path): path.read_bytes() for path in files} | {"said": said.encode()}
    for secret in (*printed.values(), stale):
        for spelling in spellings(secret, str(server.username)):
            found = [name for name, data in haystack.items() if spelling in data]
            assert not found, f"{spelling!r}"
