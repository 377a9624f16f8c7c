"""Where passwords come from: programs, objects, and files that `<VARIABLE>_FILE` names."""

from __future__ import annotations

import itertools
import os
import pkgutil
import re
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tableferry.resources.contract.settings import without_password
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError, describe

SUFFIX = "_FILE"

MOST_BYTES = 65_536
"""No URL or password is longer: a larger file holds something else."""


def from_environment(variable: str) -> str | None:
    """The value of a variable, or the content of the file that `<variable>_FILE` names.

    Raises:
        InputError: both are set, or as `read` says.
    """
    value, path = os.environ.get(variable), os.environ.get(variable + SUFFIX)
    if value and path:
        raise both_set(variable)
    return read(path, variable + SUFFIX) if path else value or None


def set_as(variable: str) -> str | None:
    """Find a variable that is set, in whatever case; None if it is not."""
    return next(
        (name for name in os.environ if name.upper() == variable and os.environ[name]), None
    )


def one_line(data: bytes) -> str | None:
    """Return the line of text that a secret is, without its end; None if it is empty or more.

    Raises:
        UnicodeDecodeError: it is not UTF-8 text.
    """
    text = data.decode().rstrip("\r\n")
    return None if len(text.splitlines()) != 1 or len(data) > MOST_BYTES else text


def both_set(variable: str) -> InputError:
    """The error for a variable that is set along with its file."""
    return InputError(f"{variable} and {variable}{SUFFIX} are both set; one of them should be")


def read(path: str, named_by: str) -> str:
    """Read the secret in a file, without the line ending.

    A file that other users can read is refused, as ssh refuses such keys. There are two exceptions:
    a file on a read-only mount, which is how Kubernetes, Docker and Podman pass secrets to a
    container (mode 0444 or 0644, with no other users inside); and a file of root's that a group may
    read (`root:ferry`, mode 0640 or 0440), which only root can have set up.

    Args:
        path: the file's path.
        named_by: the variable or the field that names it, for messages.

    Raises:
        InputError: the file does not exist, cannot be read, can be read by others, or does not hold
            one line of text. No message shows its content.
    """
    if "://" in path:
        raise InputError(f"{named_by} should be the path of a file that holds the URL, not a URL")
    try:
        # a pipe might block, and would be empty when it is read again
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{named_by}: {path} is not a regular file")
            if _exposed(descriptor, status):
                mode = stat.S_IMODE(status.st_mode)
                raise InputError(
                    f"{named_by}: other users can read {path} (mode {mode:04o}), which holds a "
                    f"secret: chmod 600 {path}"
                )
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{named_by}: {path}: {(error.strerror or '').lower()}") from None
    try:
        text = one_line(data)
    except UnicodeDecodeError:
        raise InputError(f"{named_by}: {path} is not UTF-8 text") from None
    if text is None:
        problem = "holds more than that" if data.rstrip(b"\r\n") else "is empty"
        raise InputError(f"{named_by}: {path} should hold the secret in one line; it {problem}")
    return text


def _exposed(descriptor: int, status: os.stat_result) -> bool:
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not others or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return False
    return not (status.st_uid == 0 and others == stat.S_IRGRP)


Arguments = ParamSpec("Arguments")
Connection = TypeVar("Connection")

KEPT_SECONDS = 300.0
"""The default time for which a password is used again. A token of Amazon RDS serves for logins of
15 minutes, one of Microsoft Entra ID for an hour."""

PATIENCE = 60.0
"""Seconds after which a program that has not ended is ended."""

POLL_SECONDS = 0.1
"""Between two looks whether a program has ended that leaves its output open."""

FRESH_SECONDS = 1.0
"""A login that is refused with a password younger than this is refused for good."""

LONGEST_COMPLAINT = 300
"""Characters of what a failed program has written to stderr that its error repeats."""

LATEST = 4
"""How many of a program's passwords are looked for in texts: logins under way may have old ones."""

