"""What is in a file, by its own words and by its values: columns, types, row groups.

All is known for as long as the file stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.errors import TableferryError
from tableferry.resources.files import delimited
from tableferry.resources.files import parquet as by_pyarrow
from tableferry.resources.files.database import opened
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import (
    File,
    FileUnreadable,
    header,
    known,
    require_distinct,
)
from tableferry.resources.files.inference import WIDTH, Shape, inferred, shape, shape_of
from tableferry.resources.files.notations import INSTANT
from tableferry.resources.files.reading import KINDS, member, members, objects, parquet, reading
from tableferry.resources.files.types import INSTANT_NS, NOTHING, TEXT, UNREADABLE

if TYPE_CHECKING:  # it takes a tenth of a second to import
    import duckdb

Names = dict[str, str]
"""The columns of a file: name -> type in the file."""


def names(file: File) -> Names:
    """A file's columns.

    Raises:
        FileUnreadable: it is not whole.
    """
    if file.format == "csv":
        return dict.fromkeys(header(file)[1], "VARCHAR")
    if file.format == "ndjson":
        return known(file, "keys", partial(_keys, file))
    return known(file, "columns", partial(_declared, file))


def row_groups(file: File) -> list[int]:
    """The rows of each row group of a Parquet file, as its footer has them.

    Raises:
        FileUnreadable: it is not whole.
    """
    names(file)
    return by_pyarrow.footer(file).row_groups


def text_types(files: Sequence[tuple[File, Names]]) -> dict[str, str]:
    """The types of the columns of text files, by folded name, from all of their values."""
    found: dict[str, list[Shape]] = {}
    for file, own in files:
        try:
            shapes = text_shapes(file)
        except TableferryError as error:
            if is_transient(error):
                raise
            continue  # what cannot be read is refused when its range is
        for name, one in zip(own, shapes, strict=True):
            found.setdefault(name.casefold(), []).append(one)
    types = {name.casefold(): TEXT for _, own in files for name in own}
    return types | {name: inferred(shapes) for name, shapes in found.items()}


def text_shapes(file: File) -> list[Shape]:
    """What the texts of each column of a text file are like.

    Raises:
        FileUnreadable: it is not whole, or not read alike by all.
    """
    return known(file, "shapes", partial(_shapes, file))


def _shapes(file: File) -> list[Shape]:
    own = names(file)
    try:
        with opened(file.store, []) as database:
            if file.format == "ndjson":
                places = range(1, len(own) + 1)
                wanted = [one for at in places for one in shape(f"c{at}", f"{KINDS}[{at}]")]
                columns = "".join(f"{member(at)} AS c{at}, " for at in places)
                table = f"(SELECT {columns}{KINDS} FROM {members(file, own)})"
            else:
                wanted = [one for name in own for one in shape(DIALECT.quote(name))]
                wanted.append(delimited.row_hashes(own))
                table = reading(file, own)
            wanted.append("count(*)")
            row = database.execute(f"SELECT {', '.join(wanted)} FROM {table}").fetchone()
    except TableferryError as error:
        raise _of(file, error) from None
    assert row is not None
    if file.format == "csv":
        delimited.require_alike(file, rows=row[-1], total=row[-2])
    return [shape_of(row[at * WIDTH : (at + 1) * WIDTH]) for at in range(len(own))]


def _keys(file: File) -> Names:
    """The keys of all objects of a file, in the order in which they come first."""
    sql = (
        "SELECT key FROM (SELECT unnest(json_keys(json)) AS key, "
        "generate_subscripts(json_keys(json), 1) AS place "
        f"FROM {objects(file)}) GROUP BY key ORDER BY min(place), key"
    )
    try:
        with opened(file.store, []) as database:
            found = [row[0] for row in database.execute(sql).fetchall()]
    except TableferryError as error:
        raise _of(file, error) from None
    require_distinct(file, found)
    return dict.fromkeys(found, "VARCHAR")


def _declared(file: File) -> Names:
    """The types that a Parquet file's footer declares, in DuckDB's words.

    DuckDB says of which types it takes the columns of the file, and those of record batches out of
    it; where these are not the same, it would read something else than the file has.
    """
    schema = by_pyarrow.footer(file).columns
    require_distinct(file, schema.names)
    try:
        with opened(file.store, []) as database:
            sql = f"DESCRIBE SELECT * FROM {parquet(file)}"
            made = {row[0]: row[1] for row in database.execute(sql).fetchall()}
            if [*made] != schema.names:
                raise file.unreadable("two readers find other columns in it")
            taken = _taken(database, [*schema]) or [
                (_taken(database, [field]) or [None])[0] for field in schema
            ]
            return {
                field.name: _type(file, field.type, own, made[field.name])
                for field, own in zip(schema, taken, strict=True)
            }
    except FileUnreadable:
        raise
    except TableferryError as error:
        raise _of(file, error) from None


def _taken(
    database: duckdb.DuckDBPyConnection, fields: Sequence[pa.Field]
) -> Sequence[str | None] | None:
    """What DuckDB takes columns of record batches for; None if it does not take one of them."""
    import duckdb

    try:
        database.register("ferry_empty", pa.schema(fields).empty_table())
        return [str(row[1]) for row in database.execute("DESCRIBE ferry_empty").fetchall()]
    except duckdb.Error:
        return None


def _type(file: File, declared: pa.DataType, taken: str | None, made: str) -> str:
    if pa.types.is_null(declared):
        return NOTHING
    if taken == made:
        return made
    if (taken, made) == ("TIMESTAMP_NS", INSTANT):
        return INSTANT_NS
    return f"{declared}{UNREADABLE}{made} IN {file.name}"


def _of(file: File, error: TableferryError) -> TableferryError:
    """What fails for good is the file's fault."""
    return error if is_transient(error) else file.unreadable(error)
