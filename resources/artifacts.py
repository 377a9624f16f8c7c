"""Artifact files: private, bounded in size, hashed, and removed when their range is committed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tableferry.resources.errors import InputError, ReceiptMismatch

FOLDER = "TABLEFERRY_ARTIFACTS"
"""Environment variable: the folder of artifact files."""

BYTES = "TABLEFERRY_ARTIFACT_BYTES"
"""Environment variable: the maximum size of an artifact file."""

MOST_BYTES = 256 << 20
"""Large enough to hide the start of a tool (a tenth of a second), small beside any disk."""

RESERVE = 64 << 20
"""Bytes of the disk that an artifact must leave free."""


class DiskFull(InputError):
    """The disk of the artifact folder is full; the message names the folder and the bytes."""


@dataclass(frozen=True)
class Artifact:
    """A finished file, or the bytes that went through a named pipe."""

    path: Path
    rows: int
    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.bytes} bytes, SHA-256 {self.sha256}"

    def require_whole(self) -> None:
        """Make sure that the file holds the bytes that were written.

        Raises:
            ReceiptMismatch: it was truncated or changed.
        """
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise ReceiptMismatch(f"{self.path} is gone") from None
        if (size, digest) != (self.bytes, self.sha256):
            raise ReceiptMismatch(
                f"{self.path} should have {self.bytes} bytes with SHA-256 {self.sha256}; "
                f"found {size} bytes with {digest}"
            )


def artifact_folder() -> Path:
    """The folder of artifacts: of the environment, or a temporary one."""
    default = Path(tempfile.gettempdir()) / f"tableferry-{os.getuid()}"
    return Path(os.environ.get(FOLDER) or default)


def most_bytes() -> int:
    """The maximum size of an artifact.

    Raises:
        InputError: the environment variable is no number.
    """
    text = os.environ.get(BYTES)
    if not text:
        return MOST_BYTES
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{BYTES} should be a number of bytes; found {text!r}")
    return int(text)


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """Yield a new, private folder, and remove it at the end.

    The process locks a file beside it. The kernel releases the lock however the process ends, so
    that the next call removes the folder of a process that crashed.

    Raises:
        InputError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_orphans(folder)
        created, lock = _create(folder)
    except OSError as error:
        raise InputError(f"artifact folder {folder}: {(error.strerror or '').lower()}") from None
    try:
        yield created
    finally:
        shutil.rmtree(created, ignore_errors=True)
        Path(lock.name).unlink(missing_ok=True)
        lock.close()


def remove_orphans(folder: Path) -> list[str]:
    """Remove the workspaces of dead processes; return their names."""
    removed = []
    for path in sorted(folder.glob("*.lock")):
        with contextlib.suppress(OSError), path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
            removed.append(path.stem)
    return removed


def _create(folder: Path) -> tuple[Path, IO[bytes]]:
    while True:
        created = folder / uuid.uuid4().hex
        path = created.with_suffix(".lock")
        lock = path.open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # another process may have taken it for an orphan before it was locked
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                created.mkdir(mode=0o700)
                return created, lock
        lock.close()


def require_space(folder: Path, needed: int) -> None:
    """Make sure that so many bytes, and the reserve, are free.

    Raises:
        DiskFull: they are not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + RESERVE:
        raise DiskFull(
            f"artifact folder {folder}: {needed + RESERVE} bytes are needed, {free} are free; "
            f"free some, cut smaller ranges, set {FOLDER} to another folder, or {BYTES} to less"
        )


class ArtifactWriter:
    """Writes an artifact to a new file, for whose maximum size there must be space."""

    def __init__(self, path: Path, limit: int) -> None:
        require_space(path.parent, limit)
        self._path, self._hash = path, hashlib.sha256()
        self._file = path.open("xb")
        self.rows = self.bytes = 0

    def write(self, data: bytes, rows: int) -> None:
        """Append whole rows."""
        try:
            self._file.write(data)
        except OSError as error:
            raise DiskFull(
                f"artifact folder {self._path.parent}: {error.strerror} after {self.bytes} bytes"
            ) from None
        self._hash.update(data)
        self.rows += rows
        self.bytes += len(data)

    def finish(self) -> Artifact:
        """Close the file."""
        self._file.close()
        return Artifact(self._path, self.rows, self.bytes, self._hash.hexdigest())

    def discard(self) -> None:
        """Close and remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)
