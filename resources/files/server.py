"""Folders of files as tables, read by DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.batches import FETCHED_ROWS, combined
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.facts import facts_of
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.table_sql import has_filter, qualified
from tableferry.resources.errors import InputError, TableMissing
from tableferry.resources.extras import require
from tableferry.resources.files.attaching import ALL_ROWS, Attaching, Rows, rows, unchanged
from tableferry.resources.files.database import opened
from tableferry.resources.files.described import Names, names, text_types, united
from tableferry.resources.files.dialect import DIALECT, OF_FILE
from tableferry.resources.files.errors import translated
from tableferry.resources.files.folder import File, FileUnreadable, matching
from tableferry.resources.files.object_store import ObjectStore, store_at
from tableferry.resources.files.store import Folder
from tableferry.resources.files.types import FILE, FILE_TYPE, INSTANT_NS, NOTHING, UNREADABLE
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

_SELECTED = re.compile(rf"{OF_FILE}\(\"{FILE}\", '((?:[^']|'')*)'\)")
_NUMBERS = re.compile(rf'"{ROW}" >= ([0-9]+)(?: AND "{ROW}" < ([0-9]+))?')
"""The rows of a cut file, as `table_sql.predicate` writes them."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')

ByFolded = dict[str, tuple[str, list[tuple[File, str]]]]
"""The columns of several files: folded name -> first name, and the type in each file."""


