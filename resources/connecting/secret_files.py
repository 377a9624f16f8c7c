"""Secrets that stand in files: `<VARIABLE>_FILE` in the environment names one."""

from __future__ import annotations

import os
import stat

from tableferry.resources.errors import InputError

SUFFIX = "_FILE"

MOST_BYTES = 65_536
"""No URL and no password is longer; what is, is another file."""


def from_environment(variable: str) -> str | None:
    """The value of a variable, or what the file holds that `<variable>_FILE` names.

    Raises:
        InputError: both are set; or see `read`.
    """
    value, path = os.environ.get(variable), os.environ.get(variable + SUFFIX)
    if value and path:
        raise both_set(variable)
    return read(path, variable + SUFFIX) if path else value or None


def both_set(variable: str) -> InputError:
    """The error that says so of a variable and its file."""
    return InputError(f"{variable} and {variable}{SUFFIX} are both set; one of them should be")


def read(path: str, named_by: str) -> str:
    """The secret in a file, without the line's end.

    A file that others can read is refused, as ssh refuses such a key. Two kinds are not: one on a
    mount that is read-only, which is how Kubernetes, Docker and Podman hand secrets to a container
    (mode 0444 or 0644, and nobody else is in there); and one of root's that a group may read
    (`root:ferry`, mode 0640 or 0440), which only root can have meant.

    Args:
        path: of the file.
        named_by: the variable or the field that names it, for messages.

    Raises:
        InputError: there is no such file, it may not be read, others can read it, or it does not
            hold one line of text. No message shows what is in it.
    """
    if "://" in path:
        raise InputError(f"{named_by} should be the path of a file that holds the URL, not a URL")
    try:
        # a pipe would be empty when it is read again, and might never answer
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
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InputError(f"{named_by}: {path} is not a text in UTF-8") from None
    if not text or len(text.splitlines()) > 1 or len(data) > MOST_BYTES:
        found = "is empty" if not text else "holds more than that"
        raise InputError(f"{named_by}: {path} should hold the secret in one line; it {found}")
    return text


def _exposed(descriptor: int, status: os.stat_result) -> bool:
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not others or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return False
    return not (status.st_uid == 0 and others == stat.S_IRGRP)
