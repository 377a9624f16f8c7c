"""A standby as a source: conflicts with recovery, lag, and one that takes over without the rest."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest

from tableferry.assets.running import moving
from tableferry.pipelines.command.one import runner
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.arrow_session import pool as arrow_pool
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import _pool
from tableferry.resources.postgres.snapshots import Position
from tests.integration.conftest import Ferry
from tests.servers import POSTGRES, named

pytestmark = pytest.mark.integration

PASSWORD = "St4ndby-pw"
SETTINGS = {
    "wal_level": "replica",
    "max_wal_senders": "4",
    "autovacuum": "off",  # its transactions would take numbers
    "max_standby_streaming_delay": "50ms",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "wal_receiver_status_interval": "1s",
}
COPY = "['clickhouse://warehouse.{t}']"


@dataclass
class Pair:
    """A primary, and its standby."""

    primary: str
    standby: str

    def ask(self, url: str, *statements: str) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found

    def until(self, url: str, sql: str) -> None:
        """Wait until a query says true."""
        for _ in range(1200):
            with suppress(psycopg.Error):
                if self.ask(url, sql)[0][0]:
                    return
            time.sleep(0.05)
        raise AssertionError(f"never true: {sql}")

    def catch_up(self) -> None:
        # behind a switch of segments is nothing to replay until something is written
        (at,) = self.ask(self.primary, "SELECT pg_create_restore_point('here')")[0]
        self.until(self.standby, f"SELECT pg_last_wal_replay_lsn() >= '{at}'")


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if named(POSTGRES):
        pytest.skip("makes servers of its own, of the local stack")
    from tableferry_local import postgres, process

    started: list[int] = []
    folders = [tmp_path_factory.mktemp(name) for name in ("primary", "standby")]
    urls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "SETTINGS", {**postgres.SETTINGS, **SETTINGS})

        def start(folder: Path) -> str:
            port = process.free_port()
            started.append(postgres.start(folder, port, PASSWORD))
            return postgres.url(port, PASSWORD, "demo")

        try:
            for folder in folders:
                folder.chmod(0o711)
                if urls:
                    _copied(postgres, folder, urls[0])
                urls.append(start(folder))
                if len(urls) == 1:
                    port = urlsplit(urls[0]).port
                    postgres.wait_ready(folder, started[0], port, PASSWORD)
            pair = Pair(*urls)
            pair.until(pair.standby, "SELECT pg_is_in_recovery()")
            yield pair
        finally:
            for pid in reversed(started):
                postgres.stop(pid)
            for folder in folders:
                postgres.remove(folder)


def _copied(postgres: object, folder: Path, primary: str) -> None:
    """A base backup that follows the primary, in the place of a server's data."""
    place = postgres.home(folder)  # type: ignore[attr-defined]
    postgres._make_private(place)  # type: ignore[attr-defined]
    binaries = postgres._binaries(place)  # type: ignore[attr-defined]
    user, group = postgres._run_as() or (None, None)  # type: ignore[attr-defined]
    server = urlsplit(primary)
    conninfo = (
        f"host={server.hostname} port={server.port} user={server.username} password={PASSWORD}"
    )
    command = [binaries / "pg_basebackup", "-D", place / "data", "-d", conninfo]
    command += ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--wal-method=stream"]
    extra = [] if user is not None else None
    subprocess.run(
        [str(part) for part in command],
        cwd=place,
        user=user,
        group=group,
        extra_groups=extra,
        env={**os.environ, "LC_ALL": "C"},
        check=True,
        capture_output=True,
    )


def test_a_promoted_copy_is_another_server(
    ferry: Callable[..., Ferry], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(COPY)
    table = f"public.{one.table}"
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", pair.primary)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_RESTORED", pair.standby)
    one.declare(f"['restored://{table}']", source=f"there://{table}")
    pair.ask(pair.primary, f"CREATE TABLE {table} (id int PRIMARY KEY, note text)")
    pair.catch_up()
    with pytest.raises(InputError, match="which a standby cannot tell: name its primary instead"):
        one.run()
    pair.ask(pair.standby, "SELECT pg_promote()")
    pair.until(pair.standby, "SELECT NOT pg_is_in_recovery()")
    pair.ask(pair.primary, f"INSERT INTO {table} VALUES (1, 'new')")
    view = one.run()
    assert view.good, view.errors
    assert pair.ask(pair.standby, f"SELECT * FROM {table}") == [(1, "new")]