_kept: dict[str, tuple[float, str]] = {}
_given: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=LATEST))
_providers: dict[str, object] = {}
_asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True)
class PasswordCommand:
    """A program whose output is the password; it is run without a shell.

    Args:
        command: the program and its arguments, quoted as for a shell.
        named_by: the field, option or variable that declares it, for messages.
        seconds: how long a password may be used again.
    """

    command: str
    named_by: str
    seconds: float = KEPT_SECONDS

    def __str__(self) -> str:
        return f"the program {self.command.split(maxsplit=1)[0]}"

    @property
    def key(self) -> str:
        """What only this program has."""
        return self.command

    def password(self) -> str:
        """Return the password, asking the program unless one is kept.

        Raises:
            InputError: the program cannot be run, fails, takes longer than `PATIENCE`, or does not
                print one line. The message names the program, never what it printed.
        """
        with _asking[self.key]:
            asked_at, password = _kept.get(self.key, (0.0, ""))
            if not password or time.monotonic() - asked_at >= self.seconds:
                password = self._ask()
                _kept[self.key] = time.monotonic(), password
                _given[self.key].append(password)
            return password

    def forget(self, refused: str) -> bool:
        """Forget a refused password; return whether the next one may be let in.

        That is so if the refused one was kept, or another thread has it replaced already.
        """
        with _asking[self.key]:
            asked_at, password = _kept.get(self.key, (0.0, ""))
            if password != refused:
                return True
            del _kept[self.key]
            return time.monotonic() - asked_at >= FRESH_SECONDS

    def given(self) -> Sequence[str]:
        """Return the latest passwords, without asking the program."""
        return tuple(_given[self.key])

    def _ask(self) -> str:
        try:
            program, *arguments = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"{self.named_by}: {str(error).lower()}") from None
        where = f"{self.named_by}: {program}"
        try:
            code, printed, complained = _run([program, *arguments])
        except OSError as error:
            raise InputError(f"{where}: {(error.strerror or str(error)).lower()}") from None
        except subprocess.TimeoutExpired:
            raise InputError(f"{where} has not ended within {PATIENCE:g} seconds") from None
        if code:
            said = complained.decode(errors="replace")
            shown = printed.decode(errors="replace")
            # also what stands between the quotes of a JSON text
            for secret in (*self.given(), *shown.split(), *re.split(r"[\s\"']+", shown)):
                said = without_password(said, secret)
            said = " ".join(said.split())[-LONGEST_COMPLAINT:]
            raise InputError(f"{where} ended with {code}{f': {said}' if said else ''}")
        try:
            password = one_line(printed)
        except UnicodeDecodeError:
            raise InputError(f"{where} printed what is not UTF-8 text") from None
        if password is None:
            what = "more than that" if printed.rstrip(b"\r\n") else "nothing"
            raise InputError(f"{where} should print the password in one line, and printed {what}")
        return password


def _run(command: Sequence[str]) -> tuple[int, bytes, bytes]:
    """Return a program's exit code, and what it wrote to stdout and stderr.

    Raises:
        subprocess.TimeoutExpired: it has been ended, with the programs that it has started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        until = time.monotonic() + PATIENCE
        try:
            while True:
                try:
                    printed, complained = process.communicate(timeout=POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    # programs in the background may hold its output open, and end with it
                    if process.poll() is not None:
                        _end(process.pid)
                    if time.monotonic() >= until:
                        raise
        finally:
            _end(process.pid)
    return process.returncode, printed, complained


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True)
class PasswordProvider(PasswordCommand):
    """A Python object that gives the password, as Dagster's and the clouds' own token providers do.

    Args:
        command: its name, `module:attribute`, or as `named` returns it. It is called, or its method
            `get_token`.
    """

    def __str__(self) -> str:
        return self.command

    def _ask(self) -> str:
        where = f"{self.named_by}: {self.command}"
        try:
            provider: Any = _providers.get(self.command) or pkgutil.resolve_name(self.command)
            password = getattr(provider, "get_token", provider)()
        except TableferryError:
            raise
        except Exception as error:  # the user's code
            raise InputError(f"{where}: {describe(error)}") from None
        if not isinstance(password, str) or not password:
            raise InputError(f"{where} should give a text, and gave {type(password).__name__}")
        return password


def named(provider: object) -> str:
    """Return a name for a provider that is handed over as an object, which is kept."""
    if isinstance(provider, str):
        return provider
    name = getattr(provider, "__qualname__", type(provider).__qualname__)
    for number in itertools.count(1):
        key = f"{name} {number}"
        if _providers.setdefault(key, provider) is provider:
            return key
    raise AssertionError


def asking_again(connect: Callable[Arguments, Connection]) -> Callable[Arguments, Connection]:
    """Let a function that connects do so once more with a new password, if its was outdated."""

    @wraps(connect)
    def connected(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Connection:
        try:
            return connect(*args, **kwargs)
        except ConnectionFailed as error:
            if not error.outdated_password:
                raise
        return connect(*args, **kwargs)

    return connected


def kept_seconds(value: object, named_by: str) -> float:
    """Read for how long a password is kept.

    Raises:
        InputError: the value is no number of seconds, 0 or more.
    """
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InputError(f"{named_by} should be a number of seconds, 0 or more; it is {value!r}")
    return seconds


# a thread of the parent may have been asking, and does not go on in the child
os.register_at_fork(after_in_child=_asking.clear)
