"""The road to a server: connections that a firewall forgets, names that move, addresses of IPv6."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.connection import close_pooled_connections
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.integration.conftest import Ferry
from tests.integration.support.proxy import TCP_REPAIR, Forgets, HangsUp, Passes
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

TABLE = "CREATE TABLE {t} (id int PRIMARY KEY, note text)"
ROWS = "INSERT INTO {t} SELECT g, 'note ' || g FROM generate_series(1, 400) g"
LOADED = f"dbo.{own('loaded')}"
MOST_IDLE = 60
"""Seconds; the idle timeouts of firewalls and load balancers begin at some 350 s."""


def sockets_to(port: int) -> Iterator[socket.socket]:
    """The sockets of this process that are connected to a port."""
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
                with socket.socket(fileno=os.dup(int(descriptor))) as found:
                    tcp = found.family in (socket.AF_INET, socket.AF_INET6)
                    if tcp and found.getpeername()[1] == port:
                        yield found


@pytest.fixture
def roads(stack: Servers) -> Iterator[dict[str, str]]:
    """URLs that only this test connects to."""
    with ExitStack() as opened:
        yield {
            name: opened.enter_context(Passes(getattr(stack, f"{name}_url"))).url
            for name in ("postgres", "sqlserver", "clickhouse")
        }


def test_every_connection_asks_whether_the_other_end_is_there(roads: dict[str, str]) -> None:
    def kept(url: str) -> int:
        idle = [
            found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            for found in sockets_to(urlsplit(url).port or 0)
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        ]
        assert len(idle) == sum(1 for _ in sockets_to(urlsplit(url).port or 0))
        assert all(0 < seconds <= MOST_IDLE for seconds in idle), idle
        return len(idle)

    postgres = PostgresResource(url=roads["postgres"])
    with postgres.session(), postgres.read_arrow("SELECT 1 AS n"):
        assert kept(roads["postgres"]) >= 2, "psycopg's and ADBC's"
    asks = "SELECT setting FROM pg_settings WHERE name = 'tcp_keepalives_idle'"
    assert postgres.query(asks) == [(str(MOST_IDLE),)]
    with postgres.read_arrow(asks) as reader:
        assert reader.read_all().to_pylist() == [{"setting": str(MOST_IDLE)}], "the server's end"
    clickhouse = ClickHouseResource(url=roads["clickhouse"])
    with clickhouse.read_arrow("SELECT 1 AS n"):
        assert kept(roads["clickhouse"]) >= 1
    sqlserver = SqlServerResource(url=roads["sqlserver"])
    before: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        before.append(kept(roads["sqlserver"]))
        yield pa.record_batch({"n": pa.array([1], pa.int32())})

    sqlserver.execute(f"CREATE TABLE {LOADED} (n int)")
    try:
        with sqlserver.connection() as connection, connection.raw.cursor() as cursor:
            schema = pa.schema([("n", pa.int32())])
            reader = pa.RecordBatchReader.from_batches(schema, batches())
            cursor.bulkcopy_arrow(LOADED, reader, timeout=0)
        assert before[0] >= 2, "ODBC's and the bulk copy's own"
    finally:
        sqlserver.execute(f"DROP TABLE {LOADED}")


@pytest.fixture
def may_forget() -> None:
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except OSError as error:
            pytest.skip(f"a connection can be forgotten by root on Linux only: {error}")


@pytest.mark.usefixtures("may_forget")
def test_a_connection_that_a_firewall_has_forgotten_is_noticed(stack: Servers) -> None:
    plain = stack.sqlserver_url.partition("?")[0]
    with (
        Forgets(f"{stack.postgres_url}?keepalives_idle=20", b"forget") as first,
        Forgets(stack.clickhouse_url, b"forget") as second,
        Forgets(f"{plain}?encrypt=no", "forget".encode("utf-16-le")) as third,
    ):
        asked: list[Callable[[], object]] = [
            lambda: PostgresResource(url=first.url).query("SELECT 'forget'"),
            lambda: ClickHouseResource(url=second.url).query("SELECT 'forget'"),
            lambda: SqlServerResource(url=third.url).query("SELECT 'forget'"),
        ]

        def seconds(ask: Callable[[], object]) -> float:
            began = time.monotonic()
            try:
                ask()  # ClickHouse's driver sends it again by itself
            except StatementFailed as error:
                assert error.transient
            return time.monotonic() - began

        with ThreadPoolExecutor(3) as pool:
            assert all(5 < waited < 300 for waited in pool.map(seconds, asked))
        assert (first.forgotten, second.forgotten, third.forgotten) == (1, 1, 1)


@pytest.mark.usefixtures("may_forget")
@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_a_range_whose_connection_was_forgotten_is_moved_again(
    ferry: Callable[..., Ferry], stack: Servers, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops = f"[{{{{to: 'clickhouse://warehouse.{{t}}', wire: {wire}}}}}]"
    one = ferry(hops, TABLE, ROWS)
    read = rb"COPY \(.*" + one.table.encode()
    with Forgets(f"{stack.postgres_url}?keepalives_idle=1", read) as through:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", through.url)
        one.declare(hops, source=f"there://public.{one.table}")
        view = one.run()
        assert view.good and through.forgotten == 1, view.errors
        clickhouse = one.session.servers.endpoints["clickhouse"]
        copied = f"SELECT count(), sum(id), uniqExact(note) FROM warehouse.{one.table}"
        assert clickhouse.query(copied) == [(400, 80200, 400)]


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_addresses_of_ipv6_lead_to_all_servers(
    ferry: Callable[..., Ferry], stack: Servers, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Passes(stack.postgres_url, host="::1") as first,
        Passes(stack.sqlserver_url, host="::1") as second,
        Passes(stack.clickhouse_url, host="::1") as third,
    ):
        for name, proxy in (("PG", first), ("MS", second), ("CH", third)):
            assert f"[::1]:{proxy.port}" in proxy.url
            monkeypatch.setenv(f"TABLEFERRY_CONNECTION_{name}", proxy.url)
        hops = f"[{{{{to: 'ms://dbo.{{t}}', wire: {wire}}}}}, "
        hops += f"{{{{to: 'ch://warehouse.{{t}}', wire: {wire}}}}}]"
        one = ferry(hops, TABLE, ROWS)
        one.declare(hops, source=f"pg://public.{one.table}")
        view = one.run()
        assert view.good, view.errors
        assert first.connections and second.connections and third.connections
        close_pooled_connections()


MOVES = """
import sys, time
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.integration.support.proxy import Passes