class FilesServer(Server):
    """Files below a folder: `file:///srv/incoming`, or the working directory without a URL; or the
    objects of a bucket: `s3://bucket/prefix`.

    Every query has a database of its own, in memory, with a view of the files that it reads.
    """

    system_name: ClassVar[str] = "files"

    @property
    def has_address(self) -> bool:
        """True: without a URL, a table's folder is relative to the working directory."""
        return True

    def location_warning(self, table: TableRef) -> str | None:
        """Warn of a relative folder without a URL: working directories differ."""
        if self._secret("url") or Path(table.schema).is_absolute():
            return None
        folder = self.root / ("" if table.schema == "." else table.schema)
        return (
            f"{table} is {folder}, below the working directory of this process; "
            "TABLEFERRY_FILES_URL=file:///folder says for all where folders begin"
        )

    def settings(self) -> ConnectionSettings:
        """Where relative folders begin: the host is the bucket, and the database the path.

        Raises:
            InputError: see `store`.
        """
        store = self.store
        if isinstance(store, Folder):
            return ConnectionSettings("files", "localhost", 0, str(store.root))
        return ConnectionSettings("files", f"{store.scheme}://{store.bucket}", 0, store.prefix)

    def place(self, table: TableRef) -> tuple[str, str, str]:
        """Folders are one that links lead to; see `Endpoint.place`."""
        store = self.store
        if not isinstance(store, Folder):
            return super().place(table)
        return "", os.path.realpath(store.root / table.schema), table.name

    @property
    def store(self) -> Folder | ObjectStore:
        """The store of the files.

        Raises:
            InputError: the URL names neither a local folder nor a bucket, or the package that reads
                it is not installed.
        """
        require("files", "a folder of files")
        return store_at(self._secret("url"))

    @property
    def root(self) -> Path:
        """Where relative folders to write to begin.

        Raises:
            InputError: in an object store.
        """
        store = self.store
        if not isinstance(store, Folder):
            raise InputError(f"{store.url} is an object store, which is read, never written")
        return store.root

    def ping(self) -> str:
        """Make sure that the store is there, and return DuckDB's version.

        Raises:
            ConnectionFailed: there is no such folder or bucket, or it refuses access.
        """
        import duckdb

        return f"DuckDB {duckdb.__version__}, {self.store.ping()}"

    def files(self, table: TableRef) -> list[File]:
        """List the files of a table, by name. Raises as `folder.matching`."""
        store = self.store
        files = matching(store, table)
        facts_of(store).note(("listed", table), files)
        return files

    def files_now(self, table: TableRef, names: Collection[str]) -> list[File]:
        """The files of a table as they were last listed, but some with their present versions.

        To list a store takes a request per folder, and one for every thousand objects.

        Args:
            table: the files.
            names: the files that have to be up to date; all are listed anew if one was not listed,
                or is gone.
        """
        files = facts_of(self.store).latest(("listed", table), list[File]())
        if not {file.name for file in files}.issuperset(names):
            return self.files(table)
        try:
            return [file.now() if file.name in names else file for file in files]
        except FileNotFoundError:
            return self.files(table)

    def columns(self, table: TableRef) -> list[Column]:
        """The columns of all files together, by name, and those of the file's name and the row.

        Parquet files declare their types; a column of text files has the narrowest type that keeps
        all of its texts. Files that cannot be read are left out.

        Raises:
            TableMissing: there are no files, or none that can be read.
            InputError: no type holds the values of a column's types.
        """
        readable, errors = _readable(self.files(table))
        if not readable:
            raise TableMissing(str(errors[0]))
        types = text_types(readable) if readable[0][0].format != "parquet" else {}
        columns = [Column(FILE, FILE_TYPE, nullable=False, primary_key=1)]
        columns.append(Column(ROW, "BIGINT", nullable=False, primary_key=2))
        for folded, (name, in_files) in _by_folded(readable).items():
            common = types.get(folded) or united([type_ for _, type_ in in_files])
            if common is None:
                file, type_ = in_files[0]
                other, other_type = next(pair for pair in in_files if pair[1] != type_)
                raise InputError(
                    f"{table}: column {name!r} is {type_} in {file.name} and {other_type} in "
                    f"{other.name}, which no type holds"
                )
            columns.append(Column(name, common))
        return columns

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        refuse_snapshot(self.system, snapshot)
        failures: list[Exception] = []
        with opened(self.store, failures, prunes=_prunes(sql)) as database:
            self._attach(database, sql, Attaching(database, failures))
            return database.execute(sql).fetchall()

    def execute(self, sql: str) -> None:
        """Raise `InputError`."""
        raise InputError("files take no statements")

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a query's result."""
        refuse_snapshot(self.system, snapshot)
        with self._streamed(sql, batch_rows) as reader:
            yield reader

    @contextmanager
    def read_rows(
        self, plan: CopyPlan, key_range: KeyRange, sql: str, batch_rows: int
    ) -> Iterator[pa.RecordBatchReader]:
        """Stream a range that is to be loaded, as pyarrow reads its file.

        `query` and `read_arrow` read it by DuckDB, so that the proof finds what either reads wrong.

        Args:
            plan: the hop.
            key_range: the range.
            sql: the query that selects it.
            batch_rows: maximum number of rows of a batch.
        """
        name = str(key_range.lower)
        files = self.files_now(plan.source, [name])
        file = next((file for file in files if file.name == name), None)
        if file is not None and file.format == "parquet":
            columns = None if plan.source.read_as else unchanged(plan, names(file))
            if columns is not None:
                yield rows(file, columns, key_range, batch_rows)
                return
        names_read = {column.source.name.casefold() for column in plan.columns}
        # all columns for a row filter or an expression, which may name any
        needed = None if plan.condition or plan.source.read_as else names_read
        with self._streamed(sql, batch_rows, key_range.rows or ALL_ROWS, needed) as reader:
            yield reader

    @contextmanager
    def _streamed(
        self,
        sql: str,
        batch_rows: int,
        loaded: Rows | None = None,
        needed: Collection[str] | None = None,
    ) -> Iterator[pa.RecordBatchReader]:
        failures: list[Exception] = []
        with opened(self.store, failures, prunes=_prunes(sql)) as database:
            attaching = Attaching(database, failures, loaded, needed)
            self._attach(database, sql, attaching)
            with attaching.results(sql, min(batch_rows, FETCHED_ROWS)) as reader:

                def batches() -> Iterator[pa.RecordBatch]:
                    with translated(failures):
                        yield from combined(reader, batch_rows)

                yield pa.RecordBatchReader.from_batches(reader.schema, batches())

    def _attach(self, database: duckdb.DuckDBPyConnection, sql: str, attaching: Attaching) -> None:
        """Create the views that a query reads.

        Raises:
            FileUnreadable: it reads a single file, which is damaged.
        """
        tables = database.get_table_names(sql, qualified=True)
        selected = {name.replace("''", "'") for name in _SELECTED.findall(sql)}
        for text in tables:
            parts = [(a or b).replace('""', '"') for a, b in _NAME.findall(text)]
            if len(parts) != 2:
                continue
            table = TableRef("files", parts[0], parts[1])
            files = self.files_now(table, selected) if selected else self.files(table)
            shown = {file.name for file in files if not selected or file.name in selected}
            if len(selected) == len(shown) == 1:
                names(next(file for file in files if file.name in shown))
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {DIALECT.quote(table.schema)}")
            rows = _stretch(sql) if len(shown) == 1 else None
            as_table = partial(attaching.table, rows=rows, filtered=has_filter(sql))
            view = _view(files, shown, as_table)
            database.execute(f"CREATE VIEW {qualified(table)} AS {view}")


