"""Object stores that fsspec reaches, and the URLs that lead to files."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from tableferry.resources.contract.facts import facts_of
from tableferry.resources.errors import ConnectionFailed, InputError, StatementFailed, TableMissing
from tableferry.resources.extras import require
from tableferry.resources.files.store import (
    Folder,
    ListedFile,
    before_wildcards,
    require_plain,
)
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:  # imported where an object store is used
    import duckdb

BLOCK = 4 << 20
"""Bytes of a text file that are requested at once."""


class Kind(NamedTuple):
    """A kind of object store."""

    package: str
    """The package by which fsspec reads it."""
    extra: str
    """The extra of this distribution that installs the package."""
    options: tuple[str, ...]
    """What the query of its URL may set; it goes to the package as it is."""


KINDS = {
    "s3": Kind("s3fs", "s3", ("endpoint_url", "profile", "anon")),
    "gs": Kind("gcsfs", "gcs", ("endpoint_url", "project", "token")),
    "az": Kind("adlfs", "azure", ("account_name", "anon")),
}
"""Object stores by the scheme of their URLs."""

_VERSIONS = ("md5Hash", "ETag", "etag")
"""What stores call a version, the best first: Google's `etag` changes with the metadata, too."""

_MOVED = getattr(errno, "EREMCHG", errno.EINVAL)
"""What s3fs raises for a bucket in another region."""
_REFUSED = {errno.EINVAL, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOENT, _MOVED}
_REFUSALS = {
    "ClientAuthenticationError",
    "CredentialRetrievalError",
    "DefaultCredentialsError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "RefreshError",
}
"""The packages' errors that do not pass by themselves; most others come from the network."""


@dataclass(frozen=True)
class ObjectStore:
    """The objects of a bucket whose names have the same prefix."""

    scheme: str
    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    by_contents = True

    @property
    def url(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.prefix)))

    @property
    def _filesystem(self) -> Any:
        with _lock:
            return _connected(self.scheme, tuple(sorted(self.options.items())), os.getpid())

    def ping(self) -> str:
        try:
            self._filesystem.info(self.bucket)
        except FileNotFoundError:
            raise ConnectionFailed(f"cannot reach {self.url}: there is no such bucket") from None
        except Exception as error:
            raise self._unreachable(error) from None
        return KINDS[self.scheme].package

    def listed(self, table: TableRef) -> Iterator[ListedFile]:
        from fsspec.utils import glob_translate

        folders = [part for part in table.schema.split("/") if part not in ("", ".")]
        if table.schema.startswith("/") or ".." in folders:
            raise InputError(f"{table}: the folder should be one below {self.url}, without '..'")
        base = [self.bucket, *filter(None, self.prefix.split("/"))]
        fixed = [*base, *before_wildcards((*folders, table.name))]
        folder, parts = "/".join(fixed), (*base, *folders, table.name)[len(fixed) :]
        pattern = re.compile(glob_translate("/".join(parts)))
        depth = None if "**" in parts else len(parts)
        try:
            holding: set[str] = set()
            subfolders: set[str] = set()
            for details in self._walk(folder, depth):
                if details["type"] == "directory":
                    subfolders.add(details["name"].rstrip("/"))
                    continue
                name = str(details["name"])[len(folder) + 1 :]
                hidden = any(part.startswith(".") for part in name.split("/"))
                if name and pattern.match(name) and not hidden:
                    path = f"{self.scheme}://{details['name']}"
                    holding.add(os.path.dirname(details["name"]))
                    yield ListedFile(path, name, *_size_and_version(details))

            def names_in(log: str) -> Sequence[str]:
                if log not in subfolders and log.startswith(f"{folder}/"):
                    return ()  # the walk would have met it
                return facts_of(self).known(("log", log), lambda: self._names_in(log))

            require_plain(table, holding, "/".join(base), names_in, f"{self.scheme}://")
        except InputError:
            raise
        except FileNotFoundError:
            raise TableMissing(f"{table}: there is no folder {self.scheme}://{folder}") from None
        except Exception as error:
            raise self._unreachable(error) from None

    def _names_in(self, folder: str) -> Sequence[str]:
        try:
            return cast(Sequence[str], self._filesystem.ls(folder, detail=False))
        except FileNotFoundError:
            return ()

    def _walk(self, folder: str, depth: int | None) -> Iterator[Mapping[str, Any]]:
        """List files down to a depth, and the folders on the way. fsspec's own walk takes a
        subfolder that it could not list for an empty one; the rows of its files might then be
        deleted."""
        for details in self._filesystem.ls(folder, detail=True):
            name = details["name"].rstrip("/")
            if details["type"] != "directory":
                yield details
            elif name != folder:
                yield details
                if depth != 1:
                    yield from self._walk(name, depth and depth - 1)

    def open(self, path: str, *, scattered: bool = False) -> IO[bytes]:
        return cast(IO[bytes], _Object(self, path, [], scattered=scattered))

    def version(self, path: str) -> tuple[int, str]:
        try:
            return _size_and_version(self._filesystem.info(path))
        except FileNotFoundError:
            raise FileNotFoundError("it is there no more") from None
        except Exception as error:
            raise _failed(path, error) from None

    def settled(self, version: str) -> bool:
        return True

    def attach(self, database: duckdb.DuckDBPyConnection, failures: list[Exception]) -> None:
        """Let a database read the store's objects; what fails is added to the failures."""
        database.register_filesystem(_reader(self, failures))

    def _unreachable(self, error: Exception) -> ConnectionFailed:
        reason, transient = _reason(error)
        return ConnectionFailed(f"cannot reach {self.url}: {reason}", transient=transient)


