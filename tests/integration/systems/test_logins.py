"""Logins without a lasting password: tokens, certificates, programs that print either."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from tableferry.assets.log import ledger
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import passwords
from tableferry.resources.contract.catalog import Use, inspection_of
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver import login
from tableferry.resources.sqlserver.connection import close_pooled_connections
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry_local.sqlserver.wire.federated import issue
from tableferry_local.stack import Stack
from tests.integration.conftest import Ferry
from tests.integration.support.proxy import Encrypts
from tests.integration.support.standin import Standin

pytestmark = pytest.mark.integration

ROWS = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'é' || g FROM generate_series(1, 300) g",
)


class ClickHouseBehind(Encrypts):
    """TLS in front of ClickHouse that demands a certificate, and passes on whom it has let in.

    ClickHouse's own users with `ssl_certificates` and `jwt` need a server with TLS and a Cloud: for
    a certificate's user and for a good token the password is put in their place.
    """

    def __init__(self, stack: Stack, certificate: trustme.LeafCert, clients: trustme.CA) -> None:
        super().__init__(stack.clickhouse_url, certificate)
        self.good, self.seen = "t0ken-1", list[str]()
        self.every = 0
        """After how many logins the good token is another one, which `change` is told."""
        self.change: Callable[[int], None] = lambda number: None
        clients.configure_trust(self._context)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._login = urlsplit(stack.clickhouse_url)

    def asked(self, client: ssl.SSLSocket, data: bytes) -> bytes:
        user, password = str(self._login.username), str(self._login.password)
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        certified = b"X-ClickHouse-SSL-Certificate-Auth: on"
        bearer = f"Authorization: Bearer {self.good}\r\n".encode()
        if certified in data and client.getpeercert():
            self.seen.append("certificate")
            return data.replace(certified, f"X-ClickHouse-Key: {password}".encode(), 1)
        if bearer in data:
            self.seen.append("token")
            if self.every and len(self.seen) % self.every == 0:
                self.change(len(self.seen))
            return data.replace(bearer, f"Authorization: Basic {basic}\r\n".encode(), 1)
        return data


@pytest.fixture(scope="module")
def standin(local_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    with Standin(local_stack, tmp_path_factory.mktemp("logins") / "standin") as server:
        yield server
        close_pooled_connections()


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(passwords, "FRESH_SECONDS", 0.0)
    yield
    passwords._kept.clear()
    close_pooled_connections()


def url(standin: Standin, *options: str) -> str:
    return "&".join((f"mssql://{standin.place}?trust_server_certificate=yes", *options))


class Identity:
    """Azure's endpoint for the managed identity of an app, with tokens of the stand-in."""

    def __init__(self, standin: Standin) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                token = issue(standin.user, standin.password)
                body = json.dumps({"access_token": token, "expires_on": "4102444800"})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.parametrize("way", ["ActiveDirectoryMSI", "ActiveDirectoryDefault"])
