"""Folders of files as tables, read by DuckDB."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.facts import facts_of
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError, TableferryError, TableMissing
from tableferry.resources.extras import require
from tableferry.resources.files import delimited
from tableferry.resources.files import parquet as by_pyarrow
from tableferry.resources.files.database import opened
from tableferry.resources.files.described import Names, names, text_types
from tableferry.resources.files.dialect import DIALECT, OF_FILE
from tableferry.resources.files.errors import translated
from tableferry.resources.files.folder import File, FileUnreadable, matching
from tableferry.resources.files.inference import united
from tableferry.resources.files.loading import rows, unchanged
from tableferry.resources.files.object_store import ObjectStore, store_at
from tableferry.resources.files.reading import reading, row_number
from tableferry.resources.files.store import Folder
from tableferry.resources.files.types import FILE, FILE_TYPE, INSTANT_NS, NOTHING, UNREADABLE
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

_SELECTED = re.compile(rf"{OF_FILE}\(\"{FILE}\", '((?:[^']|'')*)'\)")
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')

_STREAMED = "ferry_rows"
Stream = Callable[[File, Names], Names]
"""Makes a file's rows the table `_STREAMED`; tells which of its columns that has."""


class FilesServer(Server):
    """Files below a folder: `file:///srv/incoming`, or the working directory without a URL; or the
    objects of a bucket: `s3://bucket/prefix`.

    Every query has a database of its own, in memory, with a view of the files that it is about.
    """

    system_name: ClassVar[str] = "files"

    @property
    def has_address(self) -> bool:
        """A folder may be given by the table alone."""
        return True

    def location_warning(self, table: TableRef) -> str | None:
        """Warn of a relative folder without a URL: working directories differ between processes."""
        if self._secret("url") or Path(table.schema).is_absolute():
            return None
        folder = self.root / ("" if table.schema == "." else table.schema)
        return (
            f"{table} is {folder}, below the working directory of this process; "
            "TABLEFERRY_FILES_URL=file:///folder says for all where folders begin"
        )

    def settings(self) -> ConnectionSettings:
        """Where relative folders begin: the host has the bucket, and the database is the path.

        Raises:
            InputError: as `store`.
        """
        at = self.store
        if isinstance(at, Folder):
            return ConnectionSettings("files", "localhost", 0, str(at.root))
        return ConnectionSettings("files", f"{at.scheme}://{at.bucket}", 0, at.prefix)

    @property
    def store(self) -> Folder | ObjectStore:
        """Where the files are.

        Raises:
            InputError: the URL names neither a local folder nor a bucket, or what reaches it is not
                installed.
        """
        require("files", "a folder of files")
        return store_at(self._secret("url"))

    @property
    def root(self) -> Path:
        """What relative folders to write to are relative to.

        Raises:
            InputError: it is an object store.
        """
        at = self.store
        if not isinstance(at, Folder):
            raise InputError(f"{at.url} is an object store, which is read, never written")
        return at.root

    def ping(self) -> str:
        """DuckDB's version.

        Raises:
            ConnectionFailed: there is no such folder or bucket, or it refuses us.
        """
        import duckdb

        return f"DuckDB {duckdb.__version__}, {self.store.reached()}"

    def files(self, table: TableRef) -> list[File]:
        """The files of a table, by name. Raises as `folder.matching`."""
        store = self.store
        found = matching(store, table)
        facts_of(store).note(("listed", table), found)
        return found

    def files_now(self, table: TableRef, names: Collection[str]) -> list[File]:
        """The files of a table as they were last listed, but some as they are now.

        A store takes a request per folder, and one for every thousand objects, to list them.

        Args:
            table: the files.
            names: those that matter; if one was not among them, or is gone, all are listed anew.
        """
        files = facts_of(self.store).latest(("listed", table), list[File]())
        if not {one.name for one in files}.issuperset(names):
            return self.files(table)
        try:
            return [one.now() if one.name in names else one for one in files]
        except FileNotFoundError:
            return self.files(table)

    def columns(self, table: TableRef) -> list[Column]:
        """The columns of all files together, by name, and those with the file's name and row.

        Parquet files declare their types; a column of text files has the narrowest type that keeps
        all of its texts. Files that cannot be read are left out.

        Raises:
            TableMissing: there are no files, or none that can be read.
            InputError: the types of a column have no type in common.
        """
        files = self.files(table)
        whole = self._readable(files)
        if not whole:
            raise TableMissing(str(self._why_unreadable(files[0])))
        own: dict[str, tuple[str, list[tuple[File, str]]]] = {}
        for file, held in whole:
            for name, type_ in held.items():
                own.setdefault(name.casefold(), (name, []))[1].append((file, type_))
        types = text_types(whole) if whole[0][0].format != "parquet" else {}
        found = [Column(FILE, FILE_TYPE, nullable=False, primary_key=1)]
        found.append(Column(ROW, "BIGINT", nullable=False, primary_key=2))
        for folded, (name, seen) in own.items():
            common = types.get(folded) or united([one for _, one in seen])
            if common is None:
                first = seen[0]
                other = next(one for one in seen if one[1] != first[1])
                raise InputError(
                    f"{table}: column {name!r} is {first[1]} in {first[0].name} and {other[1]} in "
                    f"{other[0].name}, which no type holds"
                )
            found.append(Column(name, common))
        return found

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        refuse_snapshot(self.system, snapshot)
        with opened(self.store, []) as database:
            self._attach(database, sql)
            return database.execute(sql).fetchall()

    def execute(self, sql: str) -> None:
        """Files know no statements.

        Raises:
            InputError: always.
        """
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

        DuckDB reads it for `query` and `read_arrow`, so that what one of them reads wrong is found.

        Args:
            plan: the hop.
            key_range: the range.
            sql: the query that selects it.
            batch_rows: most rows of a batch.
        """
        name = str(key_range.lower)
        file = next((one for one in self.files_now(plan.source, [name]) if one.name == name), None)
        if file is not None and file.format == "parquet":
            columns = unchanged(plan, names(file))
            if columns is not None:
                yield rows(file, columns, key_range, batch_rows)
                return
        # whatever a condition may name
        wanted = None if plan.where else {one.source.name.casefold() for one in plan.columns}
        with self._streamed(sql, batch_rows, (key_range, wanted)) as reader:
            yield reader

    @contextmanager
    def _streamed(
        self,
        sql: str,
        batch_rows: int,
        loading: tuple[KeyRange, Collection[str] | None] | None = None,
    ) -> Iterator[pa.RecordBatchReader]:
        failures: list[Exception] = []
        ended = threading.Event()
        with opened(self.store, failures) as database:

            def stream(file: File, held: Names) -> Names:
                assert loading is not None
                key_range, columns = loading
                wanted = {
                    name: type_
                    for name, type_ in held.items()
                    if columns is None or name.casefold() in columns
                }
                if file.format == "parquet":
                    reader = by_pyarrow.batches(file, wanted, key_range, failures.append)
                else:
                    reader = delimited.batches(file, wanted, failures.append)
                until = takewhile(lambda _: not ended.is_set(), reader)
                whole = pa.RecordBatchReader.from_batches(reader.schema, until)
                database.register(_STREAMED, whole)
                return wanted

            self._attach(database, sql, stream if loading else None)
            reader = database.execute(sql).to_arrow_reader(batch_rows)

            def batches() -> Iterator[pa.RecordBatch]:
                with translated(failures):
                    yield from reader

            try:
                yield pa.RecordBatchReader.from_batches(reader.schema, batches())
            finally:
                # threads of DuckDB's that are left would call Python after its end
                ended.set()
                with suppress(Exception):
                    for _ in reader if loading else ():
                        pass

    def _attach(
        self, database: duckdb.DuckDBPyConnection, sql: str, stream: Stream | None = None
    ) -> None:
        """Create the views that a query reads.

        Raises:
            FileUnreadable: it reads a single file, and that one is not whole.
        """
        tables = database.get_table_names(sql, qualified=True)
        selected = {one.replace("''", "'") for one in _SELECTED.findall(sql)}
        for text in tables:
            parts = [(a or b).replace('""', '"') for a, b in _NAME.findall(text)]
            if len(parts) != 2:
                continue
            table = TableRef("files", parts[0], parts[1])
            files = self.files_now(table, selected) if selected else self.files(table)
            wanted = [one for one in files if not selected or one.name in selected]
            if len(selected) == 1 and len(wanted) == 1:
                names(wanted[0])
            view = self._view(files, wanted, stream)
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {DIALECT.quote(table.schema)}")
            database.execute(f"CREATE VIEW {qualified(table)} AS {view}")

    def _view(self, files: Sequence[File], wanted: Sequence[File], stream: Stream | None) -> str:
        """The rows of some files, with the columns of all."""
        columns: dict[str, tuple[str, list[str]]] = {}
        whole = self._readable(files)
        for _, held in whole:
            for name, type_ in held.items():
                columns.setdefault(name.casefold(), (name, []))[1].append(type_)
        nothing = {
            folded: f"CAST(NULL AS {_of_duckdb(united(seen) or seen[0])})"
            for folded, (_, seen) in columns.items()
        }
        of = {file.name: held for file, held in whole}
        selects = [
            self._rows(file, of[file.name], columns, nothing, stream)
            for file in wanted
            if file.name in of
        ]
        shown = [
            f"{nothing[folded]} AS {DIALECT.quote(one)}" for folded, (one, _) in columns.items()
        ]
        shown += [f'CAST(NULL AS VARCHAR) AS "{FILE}"', f'CAST(NULL AS BIGINT) AS "{ROW}"']
        return " UNION ALL ".join(selects or [f"SELECT {', '.join(shown)} WHERE false"])

    def _rows(
        self,
        file: File,
        held: Names,
        columns: Mapping[str, tuple[str, Sequence[str]]],
        nothing: Mapping[str, str],
        stream: Stream | None,
    ) -> str:
        """The rows of a file, with the columns of all; those that it lacks are NULL."""
        if stream is not None and file.format != "ndjson":
            held, table, row = stream(file, held), _STREAMED, f'"{ROW}"'
        else:
            table, row = reading(file, held), row_number(file, held)
        here = {name.casefold(): name for name, type_ in held.items() if type_ != NOTHING}
        shown = [
            f"{DIALECT.quote(here[folded]) if folded in here else nothing[folded]} "
            f"AS {DIALECT.quote(name)}"
            for folded, (name, _) in columns.items()
        ]
        shown += [f'{DIALECT.literal(file.name)} AS "{FILE}"', f'{row} AS "{ROW}"']
        return f"SELECT {', '.join(shown)} FROM {table}"

    def _readable(self, files: Sequence[File]) -> list[tuple[File, Names]]:
        """The files that are whole as far as their headers tell, with their columns."""
        found = []
        for file in files:
            try:
                found.append((file, names(file)))
            except FileUnreadable:
                continue
        return found

    def _why_unreadable(self, file: File) -> TableferryError:
        try:
            names(file)
        except FileUnreadable as error:
            return error
        return file.unreadable("it changed meanwhile")


def _of_duckdb(type_: str) -> str:
    """A type of ours in which DuckDB holds a column's values."""
    if UNREADABLE in type_:
        return type_.partition(UNREADABLE)[2].partition(" IN ")[0]
    return "TIMESTAMP WITH TIME ZONE" if type_ == INSTANT_NS else type_