def leads_to(address):
    with open("/etc/hosts", "w") as hosts:
        hosts.write(f"{address} moving.example\\n")

for resource, url in zip((PostgresResource, SqlServerResource, ClickHouseResource), sys.argv[1:]):
    with Passes(url) as before, Passes(url, host="127.0.0.2", port=before.port) as after:
        leads_to("127.0.0.1")
        server = resource(url=before.url.replace("127.0.0.1", "moving.example"))
        server.ping()
        assert before.connections and not after.connections, resource
        leads_to("127.0.0.2")
        before.hang_up()
        time.sleep(0.2)  # what was lent just now is not tested
        reached = before.connections
        server.ping()
        with server.read_arrow("SELECT 1 AS n") as reader:
            assert reader.read_all().num_rows == 1
        assert after.connections and before.connections == reached, resource
"""


def test_a_name_that_leads_elsewhere_is_looked_up_by_the_next_connection(
    stack: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hosts = tmp_path_factory.mktemp("names") / "hosts"
    hosts.touch()
    own_hosts = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    own_hosts += [f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    try:
        subprocess.run([*own_hosts, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a mount namespace, for names of its own: {error}")
    urls = (stack.postgres_url, stack.sqlserver_url, stack.clickhouse_url)
    ended = subprocess.run(
        [*own_hosts, sys.executable, "-c", MOVES, *urls], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_a_server_that_hangs_up_is_waited_for(stack: Servers) -> None:
    with HangsUp(stack.clickhouse_url, 5) as proxy:
        assert ClickHouseResource(url=proxy.url).query("SELECT 1") == [(1,)]
    with HangsUp(stack.postgres_url, 3) as proxy:
        assert PostgresResource(url=proxy.url).query("SELECT 1") == [(1,)]