def _prunes(sql: str) -> bool:
    """Whether a query may skip row groups by the footer: one with a filter only to find those of a
    stretch of rows, see `reading.stretch`."""
    return not has_filter(sql) or _stretch(sql) is not None


def _stretch(sql: str) -> Rows | None:
    """The stretch of a single file that a query is about, if any."""
    found = {(int(first), int(past) if past else None) for first, past in _NUMBERS.findall(sql)}
    return found.pop() if len(found) == 1 else None


def _view(
    files: Sequence[File],
    shown: Collection[str],
    as_table: Callable[[File, Names], tuple[Names, str, str]],
) -> str:
    """The query of a view: the rows of some files, with the columns of all."""
    readable, _ = _readable(files)
    nulls: dict[str, str] = {}
    for name, in_files in _by_folded(readable).values():
        types = [type_ for _, type_ in in_files]
        nulls[name] = f"CAST(NULL AS {_duckdb_type(united(types) or types[0])})"
    selects = [
        _select(file, nulls, *as_table(file, columns))
        for file, columns in readable
        if file.name in shown
    ]
    if selects:
        return " UNION ALL ".join(selects)
    listed = [f"{null} AS {DIALECT.quote(name)}" for name, null in nulls.items()]
    listed += [f'CAST(NULL AS VARCHAR) AS "{FILE}"', f'CAST(NULL AS BIGINT) AS "{ROW}"']
    return f"SELECT {', '.join(listed)} WHERE false"


def _select(file: File, nulls: Mapping[str, str], columns: Names, table: str, row: str) -> str:
    """The rows of a file, with the columns of all files; those that it lacks are NULL."""
    in_file = {
        name.casefold(): DIALECT.quote(name) for name, type_ in columns.items() if type_ != NOTHING
    }
    listed = [
        f"{in_file.get(name.casefold(), null)} AS {DIALECT.quote(name)}"
        for name, null in nulls.items()
    ]
    listed += [f'{DIALECT.literal(file.name)} AS "{FILE}"', f'{row} AS "{ROW}"']
    return f"SELECT {', '.join(listed)} FROM {table}"


def _readable(
    files: Sequence[File],
) -> tuple[list[tuple[File, Names]], list[FileUnreadable]]:
    """Separate the files whose columns can be read, with these, from the errors of the others."""
    readable, errors = [], []
    for file in files:
        try:
            readable.append((file, names(file)))
        except FileUnreadable as error:
            errors.append(error)
    return readable, errors


def _by_folded(files: Iterable[tuple[File, Names]]) -> ByFolded:
    columns: ByFolded = {}
    for file, names_ in files:
        for name, type_ in names_.items():
            columns.setdefault(name.casefold(), (name, []))[1].append((file, type_))
    return columns


def _duckdb_type(type_: str) -> str:
    """The type in which DuckDB holds a column's values."""
    if UNREADABLE in type_:
        return type_.partition(UNREADABLE)[2].partition(" IN ")[0]
    return "TIMESTAMP WITH TIME ZONE" if type_ == INSTANT_NS else type_
