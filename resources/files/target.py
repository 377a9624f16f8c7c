"""Loads key ranges into a folder: one range is one Parquet file."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NoReturn

from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.connecting.names import connection_url
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.target import (
    ATTEMPT,
    Alive,
    Target,
    TargetOptions,
    is_rejected,
    nobody_else,
)
from tableferry.resources.errors import InputError, RangeBusy, SchemaDrift, TableMissing
from tableferry.resources.files import markers
from tableferry.resources.files.errors import translated
from tableferry.resources.files.exports import PATTERN, SUFFIX, ExportFolder, file_name, range_of
from tableferry.resources.files.load import FileLoad, published_rows, rejected
from tableferry.resources.files.object_store import KINDS
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.store import Folder
from tableferry.resources.files.types import FILE
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.types.column import Column


def folder_problem(table: TableRef) -> str | None:
    """Why a table cannot be written to, to be put after its name; None if it can."""
    if table.name != PATTERN or glob.has_magic(table.schema):
        return f"is no folder to write to: it should look like files://folder/ or /{PATTERN}"
    if ".." in PurePosixPath(table.schema).parts:
        return "should be below its root, without '..'"
    if (connection_url(table.connection) or "").partition("://")[0].lower() in KINDS:
        return "is in an object store, which is read, never written"
    return None


class FilesTarget(Target):
    """A folder as a load target.

    A range is staged in a hidden folder within, and renamed in one step. A range's lock ends with
    the process that holds it, so that nobody has to be asked whether that is alive.

    Args:
        resource: where relative folders begin.
    """

    def __init__(self, resource: FilesServer) -> None:
        self.resource = resource

    def __repr__(self) -> str:
        return f"FilesTarget({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a folder with files of others, and columns that files have no room for.

        See `Target.require`.
        """
        taken = [one.name for one in plan.target_columns if one.name in (FILE, ROW)]
        if taken:
            raise InputError(
                f"{plan.target}: the column {taken[0]!r} should be renamed: a table of files has "
                "one of this name already"
            )
        folder = self._folder(plan.target)
        if folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{plan.target}: {folder.path} is no folder")
        foreign = [name for name in folder.names() if range_of(name, plan) is None]
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise InputError(
                f"{plan.target}: {folder.path / foreign[0]}{more} is no range of this table, and "
                "is left alone: move it away, or take another folder"
            )

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Make the folder; verify the columns of the files in it. See `Target.prepare`.

        A file that lacks a column has NULL there, until its range is written anew.
        """
        self.require(plan, options)
        folder = self._folder(plan.target)
        with translated():
            folder.staging.mkdir(parents=True, exist_ok=True)
        try:
            there = {one.name: one for one in found or self.resource.columns(plan.target)}
        except TableMissing:
            return []
        problems = [
            f"column {one.name!r}: {why}"
            for one in plan.target_columns
            if one.name in there
            and (why := incompatibility(self.resource.system, one, there[one.name]))
        ]
        if problems:
            raise SchemaDrift(f"{plan.target} does not fit the transfer: {'; '.join(problems)}")
        return []

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column]
    ) -> list[Hazard]:
        """A file is what was written to it. See `Target.hazards`."""
        return []

    def creation(self, plan: CopyPlan, options: TargetOptions, *, creates: bool) -> list[str]:
        """See `Target.creation`."""
        folder = self._folder(plan.target)
        return [] if folder.staging.is_dir() else [f"mkdir -p {folder.staging}"]

    def publication(
        self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions, *, creates: bool
    ) -> list[str]:
        """See `Target.publication`."""
        folder = self._folder(plan.target)
        staged = f"{staging_name(plan.target, key_range.name)}_{ATTEMPT}{SUFFIX}"
        return [f"mv '{folder.staging / staged}' '{folder.path / file_name(key_range)}'"]

    @contextlib.contextmanager
    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = nobody_else
    ) -> Iterator[FileLoad]:
        """Hold the range by a lock on a file, with a staged file of its own. See `Target.attempt`.

        What dead attempts on the range left is removed.
        """
        plan, key_range = publication.plan, publication.key_range
        file_name(key_range)
        folder, lock = self._folder(plan.target), staging_name(plan.target, key_range.name)
        with contextlib.ExitStack() as stack:
            with translated():
                held = stack.enter_context(folder.held(lock))
                if held:
                    _remove(folder, lock)
            if not held:
                raise RangeBusy(
                    f"{plan.target} range {key_range.name} is being loaded by another run"
                )
            staged = folder.staging / f"{lock}_{uuid.uuid4().hex[:12]}{SUFFIX}"
            try:
                yield FileLoad(self.resource, plan, key_range, folder, staged, publication)
            finally:
                with contextlib.suppress(OSError):
                    staged.unlink(missing_ok=True)

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published:
        """What the files say of themselves. See `Target.published`."""
        return markers.read(self._folder(plan.target), plan)

    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = nobody_else
    ) -> NoReturn:
        """Refused: a file says itself what it is, and is not written again for that.

        Raises:
            InputError: always.
        """
        target, name = publication.plan.target, publication.key_range.name
        raise InputError(f"{target} range {name}: only its file says what it is")

    def forget_markers(self, table: TableRef) -> None:
        """Nothing: the markers are part of the files."""

    def identity(self, table: TableRef) -> str | None:
        """None: folders are not swapped."""
        return None

    def promote(
        self, plan: CopyPlan, options: TargetOptions, gathered: Mapping[str, str] | None = None
    ) -> None:
        """Nothing: folders are not swapped."""

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Remove the files of ranges that nothing covers. See `Target.retire`.

        Others stay until the ranges in their place are there, see `FileLoad.finalise`.
        """
        folder = self._folder(plan.target)
        with translated():
            for key_range in () if into else ranges:
                (folder.path / file_name(key_range)).unlink(missing_ok=True)

    def clean(
        self, target: TableRef, alive: Alive = nobody_else, *, rejected: bool = True
    ) -> list[str]:
        """Remove the staged files of ranges that no process holds. See `Target.clean`."""
        folder, length = self._folder(target), len(staging_name(target, ""))
        removed: list[str] = []
        with translated():
            locks = {name[:length] for name in folder.staged(staging_prefix(target))}
            for lock in sorted(locks):
                with folder.held(lock) as held:
                    removed += _remove(folder, lock, rejected=rejected) if held else []
        return removed

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """See `Target.staged_columns`."""
        return self.resource.columns(staging)

    def rejected_table(self, plan: CopyPlan, key_range: KeyRange) -> TableRef | None:
        """The range's rows that failed their audit. See `Target.rejected_table`."""
        kept = rejected(plan.target, key_range)
        return kept if (self._folder(plan.target).staging / kept.name).exists() else None

    def range_rows(self, plan: CopyPlan, key_range: KeyRange, options: TargetOptions) -> int:
        """Rows of the range in its file."""
        return published_rows(self.resource, plan, key_range)

    def _folder(self, table: TableRef) -> ExportFolder:
        at = self.resource.store
        if isinstance(at, Folder):
            at.require_within(table, at.place(table))
        return ExportFolder(self.resource.root, table)


def _remove(folder: ExportFolder, lock: str, *, rejected: bool = True) -> list[str]:
    """Remove what is staged under a lock that is held."""
    found = [
        name
        for name in folder.staged(f"{lock}_")
        if rejected or not is_rejected(folder.table, name.removesuffix(SUFFIX))
    ]
    for name in found:
        os.unlink(folder.staging / name)
    return found
