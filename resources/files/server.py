"""Folders of files as tables, read by DuckDB."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from resources.dialects import qualified, quote, string_literal
from resources.endpoint import BATCH_ROWS, refuse_snapshot
from resources.errors import InputError, TableferryError, TableMissing
from resources.files.database import opened
from resources.files.dialect import OF_FILE
from resources.files.errors import translated
from resources.files.folder import (
    File,
    FileUnreadable,
    header,
    matching,
    remembered,
    require_distinct,
)
from resources.files.inference import WIDTH, inferred, shape, united
from resources.files.object_store import ObjectStore, store_at
from resources.files.reading import objects, parquet, reading, row_number
from resources.files.store import Folder
from resources.files.types import FILE, FILE_TYPE
from resources.keys.range import ROW
from resources.retry import is_transient
from resources.server import ConnectionSettings, Server
from resources.tables import Column, TableRef

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

_SELECTED = re.compile(rf"{OF_FILE}\(\"{FILE}\", '((?:[^']|'')*)'\)")
_NAME = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')

_listed: dict[tuple[Folder | ObjectStore, TableRef], list[File]] = {}
"""The files of a table when they were last listed."""
_lock = threading.Lock()

Names = dict[str, str]
"""The columns of a file: name -> type in the file."""


class FilesServer(Server):
    """Files below a folder: `file:///srv/incoming`, or the working directory without a URL; or the
    objects of a bucket: `s3://bucket/prefix`.

    Every query has a database of its own, in memory, with a view of the files that it is about.
    """

    system: ClassVar[str] = "files"

    @property
    def addressed(self) -> bool:
        """A folder may be given by the table alone."""
        return True

    def elsewhere(self, table: TableRef) -> str | None:
        """A relative folder without a URL: the working directory differs between processes."""
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
        with _lock:
            _listed[store, table] = found
        return found

    def files_now(self, table: TableRef, names: Collection[str]) -> list[File]:
        """The files of a table as they were last listed, but some as they are now.

        A store takes a request per folder, and one for every thousand objects, to list them.

        Args:
            table: the files.
            names: those that matter; if one was not among them, or is gone, all are listed anew.
        """
        with _lock:
            files = _listed.get((self.store, table), [])
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
        for file, names in whole:
            for name, type_ in names.items():
                own.setdefault(name.casefold(), (name, []))[1].append((file, type_))
        types = self._inferred(whole) if whole[0][0].format != "parquet" else {}
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

    def row_groups(self, file: File) -> list[int]:
        """The rows of each row group of a Parquet file, as its footer has them.

        Raises:
            FileUnreadable: it is not whole.
        """
        self._names(file)
        return remembered(file, "row groups", partial(_row_groups, file))

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
        failures: list[Exception] = []
        with opened(self.store, failures) as database:
            self._attach(database, sql)
            reader = database.execute(sql).to_arrow_reader(batch_rows)

            def batches() -> Iterator[pa.RecordBatch]:
                with translated(failures):
                    yield from reader

            yield pa.RecordBatchReader.from_batches(reader.schema, batches())

    def _attach(self, database: duckdb.DuckDBPyConnection, sql: str) -> None:
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
                self._names(wanted[0])
            view = self._view(files, wanted)
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {quote('files', table.schema)}")
            database.execute(f"CREATE VIEW {qualified(table)} AS {view}")

    def _view(self, files: Sequence[File], wanted: Sequence[File]) -> str:
        """The rows of some files, with the columns of all."""
        columns: dict[str, tuple[str, list[str]]] = {}
        whole = self._readable(files)
        for _, names in whole:
            for name, type_ in names.items():
                columns.setdefault(name.casefold(), (name, []))[1].append(type_)
        types = {folded: united(seen) or seen[0] for folded, (_, seen) in columns.items()}
        nothing = ", ".join(
            f"CAST(NULL AS {types[folded]}) AS {quote('files', name)}"
            for folded, (name, _) in columns.items()
        )
        nothing = f"{nothing}, " if nothing else ""
        selects = [
            f'SELECT {nothing}CAST(NULL AS VARCHAR) AS "{FILE}", CAST(NULL AS BIGINT) AS "{ROW}" '
            "WHERE false"
        ]
        of = {file.name: names for file, names in whole}
        for file in wanted:
            if file.name not in of:
                continue
            here = {name.casefold(): name for name in of[file.name]}
            shown = [
                f"{quote('files', here[folded]) if folded in here else 'NULL'} "
                f"AS {quote('files', name)}"
                for folded, (name, _) in columns.items()
            ]
            shown.append(f'{string_literal("files", file.name)} AS "{FILE}"')
            row = row_number(file, of[file.name])
            selects.append(
                f'SELECT {", ".join(shown)}, {row} AS "{ROW}" FROM {reading(file, of[file.name])}'
            )
        return " UNION ALL ".join(selects)

    def _readable(self, files: Sequence[File]) -> list[tuple[File, Names]]:
        """The files that are whole as far as their headers tell, with their columns."""
        found = []
        for file in files:
            try:
                found.append((file, self._names(file)))
            except FileUnreadable:
                continue
        return found

    def _why_unreadable(self, file: File) -> TableferryError:
        try:
            self._names(file)
        except FileUnreadable as error:
            return error
        return file.unreadable("it changed meanwhile")

    def _names(self, file: File) -> Names:
        """A file's columns.

        Raises:
            FileUnreadable: it is not whole.
        """
        if file.format == "csv":
            return dict.fromkeys(header(file)[1], "VARCHAR")
        if file.format == "ndjson":
            return remembered(file, "keys", partial(self._keys, file))
        return remembered(file, "columns", lambda: self._described(file))

    def _described(self, file: File) -> Names:
        try:
            with opened(self.store, []) as database:
                rows = database.execute(f"DESCRIBE SELECT * FROM {parquet(file)}").fetchall()
        except TableferryError as error:
            raise _of(file, error) from None
        require_distinct(file, [row[0] for row in rows])
        return {row[0]: row[1] for row in rows}

    def _keys(self, file: File) -> Names:
        """The keys of all objects of a file, in the order in which they come first."""
        sql = (
            "SELECT key FROM (SELECT unnest(json_keys(json)) AS key, "
            "generate_subscripts(json_keys(json), 1) AS place, json_type(json) AS kind "
            f"FROM {objects(file)}) GROUP BY key ORDER BY min(place), key"
        )
        try:
            with opened(self.store, []) as database:
                names = [row[0] for row in database.execute(sql).fetchall()]
        except TableferryError as error:
            raise _of(file, error) from None
        require_distinct(file, names)
        return dict.fromkeys(names, "VARCHAR")

    def _inferred(self, whole: Sequence[tuple[File, Names]]) -> dict[str, str]:
        """The types of the columns of text files, by folded name, from all of their values."""
        shapes: dict[str, list[tuple[int, ...]]] = {}
        for file, names in whole:
            try:
                figures = remembered(file, "shapes", partial(self._shapes, file, names))
            except TableferryError as error:
                if is_transient(error):
                    raise
                continue  # what cannot be read is refused when its range is
            for number, name in enumerate(names):
                own = figures[number * WIDTH : (number + 1) * WIDTH]
                shapes.setdefault(name.casefold(), []).append(own)
        return {name: inferred(figures) for name, figures in shapes.items()}

    def _shapes(self, file: File, names: Names) -> tuple[int, ...]:
        selected = ", ".join(one for name in names for one in shape(quote("files", name)))
        with opened(self.store, []) as database:
            row = database.execute(f"SELECT {selected} FROM {reading(file, names)}").fetchone()
        assert row is not None
        return row


def _row_groups(file: File) -> list[int]:
    try:
        with file.store.open(file.path, scattered=True) as stream:
            footer = pq.read_metadata(stream)
    except TableferryError as error:
        raise _of(file, error) from None
    except (pa.ArrowException, OSError) as error:
        raise file.unreadable(error) from None
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def _of(file: File, error: TableferryError) -> TableferryError:
    """What fails for good is the file's fault."""
    return error if is_transient(error) else file.unreadable(error)
