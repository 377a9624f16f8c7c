"""The local stack's ClickHouse: a real server out of the wheel `chdb-core`.

The wheel holds the whole of clickhouse-local, which since 26.6 understands SYSTEM START LISTEN
and reads ./config.xml. An endless query keeps it alive; cancelling that query ends it.

Run as `python -m tableferry_local.clickhouse FOLDER PORT`, it is the server process.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from tableferry_local import process
from tableferry_local.errors import StackError
from tableferry_local.process import HOST

USER = "tableferry"
DATABASE = "warehouse"
"""Not `default`: in this build that one is an overlay over the file system."""

CONFIG = """<clickhouse>
  <listen_host>{host}</listen_host>
  <http_port>{port}</http_port>{tcp}
  <display_name>{host}:{port}</display_name>
  <users_config>{folder}/users.xml</users_config>
  <remote_servers>{clusters}</remote_servers>
  <max_server_memory_usage>{memory}</max_server_memory_usage>
  <shutdown_wait_unfinished>1</shutdown_wait_unfinished>
  <mark_cache_size>67108864</mark_cache_size>
  <asynchronous_metrics_update_period_s>60</asynchronous_metrics_update_period_s>
  <memory_worker_period_ms>1000</memory_worker_period_ms>
  <logger>
    <level>warning</level><async>false</async>
    <log>{folder}/server.log</log><errorlog>{folder}/server.err.log</errorlog>
    <size>10M</size><count>2</count>
  </logger>
</clickhouse>
"""

# A query of a small table costs the server 2-8 ms of CPU: a log of it a quarter of that more, and
# what the engine compiles for an expression that it meets again up to half a second, which not
# even 1.5 million rows give back.
#
# The engine itself logs in as `default` without a password, from the address that clients of the
# network have too. So `default` may do nothing but start to listen and call table functions that
# touch no data.
USERS = """<clickhouse>
  <profiles>
    <default>
      <query_profiler_real_time_period_ns>0</query_profiler_real_time_period_ns>
      <query_profiler_cpu_time_period_ns>0</query_profiler_cpu_time_period_ns>
      <log_queries>0</log_queries>
      <compile_expressions>0</compile_expressions>
      <compile_aggregate_expressions>0</compile_aggregate_expressions>
      <compile_sort_description>0</compile_sort_description>
    </default>
  </profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <no_password/><networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT CREATE TEMPORARY TABLE ON *.*</query>
      </grants>
    </default>
    <{user}>
      <password_sha256_hex>{digest}</password_sha256_hex><networks><ip>::/0</ip></networks>
      <profile>default</profile><quota>default</quota><access_management>1</access_management>
    </{user}>
  </users>
</clickhouse>
"""

TCP = "<tcp_port>{port}</tcp_port>"
CLUSTER = "<{name}><shard>{replicas}</shard></{name}>"
SHARD = (
    "<shard><replica><host>{host}</host><port>{port}</port><user>{user}</user>"
    "<password>{password}</password></replica></shard>"
)
REPLICA = "<replica><host>{host}</host><port>{port}</port></replica>"

KEEP_ALIVE = "SELECT sleepEachRow(3) FROM numbers(1000000000) SETTINGS max_block_size=1 FORMAT Null"
PASSWORD = "TABLEFERRY_CLICKHOUSE_PASSWORD"
"""The variable that hands the password to the server process, which needs it to stop itself."""

MEMORY_SHARE = 0.4
"""Part of the machine's memory that the server may take."""


def start(
    folder: Path,
    port: int,
    password: str,
    clusters: Mapping[str, Sequence[int]] | None = None,
    *,
    shards: Sequence[int] = (),
    number: int = 0,
) -> int:
    """Start the server process.

    Args:
        folder: the stack's folder.
        port: a free TCP port of the loopback interface, for HTTP.
        password: of the user `USER`.
        clusters: ports of the replicas of the clusters that it lists, by their names; by default
            only itself.
        shards: TCP ports of the servers of a cluster `shards`, which ask each other for their rows.
        number: the position of this one among them.

    Returns:
        The pid; the server may not answer yet (see `wait_ready`).
    """
    place = home(folder)
    place.mkdir(mode=0o700, exist_ok=True)
    scratch = place / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE
    listed = "".join(
        CLUSTER.format(
            name=name, replicas="".join(REPLICA.format(host=HOST, port=port) for port in ports)
        )
        for name, ports in (clusters or {"default": [9000]}).items()
    )
    if shards:
        login = {"host": HOST, "user": USER, "password": escape(password)}
        members = "".join(SHARD.format(port=port, **login) for port in shards)
        listed += f"<shards>{members}</shards>"
    config = CONFIG.format(
        host=HOST,
        port=port,
        tcp=TCP.format(port=shards[number]) if shards else "",
        folder=escape(str(place)),
        memory=int(memory),
        clusters=listed,
    )
    (place / "config.xml").write_text(config)
    _write_users(place, password)
    project = Path(__file__).resolve().parent.parent
    return process.spawn(
        [sys.executable, "-m", "tableferry_local.clickhouse", str(place), str(port)],
        folder / "clickhouse.log",
        cwd=project,
        # clickhouse-local takes the time zone from here, not from its settings.
        env={"TZ": "UTC", "TMPDIR": str(scratch), PASSWORD: password},
    )


