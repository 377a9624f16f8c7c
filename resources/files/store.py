"""Stores of files: their interface, and folders of this machine."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Protocol

from tableferry.resources.errors import ConnectionFailed, InputError, TableMissing
from tableferry.resources.tables import TableRef

SETTLED_SECONDS = 2.0
"""The age at which a file's time of modification proves that it has not been written since: a newer
file may be written again within the resolution of that time."""


LOGS = {
    "_delta_log": ("Delta", ""),
    ".hoodie": ("Hudi", ""),
    "metadata": ("Iceberg", r"(?:\A|/)(?:v\d+|\d+-[^/]+)(?:\.gz)?\.metadata\.json(?:\.gz)?\Z"),
}
"""Folders in which a table format logs which files count, the format's name, and how the name of a
file in them looks."""


class ListedFile(NamedTuple):
    """A file of a table, as a store lists it."""

    path: str
    """The path that messages and DuckDB use."""
    name: str
    """The path below the table's folder, with `/`."""
    size: int
    version: str
    """A text that changes whenever the contents do."""


class Store(Protocol):
    """A place where files are. Stores are equal if they lead to the same files."""

    def __hash__(self) -> int: ...

    @property
    def url(self) -> str:
        """Where relative folders begin, without secrets."""

    @property
    def by_contents(self) -> bool:
        """Whether different contents never have the same version."""

    def ping(self) -> str:
        """Make sure that the store is there, and name what reads it.

        Raises:
            ConnectionFailed: it is not there, or refuses access.
        """

    def listed(self, table: TableRef) -> Iterator[ListedFile]:
        """List the files that a table's pattern matches, in any order.

        Raises:
            TableMissing: there is no such folder.
            ConnectionFailed: the store cannot be asked.
            InputError: a table format's log, not the folder, says which files count.
        """

    def open(self, path: str, *, scattered: bool = False) -> IO[bytes]:
        """Open a file; `scattered` if parts of it are to be read rather than all."""

    def version(self, path: str) -> tuple[int, str]:
        """A file's present size and version. Raises `FileNotFoundError` if it is gone."""

    def settled(self, version: str) -> bool:
        """Whether a file that still has this version cannot have been written to."""


@dataclass(frozen=True)
class Folder:
    """Folders of this machine."""

    root: Path
    named: bool = field(default=False, compare=False)
    """Whether a URL names it: then nothing outside is read, also by absolute names."""

    by_contents = False

    @property
    def url(self) -> str:
        return str(self.root)

    def ping(self) -> str:
        if not self.root.is_dir():
            raise ConnectionFailed(f"cannot connect to files: there is no folder {self.root}")
        return f"below {self.root}"

    def path_of(self, table: TableRef) -> Path:
        """A table's folder, which may be absolute where no URL names the root.

        Raises:
            InputError: it is not below the root.
        """
        parts = PurePosixPath(table.schema, table.name).parts
        path = self.root / table.schema
        outside = self.named and Path(table.schema).is_absolute() and not _below(path, self.root)
        if ".." in parts or outside:
            raise InputError(
                f"{table} should be below {self.root}, without '..': another folder is named by a "
                "connection, TABLEFERRY_CONNECTION_<NAME>=file:///folder, or absolute where no "
                "URL says where folders begin"
            )
        return path

    def require_within(self, table: TableRef, path: str | Path) -> None:
        """Refuse a path that leads out of the root by a link.

        Raises:
            InputError: names the path.
        """
        folder = self.path_of(table)
        relative = self.named or not Path(table.schema).is_absolute()
        root = self.root if relative else Path(*before_wildcards((*folder.parts, table.name)))
        if not _below(Path(path), root):
            raise InputError(
                f"{table}: {path} is a link out of {root}, to {os.path.realpath(path)}: name the "
                "folder where it lies"
            )

    def listed(self, table: TableRef) -> Iterator[ListedFile]:
        pattern = self.path_of(table) / table.name
        folder = Path(*before_wildcards(pattern.parts))
        if not folder.is_dir():
            raise TableMissing(f"{table}: there is no folder {folder}")
        checked: set[str] = set()
        for path in glob.glob(str(pattern), recursive=True):
            parent = os.path.dirname(path)
            if parent not in checked or os.path.islink(path):
                self.require_within(table, path)
                checked.add(parent)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue  # deleted meanwhile
            if stat.S_ISREG(status.st_mode):
                name = Path(path).relative_to(folder).as_posix()
                yield ListedFile(path, name, status.st_size, _version(status))
        require_plain(table, checked, str(self.root), _names_in)

    def open(self, path: str, *, scattered: bool = False) -> IO[bytes]:
        return Path(path).open("rb")

    def version(self, path: str) -> tuple[int, str]:
        status = os.stat(path)
        return status.st_size, _version(status)

    def settled(self, version: str) -> bool:
        return time.time() - int(version.partition(".")[0]) / 1e9 > SETTLED_SECONDS


def require_plain(
    table: TableRef,
    holding: Iterable[str],
    root: str,
    names_in: Callable[[str], Iterable[str]],
    scheme: str = "",
) -> None:
    """Refuse files that a table format's log, not their folder, calls the rows of a table.

    Args:
        table: the table that they are to be.
        holding: the folders that hold them.
        root: where relative folders begin: nothing is looked at above it.
        names_in: lists a folder; none where there is no such folder.
        scheme: what a folder's name begins with in messages.

    Raises:
        InputError: names the table's folder and the format.
    """
    folders: set[PurePosixPath] = set()
    for folder in map(PurePosixPath, holding):
        above = [folder, *folder.parents]
        below_root = [each for each in above if each.is_relative_to(root)]
        folders.update(below_root or above)
    for folder, (log, (format, file)) in product(sorted(folders), LOGS.items()):
        if any(re.search(file, name) for name in names_in(str(folder / log))):
            raise InputError(
                f"{table}: {scheme}{folder} is a table of {format}, whose files may hold rows that "
                "are deleted, replaced or not yet committed: let its own reader export the rows "
                "(DuckDB's delta_scan or iceberg_scan), and name these files"
            )


def _names_in(folder: str) -> Sequence[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _below(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}.{status.st_ino}"


def before_wildcards(parts: tuple[str, ...]) -> Iterator[str]:
    """The folders of a pattern before the first with a wildcard."""
    for part in parts[:-1]:
        if glob.has_magic(part):
            return
        yield part
