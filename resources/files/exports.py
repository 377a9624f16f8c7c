"""The files of a folder that holds a table's ranges: one file for each, named after it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.tables import TableRef

STAGING = ".ferry"
"""The folder, within that of the table, of what nobody should read yet; patterns pass it by."""

PATTERN = "*.parquet"
PREFIX, SUFFIX = "range_", ".parquet"
LONGEST = 255
"""Bytes of a file's name, on the usual file systems."""

_UNSAFE = re.compile(r'[\x00-\x1f\x7f%/\\:*?"<>|\[\]]')
LOCK_TRIES = 10


def file_name(key_range: KeyRange) -> str:
    """The name of a range's file; names sort as those of the ranges.

    What a file system or a pattern does not take is percent-encoded.

    Raises:
        InputError: it would be too long.
    """
    found = PREFIX + _UNSAFE.sub(lambda one: f"%{ord(one[0]):02X}", key_range.name) + SUFFIX
    if len(found.encode()) > LONGEST:
        raise InputError(
            f"range {key_range.name}: the name of its file would have more than {LONGEST} bytes; "
            "declare 'ranges: {bounds: [...]}' with shorter texts"
        )
    return found


def range_of(name: str, plan: CopyPlan) -> KeyRange | None:
    """The inverse of `file_name`; None of a name that it does not give."""
    if not name.startswith(PREFIX) or not name.endswith(SUFFIX):
        return None
    try:
        kind, digits = key_kind(plan.key.source, plan.source.system)
        found = KeyRange.parse(unquote(name[len(PREFIX) : -len(SUFFIX)]), kind, digits)
        return found if file_name(found) == name else None
    except InputError:
        return None


class ExportFolder:
    """Where the ranges of a table are.

    Args:
        root: what a relative folder is relative to.
        table: the folder.
    """

    def __init__(self, root: Path, table: TableRef) -> None:
        self.path, self.table = root / table.schema, table

    @cached_property
    def staging(self) -> Path:
        return self.path / STAGING

    def names(self) -> list[str]:
        """The files that readers see."""
        if not self.path.is_dir():
            return []
        return sorted(one.name for one in self.path.glob(PATTERN) if one.name[0] != ".")

    def staged(self, prefix: str) -> list[str]:
        """What is in the staging folder, by the beginning of its names."""
        if not self.staging.is_dir():
            return []
        return sorted(name for name in os.listdir(self.staging) if name.startswith(prefix))

    def ranges(self, plan: CopyPlan) -> dict[str, KeyRange]:
        """The ranges that have files, by these."""
        found = {name: range_of(name, plan) for name in self.names()}
        return {name: one for name, one in found.items() if one is not None}

    def replaced_by(self, key_range: KeyRange, plan: CopyPlan) -> list[str]:
        """The files of ranges of an earlier cut of which other files have all rows now.

        They are those that overlap with a range that has just been published.
        """
        found = self.ranges(plan)
        own = file_name(key_range)
        old = {n: one for n, one in found.items() if n != own and one.overlaps(key_range)}
        others = [one for name, one in found.items() if name not in old]
        return [name for name, one in old.items() if covered(one, others)]

    def sync(self) -> None:
        """Wait until the names in the folder are on the disk."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Hold a lock that ends with the process; False: another one has it."""
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
            # its last holder removes the file: what we hold may have no name any more
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


def covered(one: KeyRange, by: Iterable[KeyRange]) -> bool:
    """Whether every key of a range is in one of others."""
    parts = [part for part in by if part.overlaps(one)]
    if one.null:
        return bool(parts)
    parts.sort(key=lambda part: (part.lower is not None, part.lower or 0))
    reached = one.lower
    for part in parts:
        if part.lower is not None and (reached is None or part.lower > reached):  # type: ignore[operator]
            return False
        if part.upper is None:
            return True
        reached = part.upper if reached is None else max(reached, part.upper)
        if one.upper is not None and reached >= one.upper:  # type: ignore[operator]
            return True
    return False
