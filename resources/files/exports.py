"""The files of a folder that holds a table's ranges, one for each, which carries its marker."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import (
    Marker,
    Publication,
    Published,
    now,
    require_written_as,
)
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

STAGING = ".ferry"
"""The subfolder of files that nobody should read yet; patterns do not match it."""

PATTERN = "*.parquet"
PREFIX, SUFFIX = "range_", ".parquet"
LONGEST = 255
"""Maximum bytes of a file's name on the usual file systems."""

_UNSAFE = re.compile(r'[\x00-\x1f\x7f%/\\:*?"<>|\[\]]')
LOCK_TRIES = 10


def file_name(key_range: KeyRange) -> str:
    """The name of a range's file; names sort like those of the ranges.

    Characters that file systems or patterns do not allow are percent-encoded.

    Raises:
        InputError: it would be too long.
    """
    name = PREFIX + _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", key_range.name) + SUFFIX
    if len(name.encode()) > LONGEST:
        raise InputError(
            f"range {key_range.name}: the name of its file would have more than {LONGEST} bytes; "
            "declare 'ranges: {bounds: [...]}' with shorter texts"
        )
    return name


def range_of(name: str, plan: CopyPlan) -> KeyRange | None:
    """The range whose `file_name` this is; None if there is none."""
    if not name.startswith(PREFIX) or not name.endswith(SUFFIX):
        return None
    try:
        kind, digits = key_kind(plan.key.source, plan.source.system)
        key_range = KeyRange.parse(unquote(name[len(PREFIX) : -len(SUFFIX)]), kind, digits)
        return key_range if file_name(key_range) == name else None
    except InputError:
        return None


class ExportFolder:
    """The folder of a table's ranges.

    Args:
        root: where relative folders begin.
        table: its schema is the folder.
    """

    def __init__(self, root: Path, table: TableRef) -> None:
        self.path, self.table = root / table.schema, table
        self.staging = self.path / STAGING

    def names(self) -> list[str]:
        """The names of the files that readers see."""
        return sorted(path.name for path in self.path.glob(PATTERN) if path.name[0] != ".")

    def staged(self, prefix: str) -> list[str]:
        """The names in the staging folder that begin with a prefix."""
        if not self.staging.is_dir():
            return []
        return sorted(name for name in os.listdir(self.staging) if name.startswith(prefix))

    def ranges(self, plan: CopyPlan) -> dict[str, KeyRange]:
        """The ranges that have files, by file name."""
        ranges = {name: range_of(name, plan) for name in self.names()}
        return {name: key_range for name, key_range in ranges.items() if key_range is not None}

    def replaced_by(self, key_range: KeyRange, plan: CopyPlan) -> list[str]:
        """The files of earlier ranges that overlap with one that has just been published, and all
        of whose rows are now in other files."""
        ranges, published = self.ranges(plan), file_name(key_range)
        others = {name: ranges[name] for name in ranges if name != published}
        old = {name: other for name, other in others.items() if other.overlaps(key_range)}
        new = [ranges[name] for name in ranges if name not in old]
        return [name for name, old_range in old.items() if covered(old_range, new)]

    def sync(self) -> None:
        """Wait until the folder's entries are on the disk."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Try to hold a lock, which ends with the process; False: another process has it."""
        self.staging.mkdir(parents=True, exist_ok=True)
        path = self.staging / f"{name}.lock"
        lock = _locked(path)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                with suppress(FileNotFoundError):
                    path.unlink()
                os.close(lock)


def _locked(path: Path) -> int | None:
    for _ in range(LOCK_TRIES):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the last holder may have deleted the file after we opened it
            if os.path.exists(path) and os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    return None


def covered(key_range: KeyRange, others: Iterable[KeyRange]) -> bool:
    """Whether every key of a range is in one of some others."""
    parts = [other for other in others if other.overlaps(key_range)]
    if key_range.null:
        return bool(parts)
    parts.sort(key=lambda part: (part.lower is not None, part.lower or 0))
    reached = key_range.lower
    for part in parts:
        if part.lower is not None and (reached is None or part.lower > reached):  # type: ignore[operator]
            return False
        if part.upper is None:
            return True
        reached = part.upper if reached is None else max(reached, part.upper)
        if key_range.upper is not None and reached >= key_range.upper:  # type: ignore[operator]
            return True
    return False


FOLDER = "folder"
"""The identity of any folder: only its files tell what was published there."""

_KEYS = ("range", "version", "key", "owner", "home", "published", "target")


def metadata(publication: Publication) -> dict[str, str]:
    """Write a publication as a file's key-value metadata."""
    its = publication
    values = (
        its.key_range.name,
        its.version,
        its.key,
        its.owner,
        its.home,
        now(),
        str(its.plan.target),
    )
    return {f"tableferry.{key}": value for key, value in zip(_KEYS, values, strict=True)}


def read(folder: ExportFolder, plan: CopyPlan) -> Published:
    """Read the markers of all files."""
    read = {key_range.name: marker(folder.path / n) for n, key_range in folder.ranges(plan).items()}
    markers = {name: marker for name, marker in read.items() if marker is not None}
    names = {marker.written_as for marker in markers.values()} - {"", str(folder.table)}
    return Published(FOLDER, {FOLDER: markers}, written_as=min(names, default=""))


def require_unpublished(path: Path, publication: Publication) -> None:
    """Raise `TargetMoved` if somebody else has written the file since the publication's plan."""
    latest, known = marker(path), publication.known
    if latest is not None:
        require_written_as(publication.plan.target, latest.written_as)
    if known is None or latest is None or latest.owner == publication.owner:
        return
    if latest.token != known.token(FOLDER, publication.key_range):
        raise TargetMoved(
            f"{publication.plan.target} range {publication.key_range.name}: somebody else has "
            f"published {path.name} since it was planned ({latest})"
        )


def marker(path: Path) -> Marker | None:
    """Read a file's marker; None if there is no such file, or it has none."""
    try:
        status, stored = path.stat(), pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return None
    values = [stored.get(f"tableferry.{key}".encode(), b"").decode() for key in _KEYS]
    name, version, key, owner, home, at, target = values
    token = f"{status.st_ino}.{status.st_mtime_ns}"
    return Marker(name, version, key, owner, home, at, token, target) if version else None
