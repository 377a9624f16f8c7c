"""The columns of files and their types: as declared, or else as their values have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.errors import TableferryError
from tableferry.resources.files import delimited, folder
from tableferry.resources.files import parquet as by_pyarrow
from tableferry.resources.files.database import opened
from tableferry.resources.files.delimited import attached
from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.notations import INSTANT, is_canonical, zero_below
from tableferry.resources.files.reading import KINDS, member, members, objects, parquet, reading
from tableferry.resources.files.types import (
    INSTANT_NS,
    INTEGERS,
    LIKE,
    MIXED,
    MOST_DIGITS,
    NOTHING,
    TEXT,
    UNREADABLE,
    from_text,
    read,
)
from tableferry.resources.types.kinds import Decimal, Float, Integer, Timestamp

if TYPE_CHECKING:
    import duckdb


NUMBERS = ("BIGINT", "DECIMAL", "DOUBLE")
_ONE_ZERO = r"(0|[1-9]\d*)(\.\d+)?"
_ALIKE = {
    "BOOLEAN": is_canonical("{}", "BOOLEAN"),
    "BIGINT": is_canonical("{}", "BIGINT"),
    "DECIMAL": rf"(regexp_full_match({{}}, '-?{_ONE_ZERO}') AND NOT {zero_below('{}')})",
    "DOUBLE": rf"({is_canonical('{}', 'DOUBLE')} AND regexp_full_match({{}}, '-?\d.*'))",
    "DATE": is_canonical("{}", "DATE"),
    "TIMESTAMP": is_canonical("{}", "TIMESTAMP"),
    INSTANT: is_canonical("{}", INSTANT),
    "UUID": is_canonical("{}", "UUID"),
}
"""The types that texts are inferred to be, first match, each by a condition: only a type that gives
the same texts back, so that `007`, `+1`, `-0`, `1E5`, `TRUE` and instants beyond UTC stay texts."""

_KINDS = {
    "strings": "'VARCHAR'",
    "numbers": "'BIGINT', 'UBIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE', 'DECIMAL'",
    "booleans": "'BOOLEAN'",
    "nested": "'ARRAY', 'OBJECT'",
}
"""The kinds of JSON values, each by DuckDB's names of their types."""


class _Shape(NamedTuple):
    """The figures of a column's texts."""

    texts: int
    """The number of texts that are not empty."""
    alike: tuple[int, ...]
    """The number of texts of each type of `_ALIKE`."""
    kinds: tuple[int, ...]
    """The number of JSON values of each of `_KINDS`."""
    padded: int
    """The number of fractions that end in a zero."""
    with_t: int
    """The number of texts with a T, as between a date and a time."""
    longest: tuple[int, ...]
    """Maximum number of characters, of digits before the point, and of digits behind it."""
    shortest: tuple[int, ...]
    """Minimum number of characters, and of digits behind the point."""


def figures(x: str, kind: str | None = None) -> list[str]:
    """Write the aggregates over a column of texts from which its type is `inferred`.

    Args:
        x: SQL of the column.
        kind: SQL of DuckDB's name of the JSON value's type; None for other texts.
    """
    text = f"nullif({x}, '')"
    counts = [condition.replace("{}", x) for condition in _ALIKE.values()]
    counts += [f"{kind} IN ({names})" if kind else "false" for names in _KINDS.values()]
    counts += [f"regexp_full_match({x}, '.*\\.\\d*0(Z|\\+00(:?00)?)?')", f"contains({x}, 'T')"]
    length, fraction = f"length({text})", f"length(split_part({text}, '.', 2))"
    whole = f"length(ltrim(split_part({text}, '.', 1), '-'))"
    return [
        f"count({text})",
        *(f"count(*) FILTER (WHERE {condition})" for condition in counts),
        *(f"coalesce(max({count}), 0)" for count in (length, whole, fraction)),
        *(f"coalesce(min({count}), {MANY})" for count in (length, fraction)),
    ]