def store_at(url: str | None) -> Folder | ObjectStore:
    """The store that a URL names: `file:///folder` or `s3://bucket/prefix`; by default the working
    directory.

    Raises:
        InputError: it names none, or the package that reads it is not installed.
    """
    try:
        parts = urlsplit(url or "file:")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Folder(Path(unquote(parts.path) or ".").absolute(), named=bool(unquote(parts.path)))
    kind = KINDS.get(parts.scheme)
    if kind is None or not parts.netloc:
        known = ", ".join(f"{scheme}://bucket/prefix" for scheme in KINDS)
        raise InputError(f"a files URL should look like file:///folder, {known}")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise InputError(
            f"a files URL should look like {parts.scheme}://bucket/prefix; credentials are those "
            f"of the environment, as {kind.package} takes them"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(kind.options))
    if unknown:
        raise InputError(
            f"a URL of {parts.scheme}:// has no option {', '.join(unknown)}; "
            f"there are {', '.join(kind.options)}"
        )
    require(kind.extra, f"{parts.scheme}://")
    prefix = str(PurePosixPath(unquote(parts.path).strip("/")))
    return ObjectStore(parts.scheme, parts.netloc, "" if prefix == "." else prefix, options)


_lock = threading.Lock()


@functools.cache
def _connected(scheme: str, options: tuple[tuple[str, str], ...], process: int) -> Any:
    """Connect fsspec's file system, which all threads of a process share."""
    import fsspec

    flags = {"true": True, "false": False}
    given = {name: flags.get(value, value) for name, value in options}
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **given)


def _size_and_version(details: Mapping[str, Any]) -> tuple[int, str]:
    version = next((str(details[name]) for name in _VERSIONS if details.get(name)), "")
    if not version:
        raise OSError(errno.ENOSYS, f"the store tells no version of {details.get('name')}")
    return int(details["size"]), version.strip('"')


def _failed(path: str, error: Exception) -> StatementFailed:
    if isinstance(error, StatementFailed):
        return error
    reason, transient = _reason(error)
    return StatementFailed("files", f"{path}: {reason}", transient=transient)


def _reason(error: Exception) -> tuple[str, bool]:
    """Why a package failed, on one line without the rest of addresses, which may hold keys; and
    whether trying again may help."""
    refused = (
        isinstance(error, FileNotFoundError | PermissionError | ValueError | TypeError)
        or (isinstance(error, OSError) and error.errno in _REFUSED)
        or type(error).__name__ in _REFUSALS
    )
    text = "it is there no more" if isinstance(error, FileNotFoundError) else str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"(https?://[^/\s\"']*)[^\s\"']*", r"\1", first), not refused


class _Object(io.RawIOBase):
    """An open object; all of it is read in one version.

    Args:
        store: the object's store.
        path: the object's URL.
        failures: gets what fails, since DuckDB keeps only the text of it.
        version: the version that it must have.
        scattered: see `Store.open`.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        failures: list[Exception],
        version: str | None = None,
        *,
        scattered: bool = False,
    ) -> None:
        super().__init__()
        self._path, self._failures = path, failures
        caching = {"cache_type": "none" if scattered else "readahead", "block_size": BLOCK}
        self._stream = self._tried(store._filesystem.open, path, "rb", **caching)
        self.size, self.version = self._tried(_size_and_version, self._stream.details)
        if version not in (None, self.version):
            self._tried(self._changed)

    def _changed(self) -> None:
        raise StatementFailed("files", f"{self._path}: it changed meanwhile", transient=True)

    def _tried(self, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except Exception as error:
            self._failures.append(_failed(self._path, error))
            raise self._failures[-1] from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._tried(self._stream.read, size)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_stream"):
            self._stream.close()
        super().close()


def _reader(store: ObjectStore, failures: list[Exception]) -> Any:
    """The file system by which DuckDB reads objects: only named ones, each in one version."""
    from fsspec import AbstractFileSystem

    opened: dict[str, _Object] = {}

    class Reader(AbstractFileSystem):
        protocol = store.scheme
        cachable = False

        def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            first = opened.get(path)
            version = first.version if first else None
            scattered = path.lower().endswith((".parquet", ".pq"))
            stream = _Object(store, path, failures, version, scattered=scattered)
            return opened.setdefault(path, stream) if first is None else stream

        def glob(self, path: str, **_: Any) -> list[str]:
            return [path]

        def exists(self, path: str, **_: Any) -> bool:
            return True

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "size": opened[path].size, "type": "file"}

        def modified(self, path: str) -> datetime:
            return datetime(1970, 1, 1, tzinfo=UTC)  # for a cache, which is off

    return Reader()