@pytest.mark.slow
def test_a_standby_is_read_and_what_it_lacks_is_noticed(
    ferry: Callable[..., Ferry], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(COPY)
    table = f"public.{one.table}"
    declared = {
        "source": f"there://{table}",
        "ranges": "{bounds: [1, 51]}",
        "parallel": "{export: 1, load: 1}",
        "fingerprint": "row_version",
    }

    def read_from(url: str) -> None:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", url)
        one.declare(COPY, **declared)

    def copied(key: int) -> str:
        sql = f"SELECT note FROM warehouse.{one.table} WHERE id = {key}"
        return str(one.session.servers.endpoints["clickhouse"].query(sql)[0][0])

    def position() -> Position:
        asset = dg.AssetKey(["clickhouse", "warehouse", one.table])
        event = one.session.instance.get_latest_materialization_event(asset)
        assert event is not None and event.asset_materialization is not None
        return Position.parse(str(event.asset_materialization.metadata["source_position"].value))

    pair.ask(
        pair.primary,
        f"CREATE TABLE {table} (id int PRIMARY KEY, note text)",
        f"INSERT INTO {table} SELECT g, 'row' FROM generate_series(1, 100) g",
    )
    pair.catch_up()

    # of a list of hosts, the one that serves is used, by both drivers
    standby = urlsplit(pair.standby)
    hosts = f"{standby.netloc},{urlsplit(pair.primary).netloc.rpartition('@')[2]}"
    listed = standby._replace(netloc=hosts.replace("@", "@127.0.0.1:1,")).geturl()
    for sought, recovering in (("read-write", False), ("standby", True), ("any", True)):
        source = PostgresResource(url=f"{listed}?target_session_attrs={sought}")
        assert source.query("SELECT pg_is_in_recovery()") == [(recovering,)]
        with source.read_arrow("SELECT pg_is_in_recovery() AS r") as reader:
            assert reader.read_all().to_pylist() == [{"r": recovering}]

    # whichever of them has a snapshot, all its readers go there
    source = PostgresResource(url=f"{listed}?load_balance_hosts=random")
    recovers = "SELECT pg_is_in_recovery() AS r"
    met = set()
    for _ in range(12):
        with source.set_snapshot() as held:
            name = held.held.name
            with source.snapshot(joined=name) as snapshot:
                snapshot.check()
                assert snapshot.endswith(name.partition("@")[2])
                ((there,),) = source.query(recovers, snapshot=snapshot)
            with source.read_arrow(recovers, snapshot=name) as reader:
                assert reader.read_all().to_pylist() == [{"r": there}]
            with source.read_text(f"SELECT {recovers[7:]}", snapshot=name) as chunks:
                assert b"".join(chunks) == (b"t\n" if there else b"f\n")
            met.add(there)
        _pool.close()
        arrow_pool.close()
    assert met == {True, False}

    # what recovery cancels is read again
    seen: list[str] = []

    def reached(name: str) -> None:
        if name == "before_export" and not seen:
            seen.append(name)
            pair.ask(pair.primary, f"UPDATE {table} SET note = 'newer' WHERE id = 7")
            pair.ask(pair.primary, f"VACUUM (FREEZE) {table}", "SELECT pg_switch_wal()")
            pair.catch_up()

    monkeypatch.setattr(moving, "reached", reached)
    read_from(pair.standby)
    view = one.run()
    assert view.good and seen, view.errors
    assert copied(7) == "newer"
    assert position().timeline == 1
    assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}
    assert runner.check(one.session, one.table).good

    # a standby that stays behind what was committed from its primary
    pair.ask(pair.standby, "SELECT pg_wal_replay_pause()")
    pair.until(pair.standby, "SELECT pg_get_wal_replay_pause_state() = 'paused'")
    pair.ask(pair.primary, f"UPDATE {table} SET note = 'newest' WHERE id = 7")
    read_from(pair.primary)
    assert one.run().notes == []
    assert copied(7) == "newest"
    read_from(pair.standby)
    view = one.run()
    assert view.good and "bytes behind" in " ".join(view.notes)
    assert copied(7) == "newer", "the target is what its source shows"
    pair.ask(pair.standby, "SELECT pg_wal_replay_resume()")
    pair.catch_up()
    view = one.run()
    assert view.good and view.notes == [] and copied(7) == "newest"

    # a standby takes over that lacks a transaction, and gives its number to another one
    pair.ask(pair.standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    pair.until(pair.standby, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
    pair.ask(pair.primary, f"UPDATE {table} SET note = 'lost' WHERE id = 60")
    read_from(pair.primary)
    assert one.run().good and copied(60) == "lost"
    pair.ask(pair.standby, "SELECT pg_promote()")
    pair.until(pair.standby, "SELECT NOT pg_is_in_recovery()")
    pair.ask(pair.standby, f"UPDATE {table} SET note = 'kept' WHERE id = 60")
    version = f"SELECT xmin::text, ctid::text FROM {table} WHERE id = 60"
    assert pair.ask(pair.standby, version) == pair.ask(pair.primary, version)
    read_from(pair.standby)
    assert {planned.reason for planned in one.plan().ranges} == {"source_replaced"}
    view = one.run()
    assert view.good and "timeline 2" in " ".join(view.notes), (view.errors, view.notes)
    assert copied(60) == "kept"
    assert len(one.moved(view)) == 1, "the others were compared, and agree"
    assert position().timeline == 2
    assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}

    # with auto, the row versions of one server stand for nothing on the other
    declared["fingerprint"] = "auto"
    read_from(pair.standby)
    assert one.run().good
    assert {planned.detail for planned in one.plan().ranges} == {"row versions"}
    read_from(pair.primary)
    planned = {planned.reason: planned.detail for planned in one.plan().ranges}
    assert planned == {"unchanged": "content", "source_changed": None}
