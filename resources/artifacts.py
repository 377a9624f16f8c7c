"""Artifact files: private, of bounded size, hashed, and gone once their range is committed."""

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
"""Environment variable: where artifact files are written."""

BYTES = "TABLEFERRY_ARTIFACT_BYTES"
"""Environment variable: the most bytes of one artifact file."""

MOST_BYTES = 256 << 20
"""Large enough that starting a tool (a tenth of a second) is not seen, small beside any disk."""

RESERVE = 64 << 20
"""Bytes that an artifact leaves free, for everybody else."""


class DiskFull(InputError):
    """The folder for artifacts has no room; the message names it, and the bytes."""


@dataclass(frozen=True)
class Artifact:
    """A finished file, or what went through a named pipe."""

    path: Path
    rows: int
    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.bytes} bytes, SHA-256 {self.sha256}"

    def require_whole(self) -> None:
        """Raise unless the file has the bytes that were written.

        Raises:
            ReceiptMismatch: it was cut short, or written to by somebody else.
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


def artifact_folder(given: str | None = None) -> Path:
    """Where artifacts go: as given, as the environment says, or the system's place for them."""
    default = Path(tempfile.gettempdir()) / f"tableferry-{os.getuid()}"
    return Path(given or os.environ.get(FOLDER) or default)


def most_bytes(given: int | None = None) -> int:
    """The most bytes of one artifact.

    Raises:
        InputError: the environment variable is no number.
    """
    text = os.environ.get(BYTES)
    if given is not None or not text:
        return given or MOST_BYTES
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{BYTES} should be a number of bytes; found {text!r}")
    return int(text)


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A folder of one's own, empty and private; what is in it is removed at the end.

    A lock beside it tells the living from the dead, so that the first call after a crash removes
    what the crash left. The system gives the lock back when a process ends, however it ends.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_orphans(folder)
        own, lock = _make(folder)
    except OSError as error:
        raise InputError(f"artifact folder {folder}: {(error.strerror or '').lower()}") from None
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        Path(lock.name).unlink(missing_ok=True)
        lock.close()


def remove_orphans(folder: Path) -> list[str]:
    """Remove the workspaces of dead processes; returns their names."""
    removed = []
    for path in sorted(folder.glob("*.lock")):
        with contextlib.suppress(OSError), path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
            removed.append(path.stem)
    return removed


def _make(folder: Path) -> tuple[Path, IO[bytes]]:
    while True:
        own = folder / uuid.uuid4().hex
        path = own.with_suffix(".lock")
        lock = path.open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        # somebody who looked for orphans may have removed it before it was locked
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                own.mkdir(mode=0o700)
                return own, lock
        lock.close()


def require_room(folder: Path, needed: int) -> None:
    """Raise unless the disk takes so many bytes and keeps a reserve.

    Raises:
        DiskFull: it does not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + RESERVE:
        raise DiskFull(
            f"artifact folder {folder}: {needed + RESERVE} bytes are needed, {free} are free; "
            f"free some, cut smaller ranges, set {FOLDER} to another folder, or {BYTES} to less"
        )


class ArtifactWriter:
    """Writes one artifact.

    Args:
        path: the file, which must not exist.
        limit: its most bytes; the room for them is looked for first.
    """

    def __init__(self, path: Path, limit: int) -> None:
        require_room(path.parent, limit)
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
