"""Servers that are reached through OpenSSH, and ClickHouse through a proxy."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.sqlserver.connection import close_pooled_connections
from tableferry_local.process import free_port
from tests.integration.conftest import Ferry
from tests.integration.support.proxy import Encrypts, ProxiesConnect
from tests.servers import Servers

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
NAMES = ("postgres", "sqlserver", "clickhouse")
TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, note text)"
ROWS = "INSERT INTO {t} SELECT g, 'note ' || g FROM generate_series(1, 400) g"

needs_sshd = pytest.mark.skipif(
    SSHD is None or not shutil.which("ssh"), reason="needs OpenSSH's server and client"
)


def await_port(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens at {port}"
            time.sleep(0.05)


@dataclass
class Bastion:
    """An `sshd` of this user's own, and what logs in to it."""

    folder: Path
    port: int

    def arguments(self) -> list[str]:
        """Options of `ssh` that log in."""
        trusted = f"UserKnownHostsFile={self.folder / 'known'}"
        key = str(self.folder / "key")
        return ["-F", "none", "-i", key, "-o", trusted, "-o", "StrictHostKeyChecking=accept-new"]


@pytest.fixture(scope="module")
def bastion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bastion]:
    """A running one."""
    assert SSHD is not None
    folder = tmp_path_factory.mktemp("bastion")
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    port = free_port()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'key.pub'}\nStrictModes no\nUsePAM no\n"
        "AllowTcpForwarding yes\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # Debian's package has systemd make it
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=output
        )
    try:
        await_port(port)
        bastion = Bastion(folder, port)
        login = ["ssh", *bastion.arguments(), "-p", str(port), f"{getpass.getuser()}@127.0.0.1"]
        tried = subprocess.run([*login, "true"], check=False, capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"this user may not log in: {tried.stderr} {log.read_text()}")
        yield bastion
    finally:
        server.terminate()
        server.wait(30)


@dataclass
class Tunnel:
    """What `ssh -L` forwards: to each server a port of this machine."""

    command: list[str]
    ports: dict[str, int]

    def __enter__(self) -> Tunnel:
        self._process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        try:
            for port in self.ports.values():
                await_port(port)
        except AssertionError as error:
            self._process.kill()
            raise AssertionError(self._process.communicate()[1]) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def tunnel(request: pytest.FixtureRequest, bastion: Bastion, stack: Servers) -> Tunnel:
    """Forwards to the three servers, at once or by way of another connection of SSH."""
    options = bastion.arguments()
    if request.param == "ProxyCommand":
        outer = " ".join(["ssh", *options, "-p", str(bastion.port), "-W", "%h:%p", "127.0.0.1"])
        options += ["-o", f"ProxyCommand={outer}"]
    ports = {name: free_port() for name in NAMES}
    for name, port in ports.items():
        place = urlsplit(getattr(stack, f"{name}_url"))
        options += ["-L", f"127.0.0.1:{port}:{place.hostname}:{place.port}"]
    options += ["-N", "-o", "ExitOnForwardFailure=yes", "-p", str(bastion.port)]
    return Tunnel(["ssh", *options, f"{getpass.getuser()}@127.0.0.1"], ports)


@needs_sshd
@pytest.mark.parametrize(
    ("tunnel", "wire"), [("direct", "arrow"), ("ProxyCommand", "text")], indirect=["tunnel"]
)
def test_a_table_moves_through_a_tunnel_that_breaks(
    ferry: Callable[..., Ferry],
    stack: Servers,
    tunnel: Tunnel,
    wire: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, port in tunnel.ports.items():
        place = urlsplit(getattr(stack, f"{name}_url"))
        through = place._replace(netloc=place.netloc.rpartition(":")[0] + f":{port}").geturl()
        monkeypatch.setenv(f"TABLEFERRY_CONNECTION_FAR{name.upper()}", through)
    hops = f"[{{{{to: 'farsqlserver://dbo.{{t}}', wire: {wire}}}}}, "
    hops += f"{{{{to: 'farclickhouse://warehouse.{{t}}', wire: {wire}}}}}]"
    with tunnel:
        one = ferry(hops, TABLE, ROWS)
        one.declare(hops, source=f"farpostgres://public.{one.table}")
        view = one.run()
        assert view.good, view.errors
    close_pooled_connections()

    one.source("UPDATE {t} SET note = 'changed' WHERE id = 7")
    monkeypatch.chdir(one.folder.parent)
    told = CliRunner().invoke(main, ["doctor", "--json"])
    assert told.exit_code == 1
    servers = json.loads(told.stdout)
    said = json.dumps(servers)
    for name, port in tunnel.ports.items():
        assert f"far{name}" in said and str(port) in said, name
    assert "Traceback" not in told.output

    with tunnel:
        view = one.run()
        assert view.good, view.errors
        copied = f"SELECT count(), countIf(note = 'changed') FROM warehouse.{one.table}"
        assert one.session.servers.endpoints["farclickhouse"].query(copied) == [(400, 1)]
    close_pooled_connections()


def test_clickhouse_is_reached_through_a_proxy(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    place = urlsplit(stack.clickhouse_url)
    with (
        Encrypts(stack.clickhouse_url, authority.issue_cert("clickhouse.internal")) as secured,
        ProxiesConnect(f"http://127.0.0.1:{secured.port}") as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        login = place.netloc.rpartition("@")[0]
        url = f"https://{login}{'@' if login else ''}clickhouse.internal:8443{place.path}"
        server = ClickHouseResource(url=f"{url}?ca_cert={trusted}")
        with server.read_arrow("SELECT number FROM numbers(10)") as reader:
            assert reader.read_all().num_rows == 10
        assert proxy.asked == {"clickhouse.internal:8443"}