def home(folder: Path) -> Path:
    """Where the server's files are."""
    return (folder / "clickhouse").resolve()


def wait_ready(folder: Path, pid: int, port: int, password: str) -> None:
    """Wait until the server answers to our password, and make the database if it is missing."""
    log = folder / "clickhouse.log"
    process.wait_until(lambda: _answers(port, password), pid, "ClickHouse", log, seconds=60)
    ask(port, password, f"CREATE DATABASE IF NOT EXISTS {DATABASE}")


def url(port: int, password: str) -> str:
    """The connection URL of our database."""
    return f"http://{USER}:{quote(password, safe='')}@{HOST}:{port}/{DATABASE}"


def ask(port: int, password: str, sql: str) -> str:
    """Run one statement over HTTP.

    Raises:
        OSError: the server does not answer, or refuses the statement.
    """
    headers = {"X-ClickHouse-User": USER, "X-ClickHouse-Key": password}
    request = Request(f"http://{HOST}:{port}/", data=sql.encode(), headers=headers)
    with urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def stop(pid: int) -> None:
    """Stop the server process."""
    process.stop(pid, signal.SIGTERM, seconds=20)


def leftovers(folder: Path) -> list[int]:
    """All server processes on this folder, known or not."""
    return process.servers_of("tableferry_local.clickhouse", home(folder))


def clean(folder: Path) -> None:
    """Kill what is left of a crashed server."""
    for pid in leftovers(folder):
        process.kill(pid)


def _write_users(place: Path, password: str) -> None:
    digest = hashlib.sha256(password.encode()).hexdigest()
    users = place / "users.xml"
    users.touch(mode=0o600)
    users.write_text(USERS.format(user=USER, digest=digest))


def _answers(port: int, password: str) -> bool:
    try:
        return ask(port, password, "SELECT 1").strip() == "1"
    except HTTPError as error:
        # Not ours, but somebody else's who took the port: waiting does not help.
        raise StackError(f"another server answers on port {port} ({error.code})") from None
    except OSError:
        return False


def serve(place: Path, port: int, password: str) -> int:
    """Be the server until SIGTERM or SIGINT.

    Args:
        place: folder with config.xml and users.xml; the data goes into it too.
        port: the HTTP port of config.xml.
        password: of the user `USER`.

    Returns:
        The exit code: 0 if stopped by a signal, 1 if the engine ended by itself.
    """
    os.chdir(place)  # the engine picks up ./config.xml
    lock = (place / "server.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"{place} is in use by another server", file=sys.stderr)
        return 1
    stopping = threading.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: stopping.set())
    engine = threading.Thread(target=_run_engine, args=(place,))
    engine.start()
    while engine.is_alive() and not stopping.wait(0.1):
        pass
    while engine.is_alive():
        with suppress(OSError):  # it may not listen yet, or not any more
            ask(port, password, f"KILL QUERY WHERE user = '' AND query = '{KEEP_ALIVE}' ASYNC")
        engine.join(0.5)
    return 0 if stopping.is_set() else 1


def _run_engine(place: Path) -> None:
    # Private, but the only entry that runs whole programs of statements; hence the exact pin and
    # the smoke test. "TabSeparated" becomes the server's default format: with another one,
    # clickhouse-connect cannot read the answers to its first questions.
    # The package itself is not run: it starts another engine to ask for its version, and imports
    # pyarrow.
    package = importlib.util.find_spec("chdb")
    assert package is not None
    sys.modules["chdb"] = importlib.util.module_from_spec(package)
    from chdb import _chdb

    tcp = "SYSTEM START LISTEN TCP; " if "<tcp_port>" in (place / "config.xml").read_text() else ""
    result = _chdb.query(  # type: ignore[attr-defined]
        f"SYSTEM START LISTEN HTTP; {tcp}{KEEP_ALIVE}", "TabSeparated", path=str(place / "data")
    )
    print(result.error_message() if result.has_error() else "the engine ended", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2]), os.environ[PASSWORD]))
