"""DuckDB's table functions that read a file; texts stay texts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File, header
from tableferry.resources.files.object_store import ObjectStore
from tableferry.resources.keys.range import ROW

LONGEST = 1 << 24
"""Maximum bytes of a line of text, or of a JSON object."""

_BOUNDED = f"max_line_size={LONGEST}, buffer_size={LONGEST}"
"""Options of CSV files: by default, a buffer has room for 16 of the longest lines."""

KINDS = "ferry_kinds"
"""The column of `members` that lists DuckDB's names for the types of a row's values."""

_NUMBERED = r'((?:"(?:[^"\\]|\\.)*"|[^"\-0-9])*)(-?[0-9][0-9.eE+\-]*|$)'
"""Everything up to a number, with strings as a whole, and the number; or the rest."""
_STRING = r'"(?:[^"\\]|\\.)*"'
_NOT_JSON = r"(?i)nan|inf|,\s*[}\]]"
"""What DuckDB accepts outside of strings, although it is not JSON."""
_MARK = f"ferry {secrets.token_hex(8)} "
"""The prefix of strings that were numbers; nobody can have it in a file."""


def reading(file: File, names: Iterable[str], lines: str | None = None) -> str:
    """Write a table expression of a file's rows, given the names of its columns; see `objects`.

    Where the lines are a table, it has their numbers, too.
    """
    names = tuple(names)
    if file.format == "parquet":
        return parquet(file, ", file_row_number=true" if _numbers(names) else "")
    if file.format == "ndjson":
        texts = [f"{member(at)} AS {DIALECT.quote(name)}" for at, name in enumerate(names, 1)]
        texts += [f'"{ROW}"'] if lines else []
        return f"(SELECT {', '.join(texts)} FROM {members(file, names, lines)})"
    delimiter, in_header = header(file)
    columns = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in in_header)
    return (
        f"read_csv({_path(file)}, columns={{{columns}}}, header=true, auto_detect=false, "
        f"delim={_literal(delimiter)}, quote='\"', escape='\"', nullstr='', "
        "allow_quoted_nulls=false, null_padding=false, hive_partitioning=false, "
        f"compression='{file.compression or 'none'}', {_BOUNDED})"
    )


def stretch(file: File, names: Iterable[str], first: int, past: int | None) -> str:
    """Write a table expression of some of a Parquet file's rows, by their numbers from 1.

    Only their row groups are read. A condition on the result is tried on each of these rows: it is
    not moved in here, where the footer would be believed about it.
    """
    names = tuple(names)
    if not _numbers(names):
        return reading(file, names)
    end = f" AND file_row_number < {past - 1}" if past is not None else ""
    rows = f"SELECT * FROM {reading(file, names)} WHERE file_row_number >= {first - 1}{end}"
    return f"(WITH ferry_rows AS MATERIALIZED ({rows}) SELECT * FROM ferry_rows)"


def row_number(file: File, names: Iterable[str]) -> str:
    """The number of a row in its file, from 1, in a SELECT from `reading`."""
    if file.format == "parquet" and _numbers(names):
        return "file_row_number + 1"
    return "row_number() OVER ()"


def _numbers(names: Iterable[str]) -> bool:
    """Whether DuckDB can number rows itself: not if a column has the name of that number."""
    return "file_row_number" not in map(str.lower, names)


def parquet(file: File, options: str = "") -> str:
    """The table function of a Parquet file."""
    return f"read_parquet({_path(file)}, hive_partitioning=false{options})"


def objects(file: File, lines: str | None = None) -> str:
    """Write a table expression of a file's JSON objects: `json`, its text `written`, its `number`.

    Objects that JSON readers may understand differently are refused.

    Args:
        file: the file.
        lines: the table of the file's lines, if DuckDB does not read them itself, see
            `lines.attached`.
    """
    compression = file.compression or "uncompressed"
    unquoted = f"regexp_replace(written, {_literal(_STRING)}, '', 'g')"
    odd = _literal(_NOT_JSON)
    refusals = {
        "json_type(json) <> 'OBJECT'": "is not a JSON object",
        "len(json_keys(json)) <> len(list_distinct(json_keys(json)))": "has a key twice",
        f"regexp_matches(written, {odd}) AND regexp_matches({unquoted}, {odd})": "is not JSON: it "
        "has NaN, an infinity, or a comma before a bracket",
    }
    refused = " ".join(
        f"WHEN {condition} THEN error({_literal(f'{file.path}: object ')} || number || "
        f"{_literal(f' {why}: ')} || left(written, 100))"
        for condition, why in refusals.items()
    )
    malformed = f"error({_literal(f'{file.path}: line ')} || \"{ROW}\" || ' is not JSON')"
    source = (
        f"(SELECT CASE WHEN json_valid(line) THEN CAST(line AS JSON) ELSE {malformed} END AS json, "
        f'"{ROW}" FROM {lines})'
        if lines
        else f"read_ndjson_objects({_path(file)}, compression='{compression}', "
        f"maximum_object_size={LONGEST})"
    )
    number = f'"{ROW}"' if lines else "row_number() OVER ()"
    return (
        f"(SELECT CASE {refused} ELSE json END AS json, written, number FROM (SELECT json, "
        f"CAST(json AS VARCHAR) AS written, {number} AS number FROM {source}))"
    )


def members(file: File, names: Iterable[str], lines: str | None = None) -> str:
    """Write a table expression of a file's values for some keys, to be read by `member`.

    DuckDB reads numbers as doubles or 64-bit integers, so each is made a marked string before.
    """
    numbered = f"regexp_replace(written, {_literal(_NUMBERED)}, '\\1\"{_MARK}\\2\"', 'g')"
    paths = f"[{', '.join(_literal(_pointer(name)) for name in names)}]::VARCHAR[]"
    return (
        f"(SELECT json_extract_string(replace({numbered}, '\"{_MARK}\"', ''), {paths}) AS found, "
        f'json_type(json, {paths}) AS {KINDS}, number AS "{ROW}" FROM {objects(file, lines)} '
        "WHERE json IS NOT NULL)"
    )


def member(position: int) -> str:
    """Write the text of a value of `members`; numbers, also nested ones, as the file has them."""
    x = f"found[{position}]"
    return (
        f"CASE WHEN starts_with({x}, '{_MARK}') THEN replace({x}, '{_MARK}', '') "
        f"WHEN contains({x}, '\"{_MARK}') "
        f"THEN regexp_replace({x}, '\"{_MARK}([^\"]*)\"', '\\1', 'g') ELSE {x} END"
    )


def _pointer(name: str) -> str:
    """Write a JSON pointer: in DuckDB's own paths, the key `*` stands for all keys."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _literal(text: str) -> str:
    return DIALECT.literal(text)


def _path(file: File) -> str:
    """Write a file's path with wildcards escaped, which the reader of a store does not know."""
    if isinstance(file.store, ObjectStore):
        return _literal(file.path)
    return _literal(re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", file.path))