def test_rows_move_with_tokens_of_a_managed_identity(
    ferry: Callable[..., Ferry], standin: Standin, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ODBC and by the bulk copy's own login, through Microsoft's own libraries."""
    identity = Identity(standin)
    one = ferry("[sqlserver://dbo.{t}, clickhouse://warehouse.{t}]", *ROWS, ranges="{count: 3}")
    monkeypatch.setenv("IDENTITY_ENDPOINT", identity.url)
    monkeypatch.setenv("IDENTITY_HEADER", "x")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", url(standin))
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_AUTHENTICATION", way)
    login._credential.cache_clear()
    one.declare("[sqlserver://dbo.{t}, clickhouse://warehouse.{t}]", ranges="{count: 3}")
    try:
        view = one.run()
        assert view.good, view.errors
    finally:
        login._credential.cache_clear()
        identity.close()
    assert len(identity.asked) == 1, "a token is used as long as it is good"
    assert "database.windows.net" in identity.asked[0]


@pytest.mark.parametrize("wrong", ["expired", "of another server"])
def test_a_token_that_is_not_good_is_refused_by_name(standin: Standin, wrong: str) -> None:
    token = (
        issue(standin.user, standin.password, -5)
        if wrong == "expired"
        else issue(standin.user, "another")
    )
    server = SqlServerResource(
        url=url(standin, "authentication=ActiveDirectoryAccessToken"), password=token
    )
    with pytest.raises(ConnectionFailed, match="login of the token's or ticket's user") as refused:
        server.ping()
    assert token not in str(refused.value)


@pytest.mark.parametrize("secret", ["token", "password"])
def test_sqlserver_is_told_a_new_secret_after_it_has_refused_the_kept_one(
    standin: Standin, secret: str, tmp_path: Path
) -> None:
    file, asked = tmp_path / "secret", tmp_path / "asked"
    place = url(standin, "authentication=ActiveDirectoryAccessToken")
    good = issue(standin.user, standin.password)
    stale = issue(standin.user, standin.password, -5)
    if secret == "password":
        place, good, stale = url(standin), standin.password, "no-longer-it"
    server = SqlServerResource(
        url=place,
        password_command=f"sh -c 'tee -a {asked} < {file}'",
        user=standin.user if secret == "password" else None,
    )
    file.write_text(f"{stale}\n")
    assert server.settings().password == stale, "which is kept"
    file.write_text(f"{good}\n")
    assert server.ping()
    assert asked.read_text().split() == [stale, good]
    file.write_text(f"{stale}\n")
    for _ in range(3):
        assert server.query("SELECT 1") == [(1,)]
    assert len(asked.read_text().split()) == 2, "a session that is logged in needs no secret"


def test_a_bulk_copy_whose_token_has_expired_is_tried_with_a_new_one(
    ferry: Callable[..., Ferry], standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens live shorter than a run, and the driver's second login comes later than its first."""
    program = tmp_path / "token.py"
    program.write_text(
        "from tableferry_local.sqlserver.wire.federated import issue\n"
        f"print(issue({standin.user!r}, {standin.password!r}, 2))\n"
    )
    one = ferry("[sqlserver://dbo.{t}]", *ROWS, ranges="{rows: 10}")
    monkeypatch.setenv(
        "TABLEFERRY_SQLSERVER_URL", url(standin, "authentication=ActiveDirectoryAccessToken")
    )
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_PASSWORD_COMMAND", f"{sys.executable} {program}")
    one.declare("[sqlserver://dbo.{t}]", ranges="{rows: 10}")
    view = one.run()
    assert view.good, view.errors
    assert len(view.ranges) >= 30


@dataclass
class Behind:
    """ClickHouse behind TLS, and files of ours."""

    proxy: ClickHouseBehind
    folder: Path
    stack: Stack

    def url(self, *options: str, user: bool = True) -> str:
        at = urlsplit(self.proxy.url)
        login = f"{urlsplit(self.stack.clickhouse_url).username}@" if user else ""
        path = f"https://{login}localhost:{at.port}/warehouse?ca_cert={self.folder}/ca.pem"
        return "&".join((path, *options))

    @property
    def certificate(self) -> tuple[str, str]:
        return f"client_cert={self.folder}/our.pem", f"client_key={self.folder}/our.key"


@pytest.fixture
def behind(local_stack: Stack, tmp_path: Path) -> Iterator[Behind]:
    authority = trustme.CA()
    ours = authority.issue_cert("ferry", common_name="ferry")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "our.pem")
    ours.private_key_pem.write_to_path(tmp_path / "our.key")
    certificate = authority.issue_cert("localhost", common_name="localhost")
    with ClickHouseBehind(local_stack, certificate, authority) as proxy:
        yield Behind(proxy, tmp_path, local_stack)


