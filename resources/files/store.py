"""Where files lie: what a store offers, and folders of this machine."""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from resources.errors import ConnectionFailed, TableMissing
from resources.tables import TableRef

SETTLED_SECONDS = 2.0
"""What was learned of a file that was written less long ago is not kept: within the resolution of
its time it may have been written again."""


class Found(NamedTuple):
    """A file of a table, as a store lists it."""

    path: str
    """As messages and DuckDB name it."""
    name: str
    """Below the folder, with `/`."""
    size: int
    version: str
    """Changes whenever the contents do."""


class Store(Protocol):
    """Where files lie."""

    @property
    def url(self) -> str:
        """What relative folders are relative to, without secrets."""

    @property
    def by_contents(self) -> bool:
        """Whether a version is never that of other contents."""

    def reached(self) -> str:
        """What reaches it; asks it whether it is there.

        Raises:
            ConnectionFailed: it is not, or refuses us.
        """

    def found(self, table: TableRef) -> Iterator[Found]:
        """The files that a table's pattern matches, in any order.

        Raises:
            TableMissing: there is no such folder.
            ConnectionFailed: it cannot be asked.
        """

    def open(self, path: str, *, scattered: bool = False) -> IO[bytes]:
        """The bytes of a file; scattered, if a few stretches of it are read rather than all."""

    def version(self, path: str) -> tuple[int, str]:
        """A file's size and version as they are now. Raises `FileNotFoundError`, if it is gone."""

    def settled(self, version: str) -> bool:
        """Whether what was learned of a file stays true for as long as its version does."""


@dataclass(frozen=True)
class Folder:
    """Folders of this machine."""

    root: Path

    by_contents = False

    @property
    def url(self) -> str:
        return str(self.root)

    def reached(self) -> str:
        if not self.root.is_dir():
            raise ConnectionFailed(f"cannot connect to files: there is no folder {self.root}")
        return f"below {self.root}"

    def found(self, table: TableRef) -> Iterator[Found]:
        pattern = self.root / table.schema / table.name
        folder = Path(*before_wildcards(pattern.parts))
        if not folder.is_dir():
            raise TableMissing(f"{table}: there is no folder {folder}")
        for path in glob.glob(str(pattern), recursive=True):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue  # it vanished meanwhile
            if stat.S_ISREG(status.st_mode):
                name = Path(path).relative_to(folder).as_posix()
                yield Found(path, name, status.st_size, _version(status))

    def open(self, path: str, *, scattered: bool = False) -> IO[bytes]:
        return Path(path).open("rb")

    def version(self, path: str) -> tuple[int, str]:
        status = os.stat(path)
        return status.st_size, _version(status)

    def settled(self, version: str) -> bool:
        return time.time() - int(version.partition(".")[0]) / 1e9 > SETTLED_SECONDS


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}.{status.st_ino}"


def before_wildcards(parts: tuple[str, ...]) -> Iterator[str]:
    """The folders that a pattern begins with."""
    for part in parts[:-1]:
        if glob.has_magic(part):
            return
        yield part
