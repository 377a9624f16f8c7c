"""How rows leave files: a range is a file, or some consecutive row groups of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa

from tableferry.resources.columns.conversions import holds
from tableferry.resources.connecting.names import connection_url
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint, refuse_snapshot
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.refusals import MARK, Where
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.table_sql import filtered, predicate, qualified
from tableferry.resources.errors import SHOWN, InputError, TableferryError
from tableferry.resources.files import described, folder, object_store, types
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.server import FilesServer
from tableferry.resources.files.store import Folder
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.kinds import Decimal, Integer, Kind, Timestamp
from tableferry.resources.types.type_map import Column

KEY_KIND: KeyKind = "file"
KEY = Column(types.FILE, types.FILE_TYPE, nullable=False)


class FilesSource(Source):
    """See `Source`."""

    file_key = types.FILE

    def require_installed(self, table: TableRef) -> None:
        """Find the package of an object store, or refuse a folder that is not below its root."""
        store = object_store.store_at(connection_url(table.connection))
        if isinstance(store, Folder):
            store.path_of(table)

    def own_ranges(
        self,
        endpoint: Endpoint,
        table: TableRef,
        known: Sequence[KeyRange] = (),
        rows: int | None = None,
    ) -> Sequence[KeyRange]:
        """Return a range per file, or with `rows` the ranges of each Parquet file's row groups."""
        resource = cast(FilesServer, endpoint)
        ranges: list[KeyRange] = []
        for file in resource.files(table):
            if rows is None or file.format != "parquet":
                ranges.append(KeyRange(KEY_KIND, file.name))
                continue
            try:
                ranges += row_group_ranges(file.name, described.row_groups(file), rows)
            except folder.FileUnreadable:
                before = [key_range for key_range in known if key_range.lower == file.name]
                ranges += before or [KeyRange(KEY_KIND, file.name)]
        return ranges

    def require_cuttable(self, table: TableRef) -> None:
        """Refuse text files, in which nobody knows where a row begins."""
        if folder.format_of(table.name)[0] not in (None, "parquet"):
            raise InputError(
                f"are for Parquet files alone, which have row groups: each file of {table} is a "
                "range"
            )

    def fingerprints(
        self, endpoint: Endpoint, table: TableRef, ranges: Sequence[KeyRange], where: str | None
    ) -> dict[str, SourceFingerprint]:
        """Combine each range's rows and the hash of its file; the folder is listed at most once."""
        resource = cast(FilesServer, endpoint)
        names = [str(key_range.lower) for key_range in ranges]
        listed = resource.files(table) if len(names) > 1 else resource.files_now(table, names)
        files = {file.name: file for file in listed}
        return {
            key_range.name: self._fingerprint(resource, table, files.get(name), key_range, where)
            for name, key_range in zip(names, ranges, strict=True)
        }

    def _fingerprint(
        self,
        resource: FilesServer,
        table: TableRef,
        file: folder.File | None,
        key_range: KeyRange,
        where: str | None,
    ) -> SourceFingerprint:
        if file is None:
            gone = f"{table}: there is no file {key_range.lower} any more"
            return SourceFingerprint(0, "file:gone", refused=gone)
        condition = filtered(predicate(KEY, key_range, table.system), where)
        try:
            hashed = folder.content_hash(file)
            if file.format == "csv":
                described.text_figures(file)  # refuses a file that its two readers read differently
            if file.format == "parquet" and where is None:
                rows = _within(sum(described.row_groups(file)), key_range)
            else:
                sql = f"SELECT count(*) FROM {qualified(table)} WHERE {condition}"
                rows = int(resource.query(sql)[0][0])
        except TableferryError as error:
            if is_transient(error):
                raise
            why = str(error) if file.path in str(error) else str(file.unreadable(error))
            return SourceFingerprint(0, f"file:{file.size}:{file.version}", refused=why)
        bounds = key_range.rows or ()
        return SourceFingerprint(rows, ":".join(["file", *map(str, bounds), str(rows), hashed]))

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
        """Read what is loaded by pyarrow; DuckDB reads what is counted and digested.

        DuckDB alone reads a folder that the hop before wrote by pyarrow: as it reads these files,
        they were compared with their source.
        """
        if key_range.kind != KEY_KIND:
            return super().read_arrow(
                resource, plan, key_range, sql, batch_rows=batch_rows, snapshot=snapshot
            )
        refuse_snapshot(resource.system, snapshot)
        return cast(FilesServer, resource).read_rows(plan, key_range, sql, batch_rows)

    def declared(self, column: Column, type_: str) -> Column:
        """Read texts as the declared type; Parquet files declare their types themselves."""
        if not column.type.endswith(types.FROM_TEXT):
            return super().declared(column, type_)
        try:
            return Column(column.name, types.in_any_notation(type_), column.nullable)
        except InputError as error:
            raise InputError(f"column {column.name!r}: {error}") from None

    def kept(self, column: Column, kind: Kind | None) -> Column:
        """Read texts and numbers as before, also if new files change the type that all have."""
        if column.type.startswith(types.LIKE) and isinstance(kind, Timestamp):
            return Column(column.name, column.type.removeprefix(types.LIKE), column.nullable)
        guessed = types.read(column.type).kind
        type_ = types.text_type(kind) if kind is not None and guessed is not None else None
        if type_ is not None and not column.type.endswith(types.FROM_TEXT):
            # a number that does not fit into an integer is refused; a decimal would be rounded
            integers = isinstance(guessed, Integer) and isinstance(kind, Integer)
            decimals = isinstance(guessed, Integer | Decimal) and isinstance(kind, Decimal)
            exact = integers or (decimals and kind is not None and guessed and holds(kind, guessed))
            type_ = type_.removesuffix(types.FROM_TEXT) if exact else None
        return Column(column.name, type_, column.nullable) if type_ else column

    def guarded(
        self, expression: str, condition: str, where: Where, reason: str, type_: str
    ) -> str:
        """Raise DuckDB's `error` with the message where the condition holds."""
        table, column, why = (DIALECT.literal(text) for text in (where.table, where.column, reason))
        details = f"json_array({table}, {column}, CAST({where.key} AS VARCHAR), "
        details += f"left(CAST({where.value} AS VARCHAR), {SHOWN}), {why})"
        message = f"error('{MARK}' || CAST({details} AS VARCHAR))"
        return f"CASE WHEN {condition} THEN {message} ELSE {expression} END"


def row_group_ranges(name: str, groups: Sequence[int], rows: int) -> Iterator[KeyRange]:
    """Cut a Parquet file between row groups. The last range has no upper bound, so that the ranges
    include all rows that a target may have of the file.

    Args:
        name: the file's name.
        groups: the number of rows of each row group.
        rows: maximum number of rows of a range, unless a single row group has more.
    """
    cuts, first_row = [1], 1
    for group in groups:
        if cuts[-1] < first_row and group and first_row + group - cuts[-1] > rows:
            cuts.append(first_row)
        first_row += group
    if len(cuts) == 1:
        yield KeyRange(KEY_KIND, name)
        return
    for first, past in pairwise([*cuts, None]):
        assert first is not None
        yield KeyRange(KEY_KIND, name, rows=(first, past))


def _within(total: int, key_range: KeyRange) -> int:
    """Count the rows of a range of a file that has `total` rows."""
    first, past = key_range.rows or (1, None)
    return max(0, min(total, total if past is None else past - 1) - first + 1)
