"""Secrets that stand in files: which are read, and which are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from tableferry.pipelines.settings import configured, resources
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import passwords
from tableferry.resources.connecting.names import (
    connection_names,
    connection_url,
    set_variable,
    system_of,
)
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.sensors.sending import ALERTS, Alert, is_configured, redacted, send

SECRET = "s3cret-w0rd"
URL = f"postgresql://me:{SECRET}@db.test:5432/shop"
PG, NAMED = "TABLEFERRY_POSTGRES_URL", "TABLEFERRY_CONNECTION_SALES"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a URL, for its owner alone."""
    return written(tmp_path / "url", f"{URL}\n")


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TABLEFERRY_") and "_URL" in name:
            monkeypatch.delenv(name)


def written(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_end_of_the_line_is_not_part_of_the_secret(tmp_path: Path, end: str) -> None:
    path = written(tmp_path / "secret", f" {SECRET} {end}")
    assert passwords.read(str(path), "X_FILE") == f" {SECRET} "


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_for_its_owner_alone_is_read(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    assert passwords.read(str(secret), "X_FILE") == URL


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666, 0o620, 0o660, 0o602])
def test_a_file_that_others_can_read_is_refused(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    with pytest.raises(InputError) as refused:
        passwords.read(str(secret), "X_FILE")
    assert str(refused.value) == (
        f"X_FILE: other users can read {secret} (mode {mode:04o}), which holds a secret: "
        f"chmod 600 {secret}"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize(
    ("owner", "mode", "good"),
    [(0, 0o440, True), (0, 0o640, True), (0, 0o444, False), (1, 0o440, False)],
)
def test_root_may_share_a_secret_with_a_group(
    secret: Path, owner: int, mode: int, good: bool
) -> None:
    secret.chmod(mode)
    os.chown(secret, owner, 1)
    if good:
        assert passwords.read(str(secret), "X_FILE") == URL
    else:
        with pytest.raises(InputError, match="other users can read"):
            passwords.read(str(secret), "X_FILE")


READ = """
import sys
from tableferry.resources.connecting import passwords
from tableferry.resources.errors import InputError
try:
    print(passwords.read(sys.argv[1], "X_FILE"))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(("options", "expected"), [("ro", URL), ("rw", "other users can read")])
def test_what_a_container_is_handed_is_read(tmp_path: Path, options: str, expected: str) -> None:
    """A Kubernetes volume of a secret: in memory, read-only, 0644, behind links."""
    mount = [
        "mkdir ..data_1 && printf %s " + URL + " > ..data_1/url && chmod 644 ..data_1/url",
        "ln -s ..data_1 ..data && ln -s ..data/url url",
        f"mount -o remount,{options} {tmp_path}",
    ]
    script = f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && {' && '.join(mount)} && cd / && "
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("needs Linux, and the right to make namespaces")
    done = subprocess.run(
        [
            *command,
            f'{script} cd "$0" && exec "$@"',
            Path.cwd(),
            sys.executable,
            "-c",
            READ,
            tmp_path / "url",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout, done.stderr


def test_what_is_no_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, text in (
        ("empty", "\n"),
        ("two", f"{SECRET}\n{SECRET}\n"),
        ("bytes", b"\xff\xfe"),
        ("large", "x" * (passwords.MOST_BYTES + 1)),
    ):
        written(tmp_path / name, text)
    for name, message in (
        ("missing", "no such file or directory"),
        ("folder", "is a directory|is not a regular file"),
        ("pipe", "is not a regular file"),
        ("empty", "should hold the secret in one line; it is empty"),
        ("two", "should hold the secret in one line; it holds more than that"),
        ("large", "should hold the secret in one line; it holds more than that"),
        ("bytes", "is not UTF-8 text"),
    ):
        with pytest.raises(InputError, match=f"^X_FILE: .*/{name}:? .*({message})") as refused:
            passwords.read(str(tmp_path / name), "X_FILE")
        assert SECRET not in str(refused.value)


def test_a_url_in_the_place_of_a_path_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PG}_FILE", URL)
    with pytest.raises(InputError, match=f"{PG}_FILE should be the path of a file") as refused:
        connection_url("postgres")
    assert SECRET not in str(refused.value)


def test_the_usual_and_the_named_servers_may_be_in_files(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{PG}_FILE", str(secret))
    monkeypatch.setenv(f"{NAMED}_file", str(secret))
    assert configured() == ["postgres", "sales"]
    assert connection_names()[-1:] == ("sales",)
    assert (set_variable("sales"), system_of("sales").name) == (f"{NAMED}_file", "postgres")
    found = resources()
    for name in ("postgres", "sales"):
        settings = found[name].settings()  # type: ignore[attr-defined]
        assert (settings.host, settings.user, settings.password) == ("db.test", "me", SECRET)
    assert SECRET not in repr(found)
    assert redacted(f"login with {SECRET} failed") == "login with *** failed"


def test_a_new_password_is_read_without_a_restart(secret: Path) -> None:
    resource = PostgresResource(url=URL.replace(f":{SECRET}", ""), password_file=str(secret))
    secret.write_text("first\n")
    assert resource.settings().password == "first"
    secret.write_text("second\n")
    assert resource.settings().password == "second"


def test_dagster_resolves_the_variables_of_files(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URL_AT", str(secret))
    seen = []

    @dg.asset
    def uses(server: PostgresResource) -> None:
        seen.append(server.settings().password)

    server = PostgresResource(url_file=dg.EnvVar("URL_AT"))
    done = dg.materialize([uses], resources={"server": server})
    assert done.success and seen == [SECRET]


@pytest.mark.parametrize("variable", [PG, NAMED])
def test_a_variable_and_its_file_contradict_each_other(
    secret: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, URL)
    monkeypatch.setenv(f"{variable}_FILE", str(secret))
    message = f"^{variable} and {variable}_FILE are both set; one of them should be$"
    with pytest.raises(InputError, match=message):
        configured()
    with pytest.raises(InputError, match="given both password and password_file"):
        ClickHouseResource(host="h", password="x", password_file=str(secret)).settings()


def test_an_empty_variable_is_not_set(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PG, "")
    monkeypatch.setenv(f"{PG}_FILE", str(secret))
    assert connection_url("postgres") == URL
    monkeypatch.setenv(f"{PG}_FILE", "")
    assert connection_url("postgres") is None and configured() == []


def test_a_missing_file_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PG}_FILE", str(tmp_path / "none"))
    server = resources()["postgres"]
    expected = f"{PG}_FILE: {tmp_path}/none: no such file or directory"
    with pytest.raises(InputError, match=f"^{expected}$"):
        server.settings()  # type: ignore[attr-defined]


def test_an_alert_goes_where_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALERTS, raising=False)
    path = written(tmp_path / "hook", f"json://127.0.0.1:9/{SECRET}\n")
    monkeypatch.setenv(f"{ALERTS}_FILE", str(path))
    assert is_configured()
    alert = Alert("run_failed", "no", "move_t")
    with pytest.raises(TableferryError, match=r"\(json\) does not take the alert") as refused:
        send(alert)
    path.chmod(0o644)
    with pytest.raises(TableferryError, match="other users can read"):
        send(alert)
    assert SECRET not in str(refused.value)
