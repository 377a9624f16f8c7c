"""The files of a folder: which there are, what their columns are, and whether they are whole."""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import io
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from resources.errors import InputError, TableferryError, TableMissing
from resources.files.types import FILE, LONGEST_NAME, ROW
from resources.tables import TableRef

Format = Literal["parquet", "csv", "ndjson"]
FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
DELIMITERS = (",", ";", "\t", "|")
PIECE = 1 << 20
SETTLED_SECONDS = 2.0
"""What was learned of a file that was written less long ago is not kept: within the resolution of
its time it may have been written again."""

Fact = TypeVar("Fact")


class FileUnreadable(TableferryError):
    """A file is torn, or not what its name says. The message names it."""


@dataclass(frozen=True)
class File:
    """One file of a table, as it was found."""

    path: Path
    name: str
    """Below the folder, with `/`."""
    size: int
    modified: int
    """Nanoseconds since 1970."""
    inode: int

    @cached_property
    def compression(self) -> str | None:
        return COMPRESSIONS.get(self.path.suffix.lower())

    @cached_property
    def format(self) -> Format:
        """What is in it, by its name.

        Raises:
            InputError: the name does not say.
        """
        path = self.path.with_suffix("") if self.compression else self.path
        found = FORMATS.get(path.suffix.lower())
        if found is None or (found == "parquet" and self.compression):
            known = ", ".join(f"*{one}" for one in FORMATS)
            raise InputError(
                f"{self.path}: files should be {known}, those of text also with .gz or .zst"
            )
        return found

    def unreadable(self, why: object) -> FileUnreadable:
        """The error that names the file."""
        text = next((line for line in str(why).splitlines() if line.strip()), "it is damaged")
        return FileUnreadable(f"{self.path} cannot be read: {text}")


def matching(root: Path, table: TableRef) -> list[File]:
    """The files of a table, by name.

    Args:
        root: what a relative folder is relative to.
        table: its schema is the folder, and its name the pattern; `**` stands for any folders.

    Raises:
        TableMissing: there is no such folder, or no file in it that matches.
        InputError: a file's name is too long, or two differ in case only.
    """
    pattern = root / table.schema / table.name
    fixed = [part for part in _before_wildcards(pattern)]
    folder = Path(*fixed)
    if not folder.is_dir():
        raise TableMissing(f"{table}: there is no folder {folder}")
    found: dict[str, File] = {}
    for path in glob.glob(str(pattern), recursive=True):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue  # it vanished meanwhile
        if stat.S_ISREG(status.st_mode):
            name = Path(path).relative_to(folder).as_posix()
            if len(name.encode("utf-16-le", "surrogatepass")) // 2 > LONGEST_NAME:
                raise InputError(f"{path}: names should have at most {LONGEST_NAME} characters")
            found[name] = File(Path(path), name, status.st_size, status.st_mtime_ns, status.st_ino)
    if not found:
        raise TableMissing(f"{table}: no file matches {pattern}")
    return [found[name] for name in sorted(found)]


def _before_wildcards(pattern: Path) -> Iterator[str]:
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            return
        yield part


def names(root: Path, table: TableRef) -> set[str]:
    """The names of a table's files; none if there are none."""
    try:
        return {one.name for one in matching(root, table)}
    except TableMissing:
        return set()


_known: dict[tuple[object, ...], Any] = {}
_lock = threading.Lock()


def remembered(file: File, what: str, learn: Callable[[], Fact]) -> Fact:
    """What is known of a file for as long as its size and time stay; learned if it is not."""
    key = (what, file.path, file.inode, file.size, file.modified)
    with _lock:
        if key in _known:
            return cast(Fact, _known[key])
    found = learn()
    if time.time() - file.modified / 1e9 > SETTLED_SECONDS:
        with _lock:
            _known[key] = found
    return found


def content_hash(file: File) -> str:
    """The hash of a file's bytes; a compressed one is seen to be whole.

    Raises:
        FileUnreadable: it is torn, or changes while it is read.
    """
    return remembered(file, "hash", lambda: _hashed(file))


def _hashed(file: File) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        with file.path.open("rb") as stream:
            while piece := stream.read(PIECE):
                digest.update(piece)
        if file.compression:
            with opened(file) as text:
                while text.read(PIECE):
                    pass
        now = file.path.stat()
    except (OSError, EOFError, ValueError) as error:
        raise file.unreadable(error) from None
    if (now.st_size, now.st_mtime_ns) != (file.size, file.modified):
        raise file.unreadable("it is being written")
    return digest.hexdigest()


@contextmanager
def opened(file: File) -> Iterator[IO[bytes]]:
    """A text file's bytes, unpacked."""
    if file.compression == "gzip":
        with gzip.open(file.path) as stream:
            yield cast(IO[bytes], stream)
    elif file.compression == "zstd":
        with _zstd().open(file.path) as stream:
            yield cast(IO[bytes], stream)
    else:
        with file.path.open("rb") as stream:
            yield stream


def _zstd() -> Any:
    """Part of Python from 3.14 on."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def header(file: File) -> tuple[str, tuple[str, ...]]:
    """A CSV file's delimiter, and the names in its first line.

    Raises:
        FileUnreadable: there is no such line, or two columns of one name.
    """
    return remembered(file, "header", lambda: _header(file))


def _header(file: File) -> tuple[str, tuple[str, ...]]:
    try:
        with opened(file) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            line = text.readline()
    except (OSError, EOFError, ValueError) as error:
        raise file.unreadable(error) from None
    if not line.strip():
        raise file.unreadable("it has no header")
    if not line.endswith(("\n", "\r")):
        raise file.unreadable("its header does not end")
    found = [(one, next(csv.reader([line], delimiter=one))) for one in DELIMITERS]
    delimiter, names = max(found, key=lambda item: len(item[1]))
    require_distinct(file, names)
    return delimiter, tuple(names)


def require_distinct(file: File, names: Sequence[str]) -> None:
    """Raise `FileUnreadable` if two columns have one name, or one of them has ours, or none."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if not name or folded in seen or folded in (FILE, ROW):
            raise file.unreadable(f"its column {name!r} should have a name of its own")
        seen.add(folded)
