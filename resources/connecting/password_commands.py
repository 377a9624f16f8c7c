"""Programs that print a password: the tokens of cloud databases, or the secrets of a vault."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from tableferry.resources.connecting.secret_files import one_line
from tableferry.resources.errors import ConnectionFailed, InputError

Arguments = ParamSpec("Arguments")
Connection = TypeVar("Connection")

KEPT_SECONDS = 300.0
"""The default time for which a password is used again. A token of Amazon RDS serves for logins of
15 minutes, one of Microsoft Entra ID for an hour."""

PATIENCE = 60.0
"""Seconds after which a program that has not ended is ended."""

FRESH_SECONDS = 1.0
"""A login that is refused with a password younger than this is refused for good."""

LONGEST_COMPLAINT = 300
"""Characters of what a failed program has written to stderr that its error repeats."""

_kept: dict[str, tuple[float, str]] = {}
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

    def password(self) -> str:
        """Return the password, asking the program unless one is kept.

        Raises:
            InputError: the program cannot be run, fails, takes longer than `PATIENCE`, or does not
                print one line. The message names the program, never what it printed.
        """
        with _asking[self.command]:
            asked_at, password = _kept.get(self.command, (0.0, ""))
            if not password or time.monotonic() - asked_at >= self.seconds:
                password = self._ask()
                _kept[self.command] = time.monotonic(), password
            return password

    def forget(self, refused: str | None) -> bool:
        """Forget a refused password; return whether the next one may be let in.

        That is so if the refused one was kept, or another thread has it replaced already.
        """
        with _asking[self.command]:
            asked_at, password = _kept.get(self.command, (0.0, ""))
            if password != refused:
                return True
            del _kept[self.command]
            return time.monotonic() - asked_at >= FRESH_SECONDS

    def _ask(self) -> str:
        try:
            program, *arguments = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"{self.named_by}: {str(error).lower()}") from None
        where = f"{self.named_by}: {program}"
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except OSError as error:
            raise InputError(f"{where}: {(error.strerror or str(error)).lower()}") from None
        except subprocess.TimeoutExpired:
            raise InputError(f"{where} has not ended within {PATIENCE:g} seconds") from None
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())[-LONGEST_COMPLAINT:]
            raise InputError(f"{where} ended with {done.returncode}{f': {said}' if said else ''}")
        try:
            password = one_line(done.stdout)
        except UnicodeDecodeError:
            raise InputError(f"{where} printed what is not UTF-8 text") from None
        if password is None:
            printed = "more than that" if done.stdout.rstrip(b"\r\n") else "nothing"
            raise InputError(
                f"{where} should print the password in one line, and printed {printed}"
            )
        return password


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
