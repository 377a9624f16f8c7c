"""Certificates of a private authority, verified by every client that rows go through."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import pool as connection_pool
from tableferry.resources.connecting.resource import ServerResource
from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.connection import close_pooled_connections
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry_local.stack import Stack
from tests.integration.conftest import Ferry
from tests.integration.support.proxy import Encrypts
from tests.integration.support.standin import Standin

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Secured:
    """Servers with TLS alone, and the file of their authority."""

    authority: Path
    another: Path
    """An authority that none of them has its certificate from."""
    postgres: str
    sqlserver: str
    clickhouse: str
    """URLs without what says how to verify."""
    proxies: tuple[Encrypts, ...]

    def urls(self, authority: Path, host: str = "localhost") -> dict[str, str]:
        """URLs by system that verify; SQL Server's authority is that of SSL_CERT_FILE."""
        urls = {
            "postgres": f"{self.postgres}?sslmode=verify-full&sslrootcert={authority}",
            "sqlserver": f"{self.sqlserver}?encrypt=yes",
            "clickhouse": f"{self.clickhouse}?ca_cert={authority}",
        }
        return {system: url.replace("localhost", host) for system, url in urls.items()}


@pytest.fixture(scope="module")
def secured(local_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority, another = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("localhost", common_name="localhost")
    for one, name in ((authority, "ca.pem"), (another, "another.pem")):
        one.cert_pem.write_to_path(folder / name)
    with ExitStack() as opened:
        postgres = opened.enter_context(
            Encrypts(local_stack.postgres_url, certificate, starttls=True)
        )
        clickhouse = opened.enter_context(Encrypts(local_stack.clickhouse_url, certificate))
        yield Secured(
            folder / "ca.pem",
            folder / "another.pem",
            postgres.url.replace("127.0.0.1", "localhost"),
            opened.enter_context(Standin(local_stack, folder / "standin", certificate)).url,
            clickhouse.url.replace("http:", "https:").replace("127.0.0.1", "localhost"),
            (postgres, clickhouse),
        )
        close_pooled_connections()


WIRES = [
    "arrow",
    pytest.param(
        "text",
        marks=pytest.mark.skipif(not shutil.which("freebcp"), reason="needs freebcp"),
    ),
]


@pytest.mark.parametrize("wire", WIRES)
def test_rows_move_through_verified_connections(
    ferry: Callable[..., Ferry], secured: Secured, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By psycopg, ADBC, ODBC, the bulk copy's own TLS, freebcp and HTTPS."""
    hops = "[{{to: 'sqlserver://dbo.{t}', wire: W}}, {{to: 'clickhouse://warehouse.{t}', wire: W}}]"
    one = ferry(
        "[clickhouse://warehouse.{t}]",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
        "INSERT INTO {t} SELECT g, 'é' || g FROM generate_series(1, 300) g",
    )
    for system, url in secured.urls(secured.authority).items():
        monkeypatch.setenv(f"TABLEFERRY_{system.upper()}_URL", url)
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority))
    for name in ("TRUSTED_SECONDS", "IDLE_SECONDS"):  # nothing is left of the other wire's
        monkeypatch.setattr(connection_pool, name, 0)
    before = [proxy.sessions for proxy in secured.proxies]
    one.declare(hops.replace("W", wire), ranges="{count: 2}", reconcile="full_hash")
    view = one.run()
    assert view.good, view.errors
    assert all(proxy.sessions > count for proxy, count in zip(secured.proxies, before, strict=True))
    found = one.session.servers.endpoints["clickhouse"].query(
        f"SELECT count(), max(name) FROM warehouse.{one.table}"
    )
    assert found == [(300, "é99")]


def test_the_doctor_sees_that_certificates_are_verified(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for system, url in secured.urls(secured.authority).items():
        monkeypatch.setenv(f"TABLEFERRY_{system.upper()}_URL", url)
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\nkey: id\n"
        "hops: [sqlserver://dbo.t, clickhouse://warehouse.t]\n"
    )
    document = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    assert len(document["servers"]) == 3, document
    for server in document["servers"]:
        if server["name"] == "postgres":
            continue  # it is asked itself, and its end has no TLS here
        found = {one["subject"]: one for one in server["findings"]}
        assert found["certificate"]["state"] == "ok", (server["name"], found["certificate"])


RESOURCES: dict[str, type[ServerResource]] = {
    "postgres": PostgresResource,
    "sqlserver": SqlServerResource,
    "clickhouse": ClickHouseResource,
}
REASON = {
    "postgres": "certificate",
    "sqlserver": "its certificate cannot be verified for this name; SSL_CERT_FILE names",
    "clickhouse": "certificate",
}


@pytest.mark.parametrize("wrong", ["authority", "name"])
@pytest.mark.parametrize("system", RESOURCES)
def test_a_certificate_of_another_authority_or_name_is_refused(
    secured: Secured, system: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = secured.another if wrong == "authority" else secured.authority
    host = "127.0.0.1" if wrong == "name" else "localhost"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    close_pooled_connections()  # of tests before, which were right
    url = secured.urls(authority, host)[system]
    resource = RESOURCES[system](url=url)
    with pytest.raises(ConnectionFailed, match=REASON[system]) as refused:
        resource.ping()  # type: ignore[attr-defined]
    assert str(urlsplit(url).password) not in str(refused.value)


def test_a_pinned_certificate_needs_the_mode_that_looks_at_it(secured: Secured) -> None:
    pinned = secured.authority.parent / "standin" / "server.pem"
    strict = f"{secured.sqlserver}?encrypt=strict&server_certificate="
    assert "SQL Server" in SqlServerResource(url=f"{strict}{pinned}").ping()
    with pytest.raises(ConnectionFailed, match="TLS"):
        SqlServerResource(url=f"{strict}{secured.another}").ping()
    for encrypt in ("yes", "no"):
        url = f"{secured.sqlserver}?encrypt={encrypt}&server_certificate={pinned}"
        with pytest.raises(InputError, match="server_certificate needs encrypt=strict"):
            SqlServerResource(url=f"{url}&trust_server_certificate=yes").ping()
