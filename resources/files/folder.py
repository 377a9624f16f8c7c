"""Files as they were listed: their formats, the headers of CSV files, and hashes of contents."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from pathlib import PurePosixPath
from typing import IO, Literal, cast

from tableferry.resources import errors, extras
from tableferry.resources.contract.facts import Answer, facts_of
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
UNCOMMITTED = ("_temporary", "__magic")
"""How the folders begin in which Hadoop's committers keep what no job has committed."""
PIECE = 1 << 20
"""Bytes that are read at once."""


class FileUnreadable(errors.TableferryError):
    """A file is damaged, or not what its name says. The message names it."""


@dataclass(frozen=True)
class File:
    """A file of a table, as it was listed. The last four fields are those of `store.ListedFile`."""

    store: Store = field(repr=False)
    path: str
    name: str
    size: int
    version: str

    @cached_property
    def compression(self) -> str | None:
        return format_of(self.name)[1]

    @cached_property
    def format(self) -> Format:
        """The file's format, by its name.

        Raises:
            InputError: the name has none of the known suffixes.
        """
        format, compression = format_of(self.name)
        if format is None or (format == "parquet" and compression):
            patterns = ", ".join(f"*{suffix}" for suffix in FORMATS)
            raise errors.InputError(
                f"{self.path}: files should be {patterns}, those of text also with .gz or .zst"
            )
        return format

    def now(self) -> File:
        """The file with its present size and version. Raises as `Store.version`."""
        size, version = self.store.version(self.path)
        return replace(self, size=size, version=version)

    def unreadable(self, why: object) -> FileUnreadable:
        """Make the error that names the file."""
        text = next((line for line in str(why).splitlines() if line.strip()), "it is damaged")
        return FileUnreadable(
            f"{self.path} cannot be read: {errors.shortened(text, errors.MESSAGE_LENGTH)}"
        )


def format_of(name: str) -> tuple[Format | None, str | None]:
    """The format and the compression that a file's name says."""
    path = PurePosixPath(name)
    compression = COMPRESSIONS.get(path.suffix.lower())
    path = path.with_suffix("") if compression else path
    return FORMATS.get(path.suffix.lower()), compression


def matching(store: Store, table: TableRef) -> list[File]:
    """List the files of a table, by name.

    Args:
        store: where relative folders begin.
        table: its schema is the folder, and its name the pattern; `**` stands for any folders.

    Raises:
        TableMissing: there is no such folder, or no file in it that matches.
        ConnectionFailed: the store cannot be asked.
        InputError: a file's name is too long, a job has not committed it, or a table format's log
            says which files count.
    """
    # `**` may match a file more than once
    by_name = {listed.name: File(store, *listed) for listed in store.listed(table)}
    files = [by_name[name] for name in sorted(by_name)]
    for file in files:
        if len(file.name.encode("utf-16-le", "surrogatepass")) // 2 > LONGEST_NAME:
            raise errors.InputError(
                f"{file.path}: names should have at most {LONGEST_NAME} characters"
            )
        if any(part.startswith(UNCOMMITTED) for part in file.name.split("/")[:-1]):
            raise errors.InputError(
                f"{file.path}: the job that writes it (Spark, Hadoop) has not committed it: wait "
                "for the job, or delete what it has left"
            )
    if not files:
        folder = "" if table.schema == "." else f"{table.schema}/"
        pattern = os.path.join(store.url, f"{folder}{table.name}")
        raise errors.TableMissing(f"{table}: no file matches {pattern}")
    return files


def once_per_version(learn: Callable[[File], Answer]) -> Callable[[File], Answer]:
    """Keep what a function finds in a file for as long as the file does not change.

    Of a file that may be written again within the resolution of its time, nothing is kept.
    """

    @wraps(learn)
    def known(file: File) -> Answer:
        if not file.store.settled(file.version):
            return learn(file)
        version = file.size, file.version
        return facts_of(file.store).known((learn, file.path), partial(learn, file), version)

    return known


@once_per_version
def content_hash(file: File) -> str:
    """Hash a file's bytes, or return its store's hash; compressed files are read to their end.

    Raises:
        FileUnreadable: it is damaged, or changes while it is read.
    """
    hashed_by_store = file.store.by_contents
    if hashed_by_store and not file.compression:
        return file.version
    digest = hashlib.blake2b(digest_size=16)
    try:
        if not hashed_by_store:
            with file.store.open(file.path) as stream:
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
    return file.version if hashed_by_store else digest.hexdigest()


@contextmanager
def opened(file: File) -> Iterator[IO[bytes]]:
    """Open a text file, and decompress it."""
    with file.store.open(file.path) as raw:
        if file.compression == "gzip":
            with gzip.open(raw) as stream:
                yield cast(IO[bytes], stream)
        elif file.compression == "zstd":
            with extras.zstd().open(raw) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield raw


@once_per_version
def header(file: File) -> tuple[str, tuple[str, ...]]:
    """Read a CSV file's delimiter, and the names in its first line.

    Raises:
        FileUnreadable: there is no such line, or two columns have the same name.
    """
    try:
        with opened(file) as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            line = text.readline()
    except (OSError, EOFError, ValueError) as error:
        raise file.unreadable(error) from None
    if not line.strip():
        raise file.unreadable("it has no header")
    if re.fullmatch(r'(?i)"?sep=.?"?', line.strip()):
        raise file.unreadable(
            "its first line is Excel's sep=, which is no part of the table: delete this line"
        )
    if not line.endswith(("\n", "\r")):
        raise file.unreadable("its header does not end")
    if line.count('"') % 2:
        raise file.unreadable("its header goes on in a second line")
    split = [(delimiter, next(csv.reader([line], delimiter=delimiter))) for delimiter in DELIMITERS]
    delimiter, names = max(split, key=lambda item: len(item[1]))
    require_distinct(file, names)
    return delimiter, tuple(names)


def require_distinct(file: File, names: Sequence[str]) -> None:
    """Raise `FileUnreadable` if a column has no name, another column's, or one that we use."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold()
        if not name or "\0" in name or folded in seen or folded in (FILE, ROW):
            raise file.unreadable(f"its column {name!r} should have a name of its own")
        seen.add(folded)
