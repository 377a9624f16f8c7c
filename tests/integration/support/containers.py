"""docker-compose.yml, run here: the same commands and settings, the servers of the local stack."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tableferry_local import clickhouse, watch
from tableferry_local.process import free_port

ROOT = Path(__file__).resolve().parents[3]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

STRICT = """<clickhouse><access_control_improvements>
  <select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
  <table_engines_require_grant>true</table_engines_require_grant>
</access_control_improvements></clickhouse>"""
"""What the config.xml of ClickHouse's own image asks for."""


def new_secrets(folder: Path) -> dict[str, str]:
    """What `docker/new-secrets` makes up, by the names of its files."""
    subprocess.run([ROOT / "docker/new-secrets", folder], check=True, capture_output=True)
    return {path.name: path.read_text().strip() for path in (folder / "secrets").iterdir()}


def settings(service: str, secrets: Mapping[str, str], places: Mapping[str, str]) -> dict[str, str]:
    """The environment of a service, with what is in its secrets instead of their files.

    Args:
        service: its name.
        secrets: as `new_secrets` made them.
        places: what is at another place here: `user:password@host:port/database` in the container's
            words, or a beginning or end of it, to our own.
    """
    found = {}
    for name, text in SERVICES[service]["environment"].items():
        variable, value = name, re.sub(r"\$\{\w+:-[^}]*\}", "", text)
        if value.startswith("/run/secrets/"):
            secret = value.removeprefix("/run/secrets/")
            assert secret in SERVICES[service]["secrets"]
            variable, value = name.removesuffix("_FILE"), secrets[secret]
        for there, here in places.items():
            value = value.replace(there, here)
        found[variable] = value
    return found


def command(service: str, *replaced: tuple[str, str]) -> list[str]:
    """The command of a service, its program that of this environment."""
    program, *arguments = SERVICES[service]["command"].split()
    for there, here in replaced:
        arguments = [one.replace(there, here) for one in arguments]
    return [str(Path(sys.executable).with_name(program)), *arguments]


@dataclass(frozen=True)
class Warehouse:
    """A ClickHouse server that has its users from where docker-compose.yml puts them."""

    port: int
    admin_url: str


@contextmanager
def warehouse(folder: Path, password: str) -> Iterator[Warehouse]:
    """Start one in a folder, with the password of the user `ferry`."""
    place = clickhouse.home(folder)
    for name, text in (
        ("users.d/ferry.xml", (ROOT / "docker/setup/clickhouse-users.xml").read_text()),
        ("config.d/strict.xml", STRICT),
    ):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(text)
    watch.start(folder)
    port, admin = free_port(), "Tf1admin"
    os.environ["FERRY_CLICKHOUSE_PASSWORD"] = password
    try:
        pid = clickhouse.start(folder, port, admin)
        clickhouse.wait_ready(folder, pid, port, admin)
        # the container's set-up finds no database
        clickhouse.ask(port, admin, f"DROP DATABASE {clickhouse.DATABASE}")
        url = urlsplit(clickhouse.url(port, admin))._replace(path="/default").geturl()
        yield Warehouse(port, url)
    finally:
        del os.environ["FERRY_CLICKHOUSE_PASSWORD"]
        clickhouse.clean(folder)


class Container:
    """A process with host name and process ids of its own, as in a container.

    Args:
        hostname: as `hostname:` has it.
        arguments: the command.
        environment: all of it, but for PATH.
        log: where its output goes.
    """

    def __init__(
        self, hostname: str, arguments: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.hostname, self.environment, self.log = hostname, environment, log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*UNSHARE, "sh", "-c", 'hostname "$0" && exec "$@"', hostname, *arguments],
                cwd=log.parent,
                env={"PATH": os.environ["PATH"], **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        """Whether its first process lives."""
        return self._process.poll() is None

    def beside(self, arguments: list[str], log: Path) -> str:
        """What a command prints in another container of the same host name and environment."""
        other = Container(self.hostname, arguments, self.environment, log)
        assert other._process.wait(240) == 0, log.read_text()
        return log.read_text()

    def processes(self) -> list[psutil.Process]:
        """All of its processes."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def process(self, number: int) -> psutil.Process:
        """The one of its processes that has this number in the container."""
        (found,) = (one for one in self.processes() if _number_inside(one) == number)
        return found

    def kill(self) -> None:
        """End it with all of its processes at once, as a container is that does not stop."""
        self._process.kill()
        self._process.wait()


def _number_inside(process: psutil.Process) -> int | None:
    """A process's number in its own namespace (proc_pid_status(5)); none if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.split("NSpid:")[1].split("\n")[0].split()[-1])
    return None


UNSHARE = (
    *("setpriv", "--pdeathsig", "KILL"),  # the containers of a killed test end with it
    *("unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"),
)


def require_namespaces() -> None:
    """Skip the test where we may not make any."""
    program = shutil.which("unshare")
    if (
        not program
        or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs Linux, and the right to make namespaces (root)")