MANY = 1 << 30
WIDTH = len(figures("x"))
"""The number of `figures`."""
_COMBINED: tuple[Callable[[Sequence[int]], int], ...] = (
    *[sum] * (WIDTH - 5),
    *[max] * 3,
    *[min] * 2,
)
"""What combines each figure of several files."""


def _shape(of_files: Sequence[Sequence[int]]) -> _Shape:
    columns = zip(*of_files, strict=True)
    rest = iter([combine(column) for combine, column in zip(_COMBINED, columns, strict=True)])

    def some(count: int) -> tuple[int, ...]:
        return tuple(islice(rest, count))

    return _Shape(
        next(rest), some(len(_ALIKE)), some(len(_KINDS)), next(rest), next(rest), some(3), some(2)
    )


def inferred(of_files: Sequence[Sequence[int]]) -> str:
    """Infer the type of a column from its `figures` in each file."""
    shape = _shape(of_files)
    strings = shape.kinds[0]
    if sum(map(bool, shape.kinds)) > 1:
        return MIXED
    if not shape.texts or shape.kinds[-1]:
        return TEXT
    for name, count in zip(_ALIKE, shape.alike, strict=True):
        literal = name in NUMBERS or name == "BOOLEAN"
        if count < shape.texts or (strings and literal):
            continue
        if not _uniform(name, shape):
            if name in ("TIMESTAMP", INSTANT):
                return f"{LIKE}{from_text(name)}"
            continue
        if name != "DECIMAL":
            return from_text(name)
        _, digits, scale = shape.longest
        if digits + scale <= MOST_DIGITS:
            return from_text(f"DECIMAL({18 if digits + scale <= 18 else MOST_DIGITS},{scale})")
    return TEXT


def _uniform(name: str, shape: _Shape) -> bool:
    """Whether all of a column's texts have the same form, so that no two texts, such as `1.0` and
    `1`, have the same value."""
    (longest, _, scale), (shortest, least) = shape.longest, shape.shortest
    if name == "DECIMAL":
        return scale == least or not shape.padded
    if name in ("TIMESTAMP", INSTANT):
        # for instants the same length: it tells notations of the zone apart, too
        alike = longest == shortest or (not shape.padded and name == "TIMESTAMP")
        return alike and shape.with_t in (0, shape.texts)
    return True


def united(types: Sequence[str]) -> str | None:
    """The type that holds the values of all of some types exactly; None if there is none."""
    unreadable = [type_ for type_ in types if UNREADABLE in type_]
    if unreadable:
        return unreadable[0]
    types = [type_ for type_ in types if type_ != NOTHING] or ["INTEGER"]
    if len(set(types)) == 1:
        return types[0]
    kinds = [read(type_).kind for type_ in types]
    integers = [kind for kind in kinds if isinstance(kind, Integer)]
    if len(integers) == len(kinds):
        low, high = min(kind.low for kind in integers), max(kind.high for kind in integers)
        fits = [name for name, kind in INTEGERS.items() if kind.low <= low and high <= kind.high]
        return fits[0] if fits else "DECIMAL(20,0)"
    if all(isinstance(kind, Float) for kind in kinds):
        return "DOUBLE"
    decimals = [kind for kind in kinds if isinstance(kind, Decimal)]
    if len(integers) + len(decimals) == len(kinds):
        digits = [len(str(kind.high)) for kind in integers]
        whole = max(digits + [(kind.precision or 0) - (kind.scale or 0) for kind in decimals])
        scale = max(kind.scale or 0 for kind in decimals)
        return f"DECIMAL({whole + scale},{scale})" if whole + scale <= MOST_DIGITS else None
    if all(isinstance(kind, Timestamp) and kind.zone == "none" for kind in kinds):
        return "TIMESTAMP_NS" if "TIMESTAMP_NS" in types else "TIMESTAMP"
    pairs = ((INSTANT, INSTANT_NS), ("TIME", "TIME_NS"), ("JSON", "VARCHAR"))
    return next((wider for type_, wider in pairs if {type_, wider} == set(types)), None)


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
    """Compute `figures` of each column of a text file.

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
