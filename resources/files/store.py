"""Where files lie: what a store offers, and folders of this machine."""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Protocol

from tableferry.resources.errors import ConnectionFailed, InputError, TableMissing
from tableferry.resources.tables import TableRef

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
    """Where files lie. Stores are equal if they lead to the same files."""

    def __hash__(self) -> int: ...

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
    named: bool = field(default=False, compare=False)
    """Whether a URL names it: nothing outside is reached then, also by absolute names."""

    by_contents = False

    @property
    def url(self) -> str:
        return str(self.root)

    def reached(self) -> str:
        if not self.root.is_dir():
            raise ConnectionFailed(f"cannot connect to files: there is no folder {self.root}")
        return f"below {self.root}"

    def place(self, table: TableRef) -> Path:
        """A table's folder; of an absolute one without a URL, it is the root itself.

        Raises:
            InputError: it is not below the root.
        """
        parts = PurePosixPath(table.schema, table.name).parts
        place = self.root / table.schema
        outside = self.named and Path(table.schema).is_absolute() and not _below(place, self.root)
        if ".." in parts or outside:
            raise InputError(
                f"{table} should be below {self.root}, without '..': another folder is named by a "
                "connection, TABLEFERRY_CONNECTION_<NAME>=file:///folder, or absolute where no "
                "URL says where folders begin"
            )
        return place

    def require_within(self, table: TableRef, path: str | Path) -> None:
        """Refuse what is reached by a link that leads out of the root.

        Raises:
            InputError: names it.
        """
        place = self.place(table)
        inside = self.named or not Path(table.schema).is_absolute()
        root = self.root if inside else Path(*before_wildcards((*place.parts, table.name)))
        if not _below(Path(path), root):
            raise InputError(
                f"{table}: {path} is a link out of {root}, to {os.path.realpath(path)}: name the "
                "folder where it lies"
            )

    def found(self, table: TableRef) -> Iterator[Found]:
        pattern = self.place(table) / table.name
        folder = Path(*before_wildcards(pattern.parts))
        if not folder.is_dir():
            raise TableMissing(f"{table}: there is no folder {folder}")
        straight: set[str] = set()
        for path in glob.glob(str(pattern), recursive=True):
            if os.path.dirname(path) not in straight or os.path.islink(path):
                self.require_within(table, path)
                straight.add(os.path.dirname(path))
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


def _below(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}.{status.st_ino}"


def before_wildcards(parts: tuple[str, ...]) -> Iterator[str]:
    """The folders that a pattern begins with."""
    for part in parts[:-1]:
        if glob.has_magic(part):
            return
        yield part
