"""The local stack's SQL Server stand-in, as a process: `python -m tableferry_local.sqlserver`."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tableferry_local import process
from tableferry_local.process import HOST

USER = "sa"
DATABASE = "tableferry"
PASSWORD = "TABLEFERRY_STANDIN_PASSWORD"
"""The variable that hands the password to the process, where `ps` does not show it."""


def start(folder: Path, port: int, password: str, postgres_url: str) -> int:
    """Start the server process.

    Args:
        folder: the stack's folder.
        port: a free TCP port of the loopback interface.
        password: of the login `sa`.
        postgres_url: the database in which the stand-in keeps its tables.

    Returns:
        The pid; the server may not answer yet (see `wait_ready`).
    """
    place = home(folder)
    place.mkdir(mode=0o700, exist_ok=True)
    address = urlsplit(postgres_url)
    public = urlunsplit(
        address._replace(netloc=f"{address.username}@{address.hostname}:{address.port}")
    )
    command = [sys.executable, "-m", "tableferry_local.sqlserver"]
    command += ["--host", HOST, "--port", str(port), "--postgres", public, "--user", USER]
    command += ["--password-env", PASSWORD, "--cert-dir", str(place)]
    return process.spawn(
        command,
        folder / "sqlserver.log",
        cwd=Path(__file__).resolve().parent.parent,
        env={PASSWORD: password, "PGPASSWORD": address.password or ""},
    )


def home(folder: Path) -> Path:
    """Where the server's files are: its TLS certificate; its data is in PostgreSQL."""
    return (folder / "sqlserver").resolve()


def wait_ready(folder: Path, pid: int, port: int, password: str) -> None:
    """Wait until the server accepts connections."""
    log = folder / "sqlserver.log"
    process.wait_until(lambda: _accepts(port), pid, "the SQL Server stand-in", log, seconds=60)


def url(port: int, password: str) -> str:
    """The connection URL. Nobody knows the certificate's authority: encrypted, not verified."""
    return (
        f"mssql://{USER}:{password}@{HOST}:{port}/{DATABASE}"
        "?encrypt=yes&trust_server_certificate=yes"
    )


def stop(pid: int) -> None:
    """Stop the server process and its connections."""
    process.stop(pid, signal.SIGTERM, seconds=10)


def leftovers(folder: Path) -> list[int]:
    """All server processes on this folder, its per-connection children included."""
    return process.servers_of("tableferry_local.sqlserver", home(folder))


def clean(folder: Path) -> None:
    """Kill what is left of a crashed server."""
    for pid in leftovers(folder):
        process.kill(pid)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
