"""The files of a folder: which there are, what their columns are, and whether they are whole."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Literal, cast

from tableferry.resources.contract.facts import Answer, facts_of
from tableferry.resources.errors import InputError, TableferryError, TableMissing
from tableferry.resources.extras import zstd
from tableferry.resources.files.store import Store
from tableferry.resources.files.types import FILE, LONGEST_NAME
from tableferry.resources.keys.range import ROW
from tableferry.resources.tables import TableRef

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


class FileUnreadable(TableferryError):
    """A file is torn, or not what its name says. The message names it."""


@dataclass(frozen=True)
class File:
    """One file of a table, as it was found."""

    store: Store = field(repr=False)
    path: str
    """As messages and DuckDB name it."""
    name: str
    """Below the folder, with `/`."""
    size: int
    version: str
    """As the store tells it."""

    @cached_property
    def compression(self) -> str | None:
        return COMPRESSIONS.get(PurePosixPath(self.name).suffix.lower())

    @cached_property
    def format(self) -> Format:
        """What is in it, by its name.

        Raises:
            InputError: the name does not say.
        """
        name = PurePosixPath(self.name)
        name = name.with_suffix("") if self.compression else name
        found = FORMATS.get(name.suffix.lower())
        if found is None or (found == "parquet" and self.compression):
            names = ", ".join(f"*{one}" for one in FORMATS)
            raise InputError(
                f"{self.path}: files should be {names}, those of text also with .gz or .zst"
            )
        return found

    def now(self) -> File:
        """The same as it is now. Raises `FileNotFoundError`, and what its store does."""
        size, version = self.store.version(self.path)
        return replace(self, size=size, version=version)

    def open(self) -> IO[bytes]:
        """Its bytes, as they lie there."""
        return self.store.open(self.path)

    def unreadable(self, why: object) -> FileUnreadable:
        """The error that names the file."""
        text = next((line for line in str(why).splitlines() if line.strip()), "it is damaged")
        return FileUnreadable(f"{self.path} cannot be read: {text}")


def matching(store: Store, table: TableRef) -> list[File]:
    """The files of a table, by name.

    Args:
        store: what a relative folder is relative to.
        table: its schema is the folder, and its name the pattern; `**` stands for any folders.

    Raises:
        TableMissing: there is no such folder, or no file in it that matches.
        ConnectionFailed: the store cannot be asked.
        InputError: a file's name is too long.
    """
    found: dict[str, File] = {}
    for path, name, size, version in store.found(table):
        if len(name.encode("utf-16-le", "surrogatepass")) // 2 > LONGEST_NAME:
            raise InputError(f"{path}: names should have at most {LONGEST_NAME} characters")
        found[name] = File(store, path, name, size, version)
    if not found:
        folder = "" if table.schema == "." else f"{table.schema}/"
        pattern = os.path.join(store.url, f"{folder}{table.name}")
        raise TableMissing(f"{table}: no file matches {pattern}")
    return [found[name] for name in sorted(found)]


def known(file: File, what: str, learn: Callable[[], Answer]) -> Answer:
    """What is known of a file as it is; learned if nothing is, or if it may be written again."""
    if not file.store.settled(file.version):
        return learn()
    return facts_of(file.store).known((what, file.path), learn, (file.size, file.version))


def content_hash(file: File) -> str:
    """The hash of a file's bytes, or what its store has for it; compressed ones are seen whole.

    Raises:
        FileUnreadable: it is torn, or changes while it is read.
    """
    return known(file, "hash", lambda: _hashed(file))


def _hashed(file: File) -> str:
    named = file.store.by_contents
    if named and not file.compression:
        return file.version
    digest = hashlib.blake2b(digest_size=16)
    try:
        if not named:
            with file.open() as stream:
                while piece := stream.read(PIECE):
                    digest.update(piece)
        if file.compression:
            with opened(file) as text:
                while text.read(PIECE):
                    pass
        now = file.store.version(file.path)
    except (OSError, EOFError, ValueError) as error:
        raise file.unreadable(error) from None
    if now != (file.size, file.version):
        raise file.unreadable("it is being written")
    return file.version if named else digest.hexdigest()


@contextmanager
def opened(file: File) -> Iterator[IO[bytes]]:
    """A text file's bytes, unpacked."""
    with file.open() as raw:
        if file.compression == "gzip":
            with gzip.open(raw) as stream:
                yield cast(IO[bytes], stream)
        elif file.compression == "zstd":
            with zstd().open(raw) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield raw


def header(file: File) -> tuple[str, tuple[str, ...]]:
    """A CSV file's delimiter, and the names in its first line.

    Raises:
        FileUnreadable: there is no such line, or two columns of one name.
    """
    return known(file, "header", lambda: _header(file))


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
    if line.count('"') % 2:
        raise file.unreadable("its header goes on in a second line")
    found = [(one, next(csv.reader([line], delimiter=one))) for one in DELIMITERS]
    delimiter, names = max(found, key=lambda item: len(item[1]))
    require_distinct(file, names)
    return delimiter, tuple(names)


def require_distinct(file: File, names: Sequence[str]) -> None:
    """Raise `FileUnreadable` if two columns have one name, or one of them has ours, or none."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if not name or "\0" in name or folded in seen or folded in (FILE, ROW):
            raise file.unreadable(f"its column {name!r} should have a name of its own")
        seen.add(folded)