def test_rows_move_into_clickhouse_by_a_certificate(
    ferry: Callable[..., Ferry], behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("[clickhouse://warehouse.{t}]", *ROWS)
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", behind.url(*behind.certificate))
    one.declare("[clickhouse://warehouse.{t}]", ranges="{count: 3}")
    view = one.run()
    assert view.good, view.errors
    assert set(behind.proxy.seen) == {"certificate"}


def test_a_password_beside_a_certificate_is_the_login(behind: Behind) -> None:
    url = behind.url(*behind.certificate)
    with pytest.raises(ConnectionFailed, match="login of user"):
        ClickHouseResource(url=url, password="wr0ng-w0rd").ping()
    right = urlsplit(behind.stack.clickhouse_url).password
    assert ClickHouseResource(url=url, password=right).ping()
    assert not behind.proxy.seen


def test_rows_move_into_clickhouse_with_tokens_that_expire(
    ferry: Callable[..., Ferry], behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token changes all the time; a refused one is asked for anew, also before an INSERT."""
    file, asked = behind.folder / "token", behind.folder / "asked"

    def change(number: int) -> None:
        behind.proxy.good = f"t0ken-{number}"
        (behind.folder / "next").write_text(f"{behind.proxy.good}\n")
        (behind.folder / "next").rename(file)

    one = ferry("[clickhouse://warehouse.{t}]", *ROWS)
    change(1)
    behind.proxy.every, behind.proxy.change = 50, change
    command = f"sh -c 'tee -a {asked} < {file}'"
    url = behind.url("authentication=token", user=False)
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", url)
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_PASSWORD_COMMAND", command)
    one.declare("[clickhouse://warehouse.{t}]", ranges="{rows: 20}")
    view = one.run()
    assert view.good, view.errors
    assert "token" in behind.proxy.seen
    assert len(set(asked.read_text().split())) > 1, "a refused token was asked for anew"


def test_a_token_that_stays_wrong_ends_clickhouse(behind: Behind) -> None:
    server = ClickHouseResource(
        url=behind.url("authentication=token", user=False), password_command="echo n0-t0ken"
    )
    with pytest.raises(ConnectionFailed, match="login of user 'default' refused") as refused:
        server.ping()
    assert "n0-t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "user", "says"),
    [
        (("authentication=token",), False, "needs the token: a password_command"),
        (("authentication=token", "password_command=echo%20x"), True, "takes no user"),
        (("authentication=jwt",), True, "should be password or token; found 'jwt'"),
        (("client_key=/k",), True, "client_key needs client_cert"),
        (("client_cert=/no/such.pem",), True, "client_cert: /no/such.pem: no such file"),
    ],
)
def test_what_contradicts_itself_is_refused(
    behind: Behind, options: tuple[str, ...], user: bool, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        ClickHouseResource(url=behind.url(*options, user=user)).ping()


def logged_in_as(resource: Any) -> str:
    found = {one.subject: one for one in inspection_of(resource.system).health(resource, Use())}
    return found["login"].says


def test_the_doctor_says_who_one_is_and_how(
    standin: Standin, behind: Behind, local_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issue(standin.user, standin.password)
    entra = url(standin, "authentication=ActiveDirectoryAccessToken")
    program = {"password_command": f"echo {token}"}
    says = logged_in_as(SqlServerResource(url=entra, **program))
    assert says == "sa, by a token of the program echo"
    assert logged_in_as(SqlServerResource(url=standin.url + "?trust_server_certificate=yes")) == (
        "sa, by a password"
    )
    says = logged_in_as(
        SqlServerResource(
            url=url(standin), user=standin.user, password_command=f"echo {standin.password}"
        )
    )
    assert says == "sa, by a password of the program echo"
    clickhouse = behind.url("authentication=token", user=False)
    at = urlsplit(local_stack.clickhouse_url)
    user = at.username
    place = at._replace(netloc=f"{user}@{at.hostname}:{at.port}").geturl()
    says = logged_in_as(ClickHouseResource(url=place, password_command=f"echo {at.password}"))
    assert says == f"{user}, by a password of the program echo"
    says = logged_in_as(
        ClickHouseResource(url=clickhouse, password_provider=lambda: behind.proxy.good)
    )
    assert says.startswith(f"{user}, by a token of ")
    says = logged_in_as(ClickHouseResource(url=behind.url(*behind.certificate)))
    assert says == f"{user}, by a client certificate"
    at = urlsplit(local_stack.postgres_url)
    place = f"postgresql://{at.username}@{at.hostname}:{at.port}{at.path}"
    says = logged_in_as(PostgresResource(url=place, password_command=f"echo {at.password}"))
    assert says == f"{at.username}, by a password of the program echo"
    monkeypatch.setenv("PGPASSWORD", str(at.password))
    says = logged_in_as(PostgresResource(url=place))
    assert says == f"{at.username}, by a password that libpq has found"


@pytest.fixture
def deaf(local_stack: Stack, tmp_path: Path) -> Iterator[Standin]:
    """A server that hangs up on the driver's bulk copy, and on nobody else."""
    with Standin(local_stack, tmp_path / "deaf", None, "--hang-up-on", "mssql-python") as server:
        yield server
        close_pooled_connections()


def test_where_the_bulk_copy_cannot_log_in_bcp_loads(
    ferry: Callable[..., Ferry], deaf: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("[sqlserver://dbo.{t}]", *ROWS)
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", f"{deaf.url}?trust_server_certificate=yes")
    one.declare("[sqlserver://dbo.{t}]", ranges="{count: 2}")
    why = (
        "the driver logs in a second time to bulk copy, by a way of its own, and that login failed"
    )
    server = one.session.servers.endpoints["sqlserver"]
    use = Use(writes=[TableRef("sqlserver", "dbo", one.table)])
    health = {found.subject: found for found in inspection_of(server.system).health(server, use)}
    assert (health["bulk copy"].state, why in health["bulk copy"].says) == ("warning", True)
    assert health["login"].says == "sa, by a password"
    (note,) = (note for note in one.plan().notes if why in note)
    assert "wire auto is text here: arrow cannot be used into" in note
    view = one.run()
    assert view.good, view.errors
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    (hop,) = one.session.transfer(one.table).hops
    moved = ledger.records(one.session.instance, hop.to, names)
    moved_rows = [record for record in moved.values() if record.rows]
    assert {record.wire for record in moved_rows} == {"text"}
    assert moved_rows and all(why in str(record.wire_because) for record in moved_rows)
    one.declare("[{{to: 'sqlserver://dbo.{t}', wire: arrow}}]", ranges="{count: 2}")
    with pytest.raises(InputError, match="cannot use the wire format arrow into .* " + why):
        one.run(force=True)
