"""Secrets in files that environment variables `<VARIABLE>_FILE` name."""

from __future__ import annotations

import os
import stat

from tableferry.resources.errors import InputError

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
