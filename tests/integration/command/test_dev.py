"""`ferry dev` and `make dev` as processes: from any folder, and how they end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tableferry.pipelines.command import dev
from tableferry.resources.child_processes import ending_with_us
from tableferry_local.process import free_port
from tests.integration.support.beside import until
from tests.integration.support.webui import browser
from tests.servers import Servers

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
SECONDS_TO_END = 20
"""A few on an idle machine; the services are killed after 8."""

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRACEBACK = re.compile(
    r"(?m)(?<!Exception in ASGI application\n)(?<!another exception occurred:\n\n)^Traceback"
)
"""All but those of requests that the webserver was answering when it was interrupted: a browser
that is left open asks all the time."""


@pytest.fixture
def surroundings(stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the packages of another project, the place of transfers and event log."""
    for name in ("assets", "resources"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('theirs')\n")
    (tmp_path / "moves").mkdir()
    (tmp_path / "moves" / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\nhops: ['clickhouse://warehouse.t']\nkey: id\n"
    )
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", "moves")
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


class Running:
    """A command that shows Dagster's user interface, and all processes under it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.url = f"http://127.0.0.1:{port}"
        until("Dagster's user interface", self._answers, seconds=300)
        top = psutil.Process(process.pid)
        self.family = [top, *top.children(recursive=True)]
        assert len(self.family) > 4, "the command, dagster dev, webserver, daemon, code server"

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            urllib.request.urlopen(f"{self.url}/server_info", timeout=5).close()
        except OSError:
            return False
        return True

    def ask(self, query: str) -> str:
        request = urllib.request.Request(
            f"{self.url}/graphql", query.encode(), {"Content-Type": "application/graphql"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def assert_all_ended(self, began: float) -> None:
        until(
            f"the end of all processes; {self.log.read_text()}",
            lambda: (
                self.process.poll() is not None and not any(one.is_running() for one in self.family)
            ),
            SECONDS_TO_END,
        )
        assert time.monotonic() - began < SECONDS_TO_END
        with socket.create_server(("127.0.0.1", self.port)):
            pass  # the port is free again
        log = self.log.read_text()
        assert not TRACEBACK.search(log), log


def _as_a_background_job() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Dagster gives SIGTERM the handler of SIGINT here, which tests in the background ignore
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def running(folder: Path, command: Sequence[str | Path], port: int) -> Iterator[Running]:
    """Start it as a shell's background job: with SIGINT ignored, which children inherit."""
    log = folder / "dev.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*ending_with_us("TERM"), *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_as_a_background_job,  # noqa: PLW1509
        )
    try:
        yield Running(process, port, log)
    finally:
        process.terminate()  # where a test has failed before it did so
        process.wait(120)


def test_ferry_dev_shows_ones_own_transfers_from_any_folder(
    surroundings: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (surroundings / "moves" / "bad.yaml").write_text("transfer: bad\nschedule: every day\n")
    port = free_port()
    with running(surroundings, [BIN / "ferry", "dev", "--port", str(port)], port) as found:
        home = surroundings / "state" / "tableferry" / "dagster"
        for line in (
            "ferry: left out ",
            f"Dagster's event log is in {home}",
            f"Dagster is starting at {found.url}; Ctrl-C ends it.",
        ):
            assert line in found.log.read_text()
        answer = found.ask(
            "{ workspaceOrError { ... on Workspace { locationEntries { name } } }"
            " assetNodes { assetKey { path } groupName } }"
        )
        for part in (
            '"name":"tableferry"',
            '"path":["clickhouse","warehouse","t"]},"groupName":"warehouse"',
            '"path":["invalid_transfers","bad"]},"groupName":"invalid_transfers"',
        ):
            assert part in answer
        with browser(found.url, tmp_path_factory.mktemp("chromium")) as page:
            page.open("/locations/tableferry/asset-groups/invalid_transfers")
            page.see("bad", "0 / 1 Passed")
            page.open("/assets/invalid_transfers/bad?view=checks")
            page.see("valid_file", "Failed", "schedule: should be a cron line")
        began = time.monotonic()
        os.kill(found.process.pid, signal.SIGINT)
        found.assert_all_ended(began)
        assert found.process.returncode == 0
    assert {path.name for path in surroundings.iterdir()} == {
        *("assets", "resources", "moves", "state", "dev.log")
    }, "nothing is left in the working folder"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_make_dev_in_the_background_ends(
    surroundings: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(surroundings / "moves"))
    monkeypatch.setenv("DAGSTER_HOME", str(surroundings / "home"))
    port = free_port()
    command = ["make", "-C", str(ROOT), "-o", ".venv/.installed", f"BIN={BIN}"]
    with running(surroundings, [*command, f"DAGSTER_PORT={port}", "dev"], port) as found:
        began = time.monotonic()
        if number == signal.SIGTERM:
            os.kill(found.process.pid, number)
        else:  # as a terminal does; make itself ignores it in the background
            os.killpg(found.process.pid, number)
        found.assert_all_ended(began)


def test_a_taken_port_is_named(surroundings: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = subprocess.run(
            [BIN / "ferry", "dev", "--port", str(port)],
            cwd=surroundings,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert found.returncode == 2
    assert found.stderr == (
        f"ferry: cannot listen on 127.0.0.1 port {port}: Address already in use; "
        "take another: ferry dev --port N\n"
    )


def test_services_that_end_by_themselves_are_told(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], process_group=0)

    monkeypatch.chdir(surroundings)
    monkeypatch.setattr(dev, "_start", start)
    assert dev.dev("127.0.0.1", free_port()) == 1
    assert "ferry: dagster dev ended with exit code 3" in capsys.readouterr().err
