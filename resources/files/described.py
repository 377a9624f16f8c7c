"""The columns of files and their types, as declared or as their values have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.errors import TableferryError
from tableferry.resources.files import delimited, folder
from tableferry.resources.files import parquet as by_pyarrow
from tableferry.resources.files.database import opened
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.inference import WIDTH, figures, inferred
from tableferry.resources.files.lines import attached
from tableferry.resources.files.notations import INSTANT
from tableferry.resources.files.reading import KINDS, member, members, objects, parquet, reading
from tableferry.resources.files.types import INSTANT_NS, NOTHING, TEXT, UNREADABLE

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

Names = dict[str, str]
"""The columns of a file: name -> type in the file."""


def names(file: folder.File) -> Names:
    """Find a file's columns.

    Raises:
        FileUnreadable: it is damaged.
    """
    if file.format == "csv":
        return dict.fromkeys(folder.header(file)[1], "VARCHAR")
    return _keys(file) if file.format == "ndjson" else _declared(file)


def row_groups(file: folder.File) -> list[int]:
    """The number of rows of each row group of a Parquet file.

    Raises:
        FileUnreadable: it is damaged.
    """
    names(file)
    return by_pyarrow.footer(file).row_groups


def text_types(files: Sequence[tuple[folder.File, Names]]) -> dict[str, str]:
    """Infer the types of the columns of text files, by folded name, from all of their values."""
    by_name: dict[str, list[Sequence[int]]] = {}
    for file, columns in files:
        try:
            of_columns = text_figures(file)
        except TableferryError as error:
            if is_transient(error):
                raise
            continue  # the file is refused with its range
        for name, of_column in zip(columns, of_columns, strict=True):
            by_name.setdefault(name.casefold(), []).append(of_column)
    types = {name.casefold(): TEXT for _, columns in files for name in columns}
    return types | {name: inferred(of_files) for name, of_files in by_name.items()}


def text_figures(file: folder.File) -> list[Sequence[int]]:
    """Compute `inference.figures` of each column of a text file.

    Raises:
        FileUnreadable: it is damaged, or its two readers differ.
    """
    return _text_figures(file)[0]


def longest_row(file: folder.File) -> int:
    """The most bytes that the texts of a row of a CSV file have. Raises as `text_figures`."""
    return _text_figures(file)[1]


@folder.once_per_version
def _text_figures(file: folder.File) -> tuple[list[Sequence[int]], int]:
    columns = names(file)
    failures: list[Exception] = []
    try:
        with opened(file.store, failures) as database:
            if file.format == "ndjson":
                positions = range(1, len(columns) + 1)
                selected = [sql for at in positions for sql in figures(f"c{at}", f"{KINDS}[{at}]")]
                texts = "".join(f"{member(at)} AS c{at}, " for at in positions)
                lines = attached(database, file, failures)
                table = f"(SELECT {texts}{KINDS} FROM {members(file, columns, lines)})"
            else:
                selected = [sql for name in columns for sql in figures(DIALECT.quote(name))]
                selected.append(delimited.row_hashes(columns))
                selected.append(delimited.row_length(columns))
                table = reading(file, columns)
            selected.append("count(*)")
            row = database.execute(f"SELECT {', '.join(selected)} FROM {table}").fetchone()
    except TableferryError as error:
        raise _blamed(file, error) from None
    assert row is not None
    longest = 0
    if file.format == "csv":
        longest = int(row[-2] or 0)
        delimited.require_alike(file, rows=row[-1], total=row[-3], longest=longest)
    return [row[at * WIDTH : (at + 1) * WIDTH] for at in range(len(columns))], longest


@folder.once_per_version
def _keys(file: folder.File) -> Names:
    """Find the keys of all objects of a file, in the order of their first occurrence."""
    failures: list[Exception] = []
    try:
        with opened(file.store, failures) as database:
            sql = (
                "SELECT key FROM (SELECT unnest(json_keys(json)) AS key, "
                "generate_subscripts(json_keys(json), 1) AS place "
                f"FROM {objects(file, attached(database, file, failures))}) "
                "GROUP BY key ORDER BY min(place), key"
            )
            keys = [row[0] for row in database.execute(sql).fetchall()]
    except TableferryError as error:
        raise _blamed(file, error) from None
    if not keys:
        raise file.unreadable("no object in it has a key, so that it has no columns")
    folder.require_distinct(file, keys)
    return dict.fromkeys(keys, "VARCHAR")


@folder.once_per_version
def _declared(file: folder.File) -> Names:
    """Find the types that a Parquet file's footer declares, in DuckDB's terms.

    DuckDB names the types of the file's columns, and those of record batches that pyarrow reads
    from it; a column for which these differ would be read as something else than the file has.
    """
    schema = by_pyarrow.footer(file).columns
    folder.require_distinct(file, schema.names)
    try:
        with opened(file.store, []) as database:
            sql = f"DESCRIBE SELECT * FROM {parquet(file)}"
            by_duckdb = {row[0]: row[1] for row in database.execute(sql).fetchall()}
            if [*by_duckdb] != schema.names:
                raise file.unreadable("two readers find other columns in it")
            types = _arrow_types(database, [*schema]) or [
                (_arrow_types(database, [field]) or [None])[0] for field in schema
            ]
            if by_pyarrow.footer(file).hybrid_calendar:
                _require_known_days(file, database, by_duckdb)
            return {
                field.name: _type(file, field.type, type_, by_duckdb[field.name])
                for field, type_ in zip(schema, types, strict=True)
            }
    except folder.FileUnreadable:
        raise
    except TableferryError as error:
        raise _blamed(file, error) from None


def _require_known_days(
    file: folder.File, database: duckdb.DuckDBPyConnection, types: Names
) -> None:
    """Refuse a file of the hybrid calendar that has values of before it ended.

    Raises:
        FileUnreadable: names the column and its first value.
    """
    for name, type_ in types.items():
        if not type_.startswith(("DATE", "TIMESTAMP")):
            continue
        known = "DATE '1582-10-15'" if type_ == "DATE" else "TIMESTAMP '1900-01-01'"
        first = f"min({DIALECT.quote(name)})"
        sql = f"SELECT {first}::VARCHAR FROM {parquet(file)} HAVING {first} < {known}"
        if row := database.execute(sql).fetchone():
            raise file.unreadable(
                f"column {name!r}: {row[0]} was written by the calendar of Spark 2 or Hive, by "
                "which it is another day or instant: rewrite the file by Spark 3 with "
                "spark.sql.parquet.datetimeRebaseModeInWrite and ...int96RebaseModeInWrite "
                "set to CORRECTED"
            )


def _arrow_types(
    database: duckdb.DuckDBPyConnection, fields: Sequence[pa.Field]
) -> Sequence[str | None] | None:
    """DuckDB's types of Arrow fields; None if it does not know one of them."""
    import duckdb

    try:
        database.register("ferry_empty", pa.schema(fields).empty_table())
        return [str(row[1]) for row in database.execute("DESCRIBE ferry_empty").fetchall()]
    except duckdb.Error:
        return None


def _type(file: folder.File, declared: pa.DataType, of_batches: str | None, of_file: str) -> str:
    if pa.types.is_null(declared):
        return NOTHING
    if of_batches == of_file:
        return of_file
    if (of_batches, of_file) == ("TIMESTAMP_NS", INSTANT):
        return INSTANT_NS
    return f"{declared}{UNREADABLE}{of_file} IN {file.name}"


def _blamed(file: folder.File, error: TableferryError) -> TableferryError:
    """Blame the file for an error that trying again does not mend."""
    return error if is_transient(error) else file.unreadable(error)
