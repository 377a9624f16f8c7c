"""A folder as a load target: each key range is a Parquet file."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NoReturn

from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.connecting.names import connection_url
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.markers import Publication, Published
from tableferry.resources.contract.target import ATTEMPT, Alive, Target, no_live_owner
from tableferry.resources.contract.target_names import is_rejected
from tableferry.resources.contract.target_options import TargetOptions, require_named
from tableferry.resources.errors import InputError, RangeBusy, SchemaDrift, TableMissing
from tableferry.resources.files import exports, load
from tableferry.resources.files.errors import translated
from tableferry.resources.files.exports import PATTERN, SUFFIX, ExportFolder, file_name, range_of
from tableferry.resources.files.object_store import KINDS
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.store import Folder
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_name, staging_prefix
from tableferry.resources.types.type_map import Column


def folder_problem(table: TableRef) -> str | None:
    """Why a table cannot be written to, to be put after its name; None if it can be."""
    if table.name != PATTERN or glob.has_magic(table.schema):
        return f"is not a folder to write to: it should look like files://folder/ or /{PATTERN}"
    if ".." in PurePosixPath(table.schema).parts:
        return "should be below its root, without '..'"
    if (connection_url(table.connection) or "").partition("://")[0].lower() in KINDS:
        return "is in an object store, which is read, never written"
    return None


class FilesTarget(Target):
    """See `Target`. A range is staged in a hidden subfolder, and published by renaming its file.

    A range's lock ends with the process that holds it, so `alive` is never asked. Folders are not
    swapped, and markers are part of the files: `identity`, `promote` and `forget_markers` do
    nothing.

    Args:
        resource: where relative folders begin.
    """

    def __init__(self, resource: FilesServer) -> None:
        self.resource = resource

    def __repr__(self) -> str:
        return f"FilesTarget({self.resource.settings()})"

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse folders with other files. See `Target.require`."""
        require_named(plan.target)
        folder = self.folder(plan.target)
        if folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{plan.target}: {folder.path} is not a folder")
        foreign = [name for name in folder.names() if range_of(name, plan) is None]
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise InputError(
                f"{plan.target}: {folder.path / foreign[0]}{more} is not a range of this table, "
                "and is left alone: move it away, or use another folder"
            )

    def prepare(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column] | None = None
    ) -> list[str]:
        """Make the folder, and verify the columns of the files in it. See `Target.prepare`.

        A column that a file lacks is NULL, until its range is written again.
        """
        self.require(plan, options)
        folder = self.folder(plan.target)
        with translated():
            folder.staging.mkdir(parents=True, exist_ok=True)
        try:
            columns = found or self.resource.columns(plan.target)
        except TableMissing:
            return []
        return self.verify(plan, options, columns)

    def verify(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> list[str]:
        """A column may be missing. See `Target.verify`."""
        existing = {column.name: column for column in columns}
        problems = [
            f"column {column.name!r}: {why}"
            for column in plan.target_columns
            if column.name in existing
            and (why := incompatibility(self.resource.system, column, existing[column.name]))
        ]
        if problems:
            raise SchemaDrift(f"{plan.target} does not fit the transfer: {'; '.join(problems)}")
        return []

    def hazards(
        self, plan: CopyPlan, options: TargetOptions, found: Sequence[Column]
    ) -> list[Hazard]:
        """None: readers see files as they were written. See `Target.hazards`."""
        return []

    @contextlib.contextmanager
    def attempt(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> Iterator[load.FileLoad]:
        """Lock the range, delete leftovers of others, and stage a file. See `Target.attempt`."""
        plan, key_range = publication.plan, publication.key_range
        file_name(key_range)  # refuses a name that is too long
        folder, lock = self.folder(plan.target), staging_name(plan.target, key_range.name)
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
                yield load.FileLoad(self.resource, plan, key_range, folder, staged, publication)
            finally:
                with contextlib.suppress(OSError):
                    staged.unlink(missing_ok=True)

    def published(self, plan: CopyPlan, options: TargetOptions) -> Published:
        """Read the markers in the files. See `Target.published`."""
        return exports.read(self.folder(plan.target), plan)

    def marking(
        self, publication: Publication, options: TargetOptions, alive: Alive = no_live_owner
    ) -> NoReturn:
        """Raise `InputError`: a file is not written again for its marker alone."""
        target, name = publication.plan.target, publication.key_range.name
        raise InputError(f"{target} range {name}: its marker is part of its file")

    def retire(
        self,
        plan: CopyPlan,
        ranges: Sequence[KeyRange],
        into: Sequence[KeyRange],
        options: TargetOptions,
    ) -> None:
        """Delete the files of ranges without others in their place. See `Target.retire`.

        Other files stay until those in their place are published, see `FileLoad.finalise`.
        """
        folder = self.folder(plan.target)
        with translated():
            for key_range in () if into else ranges:
                (folder.path / file_name(key_range)).unlink(missing_ok=True)

    def clean(
        self, target: TableRef, alive: Alive = no_live_owner, *, rejected: bool = True
    ) -> list[str]:
        """Delete the staged files of ranges that no process holds. See `Target.clean`."""
        folder, length = self.folder(target), len(staging_name(target, ""))
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
        """See `Target.rejected_table`."""
        kept = load.rejected(plan.target, key_range)
        return kept if (self.folder(plan.target).staging / kept.name).exists() else None

    def creation(self, plan: CopyPlan, options: TargetOptions) -> list[str]:
        """Describe it in a shell's words. See `Target.creation`."""
        folder = self.folder(plan.target)
        return [] if folder.staging.is_dir() else [f"mkdir -p {folder.staging}"]

    def publication(self, publication: Publication, options: TargetOptions) -> list[str]:
        """Describe it in a shell's words. See `Target.publication`."""
        target, key_range = publication.plan.target, publication.key_range
        folder = self.folder(target)
        staged = f"{staging_name(target, key_range.name)}_{ATTEMPT}{SUFFIX}"
        return [f"mv '{folder.staging / staged}' '{folder.path / file_name(key_range)}'"]

    def folder(self, table: TableRef) -> ExportFolder:
        """The folder that is a table."""
        store = self.resource.store
        if isinstance(store, Folder):
            store.require_within(table, store.path_of(table))
        return ExportFolder(self.resource.root, table)


def _remove(folder: ExportFolder, lock: str, *, rejected: bool = True) -> list[str]:
    """Delete what is staged under a lock that is held."""
    names = [
        name
        for name in folder.staged(f"{lock}_")
        if rejected or not is_rejected(folder.table, name.removesuffix(SUFFIX))
    ]
    for name in names:
        os.unlink(folder.staging / name)
    return names
