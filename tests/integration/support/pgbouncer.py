"""A PgBouncer in front of the PostgreSQL of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pytest


@contextmanager
def pgbouncer(url: str, *, by_socket: bool = False, **settings: str) -> Iterator[str]:
    """Start one, and yield the URL that leads through it.

    Args:
        url: of the server behind.
        by_socket: whether the URL names its socket.
        settings: of its configuration, e.g. `pool_mode`.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    parts = urlsplit(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    given = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "auth_type": "trust",
        "admin_users": user,
        **settings,
    }
    lines = ["[databases]", f"* = host={parts.hostname} port={parts.port}", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in given.items()]
    with tempfile.TemporaryDirectory() as folder:
        config, users, log = (Path(folder, name) for name in ("pgbouncer.ini", "users", "log"))
        users.write_text(f'"{user}" "{password}"\n')
        config.write_text(
            "\n".join([*lines, f"auth_file = {users}", f"unix_socket_dir = {folder}"]) + "\n"
        )
        for path, mode in ((Path(folder), 0o777), (users, 0o644), (config, 0o644)):
            path.chmod(mode)
        as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, *as_user, str(config)], stdout=output, stderr=subprocess.STDOUT
            )
        through = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
        through += f"?host={folder}" if by_socket else ""
        try:
            deadline = time.monotonic() + 120
            while not _answers(through):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield through
        finally:
            process.terminate()
            process.wait(120)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
