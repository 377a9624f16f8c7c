"""How rows leave files: each file is a range, or each stretch of its row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, cast

import pyarrow as pa

from tableferry.resources.columns.conversions import holds
from tableferry.resources.connecting.names import connection_url
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import filtered, predicate, qualified
from tableferry.resources.contract.endpoint import Endpoint, refuse_snapshot
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.refusals import MARK, SHOWN, Where
from tableferry.resources.contract.source import Source
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.files.described import row_groups, text_shapes
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import (
    COMPRESSIONS,
    FORMATS,
    File,
    FileUnreadable,
    content_hash,
)
from tableferry.resources.files.object_store import store_at
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.store import Folder
from tableferry.resources.files.types import (
    FILE,
    FILE_TYPE,
    FROM_TEXT,
    LIKE,
    in_any_notation,
    read,
    text_type,
)
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Decimal, Integer, Kind, Timestamp

KEY_KIND: KeyKind = "file"
KEY = Column(FILE, FILE_TYPE, nullable=False)


class FilesSource(Source):
    """See `Source`."""

    own_key = FILE

    def require_installed(self, table: TableRef) -> None:
        """An object store needs a package; a folder is below its root."""
        at = store_at(connection_url(table.connection))
        if isinstance(at, Folder):
            at.place(table)

    def own_ranges(
        self,
        endpoint: Endpoint,
        table: TableRef,
        known: Sequence[KeyRange] = (),
        rows: int | None = None,
    ) -> Sequence[KeyRange]:
        """One per file; where files are cut, one per stretch of whole row groups of Parquet."""
        resource = cast(FilesServer, endpoint)
        found: list[KeyRange] = []
        for file in resource.files(table):
            if rows is None or file.format != "parquet":
                found.append(KeyRange(KEY_KIND, file.name))
                continue
            try:
                found += stretches(file.name, row_groups(file), rows)
            except FileUnreadable:
                before = [one for one in known if one.lower == file.name]
                found += before or [KeyRange(KEY_KIND, file.name)]
        return found

    def require_cuttable(self, table: TableRef) -> None:
        """Parquet has row groups; in a text nobody knows where a row begins."""
        name = PurePosixPath(table.name)
        name = name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name
        if FORMATS.get(name.suffix.lower(), "parquet") != "parquet":
            raise InputError(
                f"are for Parquet files alone, which have row groups: each file of {table} is a "
                "range"
            )

    def fingerprints(
        self, endpoint: Endpoint, table: TableRef, ranges: Sequence[KeyRange], where: str | None
    ) -> dict[str, SourceFingerprint]:
        """The hash of each one's file, and its rows; the folder is listed at most once."""
        resource = cast(FilesServer, endpoint)
        names = [str(one.lower) for one in ranges]
        files = resource.files(table) if len(names) > 1 else resource.files_now(table, names)
        there = {one.name: one for one in files}
        return {
            one.name: self._fingerprint(resource, table, there.get(str(one.lower)), one, where)
            for one in ranges
        }

    def _fingerprint(
        self,
        resource: FilesServer,
        table: TableRef,
        file: File | None,
        key_range: KeyRange,
        where: str | None,
    ) -> SourceFingerprint:
        if file is None:
            gone = f"{table}: there is no file {key_range.lower} any more"
            return SourceFingerprint(0, "file:gone", refused=gone)
        condition = filtered(predicate(KEY, key_range, table.system), where)
        try:
            hashed = content_hash(file)
            if file.format == "csv":
                text_shapes(file)
            if file.format == "parquet" and where is None:
                rows = _within(sum(row_groups(file)), key_range)
            else:
                sql = f"SELECT count(*) FROM {qualified(table)} WHERE {condition}"
                rows = int(resource.query(sql)[0][0])
        except TableferryError as error:
            if is_transient(error):
                raise
            why = str(error) if file.path in str(error) else str(file.unreadable(error))
            return SourceFingerprint(0, f"file:{file.size}:{file.version}", refused=why)
        place = ":".join(f"{one}" for one in key_range.rows or ())
        return SourceFingerprint(rows, ":".join(filter(None, ("file", place, f"{rows}", hashed))))

    def read_arrow(
        self,
        resource: Any,
        plan: CopyPlan,
        key_range: KeyRange,
        sql: str,
        *,
        batch_rows: int,
        snapshot: str | None = None,
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        """pyarrow reads what is loaded, and DuckDB what is counted and digested.

        Of a folder that a hop before has filled, DuckDB reads all: by its reading the files, which
        pyarrow wrote, were compared with where their rows come from.
        """
        if key_range.kind != KEY_KIND:
            return super().read_arrow(
                resource, plan, key_range, sql, batch_rows=batch_rows, snapshot=snapshot
            )
        refuse_snapshot(resource.system, snapshot)
        found: AbstractContextManager[pa.RecordBatchReader] = resource.read_rows(
            plan, key_range, sql, batch_rows
        )
        return found

    def declared(self, column: Column, type_: str) -> Column:
        """Texts are read as what is declared; other files declare their types themselves."""
        if not column.type.endswith(FROM_TEXT):
            return super().declared(column, type_)
        try:
            return Column(column.name, in_any_notation(type_), column.nullable)
        except InputError as error:
            raise InputError(f"column {column.name!r}: {error}") from None

    def kept(self, column: Column, kind: Kind | None) -> Column:
        """Texts and numbers are read as before, whatever later files would make of them all."""
        if column.type.startswith(LIKE) and isinstance(kind, Timestamp):
            return Column(column.name, column.type.removeprefix(LIKE), column.nullable)
        guessed = read(column.type).kind
        type_ = text_type(kind) if kind is not None and guessed is not None else None
        if type_ is not None and not column.type.endswith(FROM_TEXT):
            # what does not fit into an integer fails; decimals would be rounded
            whole = isinstance(guessed, Integer) and isinstance(kind, Integer)
            wider = isinstance(guessed, Integer | Decimal) and isinstance(kind, Decimal)
            keeps = whole or (wider and kind is not None and guessed and holds(kind, guessed))
            type_ = type_.removesuffix(FROM_TEXT) if keeps else None
        return Column(column.name, type_, column.nullable) if type_ else column

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """By an error with the message."""
        table, column, why = (DIALECT.literal(text) for text in (where.table, where.column, reason))
        place = f"json_array({table}, {column}, CAST({where.key} AS VARCHAR), "
        place += f"left(CAST({where.value} AS VARCHAR), {SHOWN}), {why})"
        message = f"error('{MARK}' || CAST({place} AS VARCHAR))"
        return f"CASE WHEN {condition} THEN {message} ELSE {expression} END"


def stretches(name: str, groups: Sequence[int], rows: int) -> Iterator[KeyRange]:
    """The ranges of a Parquet file, which begin and end with row groups; the last one is open, so
    that they hold whatever rows a target has of the file.

    Args:
        name: the file's.
        groups: the rows of each row group.
        rows: at most of a range, but for a row group that has more.
    """
    cuts, at = [1], 1
    for group in groups:
        if cuts[-1] < at and group and at + group - cuts[-1] > rows:
            cuts.append(at)
        at += group
    if len(cuts) == 1:
        yield KeyRange(KEY_KIND, name)
        return
    for first, past in pairwise([*cuts, None]):
        assert first is not None
        yield KeyRange(KEY_KIND, name, rows=(first, past))


def _within(total: int, key_range: KeyRange) -> int:
    """How many of a file's rows are in a range of it."""
    first, past = key_range.rows or (1, None)
    return max(0, min(total, total if past is None else past - 1) - first + 1)
