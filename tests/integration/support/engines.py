"""Older engines of ClickHouse, out of the packages `chdb` and `chdb-core`, to be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.integration.support import venvs

ENGINES = {
    "24.8": "chdb==3.1.2",
    "25.5": "chdb==3.4.1",
    "25.8": "chdb==3.7.2",
    "26.1": "chdb-core==26.1.0",
    "26.3": "chdb-core==26.3.0",
    "26.5": "chdb-core==26.5.0",
    "26.7": "chdb-core==26.7.3",
}
"""The package that has a version of the engine."""

FRONT = Path(__file__).with_name("engine_front.py")


@dataclass
class Engine:
    """A server that a test has for itself."""

    python: Path
    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """The connection URL of its database."""
        return f"http://default@127.0.0.1:{self.port}/warehouse"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self.python, FRONT, self.folder / "data", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "TZ": "UTC"}
            )
        for _ in range(600):
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=1):
                    return
            except (URLError, OSError):
                assert self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)
        raise AssertionError("the engine does not answer")

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it: as a crash does, or by SIGTERM in its own order."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def restart(self, number: int) -> None:
        """End it and start it again."""
        self.end(number)
        self.start()


def python_of(version: str) -> Path:
    """The Python of the environment that has the engine, which is made if it is not there."""
    place = venvs.ROOT / "build" / "engines" / version
    python = place / "bin/python"
    if not (place / "made").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        venvs.uv("venv", "--quiet", "--clear", "--python", sys.executable, place)
        venvs.uv("pip", "install", "--quiet", "--python", python, ENGINES[version])
        (place / "made").touch()
    return python


@contextmanager
def running(version: str, folder: Path) -> Iterator[Engine]:
    """Have an engine of this version, with an empty database `warehouse`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = Engine(python_of(version), folder, port)
    try:
        engine.start()
        statement = "CREATE+DATABASE+warehouse+ENGINE=Atomic"
        urlopen(f"http://127.0.0.1:{port}/?query={statement}", data=b"", timeout=10).close()
        yield engine
    finally:
        engine.end()
