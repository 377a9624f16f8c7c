"""`ferry certify` on servers of the tests: what has become of it, and the certificate."""

from __future__ import annotations

import fcntl
import json
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from tableferry.pipelines.certifying.scenarios import Trial, Trials
from tableferry.pipelines.cli import main
from tests.servers import RUN, Servers

SCHEMA = Path(__file__).parents[3] / "docs" / "certificate.schema.json"
DIRECT = ("--route", "postgres:clickhouse", "--rows", "200")
"""The shortest way, with few rows."""

Document = dict[str, Any]


def set_servers(stack: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands find these servers, and no transfers or home of anybody's."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("DAGSTER_HOME", "TABLEFERRY_TRANSFERS"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def alone() -> Iterator[None]:
    """Look at what certifying leaves on the servers, while no other worker certifies."""
    with _locked(fcntl.LOCK_EX):
        yield


@contextmanager
def among_others() -> Iterator[None]:
    """Certify while other workers do, but none that is `alone`."""
    with _locked(fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(how: int) -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / f"tableferry-certifying-{RUN}").open("w") as lock:
        fcntl.flock(lock, how)
        yield


def certified(folder: Path, *options: str) -> tuple[Result, Document]:
    """Run the command; returns its end, and the certificate, which is empty if there is none."""
    result = CliRunner().invoke(main, ["certify", "--output", str(folder), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    file = folder / "certificate.json"
    document: Document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if document:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema).validate(document)
    return result, document


def results(document: Document) -> dict[str, str]:
    """The results of the scenarios, by name."""
    return {each["name"]: each["result"] for each in document["scenarios"]}


def seen(document: Document, name: str) -> str:
    """What was seen in a scenario."""
    return next(str(each["seen"]) for each in document["scenarios"] if each["name"] == name)


def break_product(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have this code run in each process of Python before anything else does."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def try_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave out all scenarios but the full run, which is always the first, and these."""
    every = Trials.all

    def some(trials: Trials) -> Iterator[Trial]:
        return (trial for trial in every(trials) if trial[0] in ("full run", *names))

    monkeypatch.setattr(Trials, "all", some)


@contextmanager
def restarting(restart: Callable[[], None], folder: Path) -> Iterator[str]:
    """Yield a command that has this process restart a server, and waits until it has."""
    wanted, ended = folder / "restart", threading.Event()
    done = f"while [ -e {shlex.quote(str(wanted))} ]; do sleep 0.1; done"

    def serve() -> None:
        while not ended.wait(0.05):
            if wanted.exists():
                restart()
                wanted.unlink()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"touch {shlex.quote(str(wanted))}; {done}"
    ended.set()
    thread.join()
