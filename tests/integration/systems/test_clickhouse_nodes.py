"""Several ClickHouse servers behind one address are noticed, and refused by name."""

from __future__ import annotations

import itertools
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry
from tests.integration.support.proxy import Balances, Counts

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT g, 'note' FROM generate_series(1, 20) g",
)
REFUSED = r"several servers answer in turn \(127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+\)"


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, int]]:
    """Two servers that know nothing of each other: the URL of one, and the port of the other."""
    from tableferry_local import clickhouse

    password, started = secrets.token_hex(8), []
    with tempfile.TemporaryDirectory() as folder, socket.socket() as one, socket.socket() as two:
        ports = []
        for place in (one, two):
            place.bind(("127.0.0.1", 0))
            ports.append(place.getsockname()[1])
        one.close()
        two.close()
        try:
            for number, port in enumerate(ports):
                home = Path(folder, str(number))
                home.mkdir()
                started.append(clickhouse.start(home, port, password))
                clickhouse.wait_ready(home, started[-1], port, password)
            yield clickhouse.url(ports[0], password), ports[1]
        finally:
            for pid in started:
                clickhouse.stop(pid)


def test_answers_in_turn_are_refused(nodes: tuple[str, int]) -> None:
    first, other = nodes
    with Balances(first, [other]) as balancer, pytest.raises(InputError, match=REFUSED):
        for _ in range(3):
            ClickHouseServer(url=balancer.url).query("SELECT 1")


def test_a_server_that_takes_the_place_of_another_is_not(nodes: tuple[str, int]) -> None:
    first, other = nodes
    with Balances(first, []) as address:
        server = ClickHouseServer(url=address.url)
        assert server.query("SELECT 1") == [(1,)]
        before = server.query("SELECT displayName()")
        address.nodes = itertools.repeat(("127.0.0.1", other))
        server.query("SELECT 1")
        assert server.query("SELECT displayName()") != before
        assert server.query("SELECT 1") == [(1,)]


@pytest.mark.parametrize("by_request", [True, False])
def test_every_command_refuses_them_before_anything_is_made(
    nodes: tuple[str, int], by_request: bool, ferry: Callable[..., Ferry],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first, other = nodes
    with Balances(first, [other], by_request=by_request) as balancer:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_CLUSTER", balancer.url)
        one = ferry("['cluster://warehouse.{t}']", *TABLE)
        doctor = CliRunner().invoke(main, ["doctor"])
        assert "several servers answer in turn" in doctor.output
        assert doctor.exit_code == 1
        if by_request:
            for command in (["validate", one.table], ["plan", one.table], ["run", one.table]):
                done = CliRunner().invoke(main, command)
                assert done.exit_code == 2, (command, done.output)
                assert "several servers answer in turn" in done.output
                assert "Name one of them by its own address" in done.output
    port = urlsplit(first).port
    for url in (first, first.replace(f":{port}/", f":{other}/")):
        server = ClickHouseServer(url=url)
        assert not server.query("SHOW TABLES FROM warehouse")


def test_a_single_server_is_not_asked_about_clusters(
    ferry: Callable[..., Ferry], ch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Counts(ch_url, b"system.clusters") as clusters, Counts(clusters.url, b"system.rep") as url:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_SINGLE", url.url)
        one = ferry("['single://warehouse.{t}']", *TABLE, ranges="{count: 2}")
        for command in (["validate", one.table], ["plan", one.table], ["run", one.table]):
            done = CliRunner().invoke(main, command)
            assert done.exit_code == 0, done.output
    assert clusters.answered > 0
    assert clusters.requests == url.requests == 0


def test_a_distributed_table_is_no_target(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    server = one.session.servers.endpoints["clickhouse"]
    local = f"warehouse.{one.table}_local"
    server.execute(f"CREATE TABLE {local} (id Int32, note Nullable(String)) ORDER BY id")
    server.execute(
        f"CREATE TABLE warehouse.{one.table} AS {local} "
        f"ENGINE = Distributed(default, warehouse, {one.table}_local)"
    )
    try:
        for command in ("validate", "plan", "run"):
            done = CliRunner().invoke(main, [command, one.table])
            assert done.exit_code == (1 if command == "plan" else 2), done.output
            assert "engine Distributed: spreads rows over" in done.output, done.output
    finally:
        server.execute(f"DROP TABLE warehouse.{one.table} SYNC")
        server.execute(f"DROP TABLE {local} SYNC")
