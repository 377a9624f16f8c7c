"""Loads a key range into a folder: it is staged as a Parquet file, and published by its name."""

from __future__ import annotations

import os
from binascii import unhexlify
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableferry.resources import crash_points, errors
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.contract.target_names import rejected_of, surplus_rejected
from tableferry.resources.contract.target_options import require_staged
from tableferry.resources.files.errors import translated
from tableferry.resources.files.exports import (
    STAGING,
    SUFFIX,
    ExportFolder,
    file_name,
    metadata,
    require_unpublished,
)
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.types import read
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.types.kinds import Uuid

ROW_GROUP_BYTES = 64 << 20
"""Arrow bytes of a row group, which is kept in memory until it is written."""


@dataclass
class FileLoad:
    """An attempt on a range, with its staged file; see `RangeLoad`."""

    resource: FilesServer
    plan: CopyPlan
    key_range: KeyRange
    folder: ExportFolder
    staged: Path
    publication: Publication
    _sent: int = field(default=0, init=False)
    _arrived: int | None = field(default=None, init=False)
    """Rows of the staged file after the load."""
    _audited: int | None = field(default=None, init=False)
    _inode: int | None = field(default=None, init=False)

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Stream batches into the staged file, in `schema` or the plan's."""
        uuids = {c.name for c in self.plan.target_columns if read(c.type).kind == Uuid()}
        stored = pa.schema(
            field.with_type(pa.uuid()) if field.name in uuids else field
            for field in schema or self.plan.arrow_schema
        )
        with ParquetFile(self.staged, stored, metadata(self.publication)) as file:
            for batch in batches:
                file.write(batch)
            file.finish()
        with translated():
            self._inode = self.staged.stat().st_ino
        self._sent += file.rows
        return LoadReceipt(file.rows, file.bytes)

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Raise `InputError`."""
        raise errors.InputError(f"{self.plan.target} takes record batches only")

    def staged_rows(self) -> int:
        """Count the rows in the staged file, by DuckDB."""
        self._arrived = count(self.resource, self._staged)
        return self._arrived

    def audited_table(self) -> TableRef:
        """See `RangeLoad.audited_table`."""
        if self._audited is None:
            # only this attempt writes to it, and what is published is counted as well
            arrived = self.staged_rows() if self._arrived is None else self._arrived
            self._audited = require_staged(
                self.plan.target, self.key_range, arrived, self._sent, "sent"
            )
        return self._staged

    def keep_rejected(self) -> TableRef:
        """Rename the staged file, so that the end of the attempt does not delete it."""
        target, kept = self.plan.target, rejected(self.plan.target, self.key_range)
        with translated():
            names = self.folder.staged(staging_prefix(target))
            names.sort(key=lambda name: (self.folder.staging / name).stat().st_mtime_ns)
            for name in surplus_rejected(target, (name.removesuffix(SUFFIX) for name in names)):
                (self.folder.staging / f"{name}{SUFFIX}").unlink(missing_ok=True)
            os.replace(self.staged, self.folder.staging / kept.name)
        return kept

    def finalise(self) -> int:
        """Replace the range's file by the staged one, and count its rows. See `RangeLoad.finalise`.

        Files of earlier ranges are deleted as soon as other files have all of their rows.
        """
        self.audited_table()
        name = file_name(self.key_range)
        path = self.folder.path / name
        crash_points.reached("inside_finalise")
        with translated():
            if self.staged.exists():
                require_unpublished(path, self.publication)
            if self.staged.exists() or not path.exists() or path.stat().st_ino != self._inode:
                os.replace(self.staged, path)
            self.folder.sync()
            for old in self.folder.replaced_by(self.key_range, self.plan):
                (self.folder.path / old).unlink(missing_ok=True)
        shown = published_rows(self.resource, self.plan, self.key_range)
        if shown != self._audited:
            raise errors.ReceiptMismatch(
                f"{self.plan.target} range {self.key_range.name}: {self._audited} rows were "
                f"audited, but {path} shows {shown}"
            )
        return shown

    @property
    def _staged(self) -> TableRef:
        return staged_table(self.plan.target, self.staged.name)


def staged_table(target: TableRef, name: str) -> TableRef:
    """Refer to a file of the staging folder as a table."""
    return replace(target, schema=f"{target.schema}/{STAGING}", name=name)


def rejected(target: TableRef, key_range: KeyRange) -> TableRef:
    """The file that keeps the rows of a range that failed their audit."""
    return staged_table(target, rejected_of(target, key_range.name).name + SUFFIX)


def count(resource: FilesServer, table: TableRef, where: str = "true") -> int:
    """Count the rows of a table that meet a condition."""
    return int(resource.query(f"SELECT count(*) FROM {qualified(table)} WHERE {where}")[0][0])


def published_rows(resource: FilesServer, plan: CopyPlan, key_range: KeyRange) -> int:
    """Count the rows of a range in its own file."""
    table = replace(plan.target, name=file_name(key_range))
    try:
        return count(resource, table, plan.target_range(key_range))
    except errors.TableMissing:
        return 0


class ParquetFile:
    """Writes a Parquet file in row groups of about the same size.

    Args:
        path: the file.
        schema: the file's schema; uuids may come as 16 bytes each, or as texts.
        metadata: the file's key-value metadata.
    """

    def __init__(self, path: Path, schema: pa.Schema, metadata: dict[str, str]) -> None:
        self._schema = schema.with_metadata(metadata)
        self._pending: list[pa.RecordBatch] = []
        self._size = self.rows = self.bytes = 0
        with translated():
            self._file = path.open("wb")
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # an error in the block matters more than that of closing its incomplete file
        with self._file, suppress(pa.ArrowException, OSError):
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch's rows."""
        arrays = [
            _uuids(array) if field.type == pa.uuid() else array
            for field, array in zip(self._schema, batch.columns, strict=True)
        ]
        self._pending.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        self._size += batch.nbytes
        if self._size >= ROW_GROUP_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the remaining rows, and wait until the file is on the disk."""
        self._write()
        with translated():
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())

    def _write(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            with translated():
                self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._pending, self._size = [], 0


def _uuids(array: pa.Array) -> pa.Array:
    if not pa.types.is_fixed_size_binary(array.type):
        digits = pc.replace_substring(pc.fill_null(array, "0" * 32), "-", "").cast(pa.string())
        data = unhexlify(digits.buffers()[2] or b"")
        bits = pa.Array.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(data)])
        array = pc.if_else(array.is_valid(), bits, pa.scalar(None, pa.binary(16)))
    return pa.ExtensionArray.from_storage(pa.uuid(), array)
