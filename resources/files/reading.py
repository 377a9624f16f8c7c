"""The table functions of DuckDB that read a file; texts stay texts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from tableferry.resources.files.dialect import DIALECT
from tableferry.resources.files.folder import File, header
from tableferry.resources.files.object_store import ObjectStore

LONGEST = 1 << 24
"""Bytes of a line of text, or of a JSON object."""

KINDS = "ferry_kinds"
"""The column of `members` that has DuckDB's names for the types of a row's values."""

_NUMBERED = r'((?:"(?:[^"\\]|\\.)*"|[^"\-0-9])*)(-?[0-9][0-9.eE+\-]*|$)'
"""All of an object up to a number and the number, or the rest; strings are passed as a whole."""
_STRING = r'"(?:[^"\\]|\\.)*"'
_NOT_JSON = r"(?i)nan|inf|,\s*[}\]]"
"""What DuckDB takes for JSON besides, outside of strings."""
_MARK = f"ferry {secrets.token_hex(8)} "
"""What tells numbers from strings; nobody can have it in a file."""


def reading(file: File, names: Iterable[str]) -> str:
    """A table expression of a file's rows.

    Args:
        file: the file.
        names: its columns.
    """
    names = tuple(names)
    if file.format == "parquet":
        return parquet(file, ", file_row_number=true" if _numbers(names) else "")
    if file.format == "ndjson":
        listed = [*names]
        found = (f"{member(at)} AS {DIALECT.quote(name)}" for at, name in enumerate(listed, 1))
        return f"(SELECT {', '.join(found)} FROM {members(file, listed)})"
    delimiter, own = header(file)
    columns = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in own)
    return (
        f"read_csv({_path(file)}, columns={{{columns}}}, header=true, auto_detect=false, "
        f"delim={_literal(delimiter)}, quote='\"', escape='\"', nullstr='', "
        "allow_quoted_nulls=false, null_padding=false, hive_partitioning=false, "
        f"compression='{file.compression or 'none'}', max_line_size={LONGEST})"
    )


def row_number(file: File, names: Iterable[str]) -> str:
    """The number of a row in its file, from 1, in a SELECT from `reading`."""
    if file.format == "parquet" and _numbers(names):
        return "file_row_number + 1"
    return "row_number() OVER ()"


def _numbers(names: Iterable[str]) -> bool:
    """Whether the reader can number rows itself: not if a column has the name of its number."""
    return "file_row_number" not in map(str.lower, names)


def parquet(file: File, options: str = "") -> str:
    """The table function of a Parquet file."""
    return f"read_parquet({_path(file)}, hive_partitioning=false{options})"


def objects(file: File) -> str:
    """A table expression of a file's JSON objects: `json`, and `written`, the text of it.

    Objects that a reader of JSON may take for others are refused.
    """
    packed = file.compression or "uncompressed"
    unquoted = f"regexp_replace(written, {_literal(_STRING)}, '', 'g')"
    odd = _literal(_NOT_JSON)
    refusals = {
        "json_type(json) <> 'OBJECT'": "is no JSON object",
        "len(json_keys(json)) <> len(list_distinct(json_keys(json)))": "has a key twice",
        f"regexp_matches(written, {odd}) AND regexp_matches({unquoted}, {odd})": "is no JSON: it "
        "has NaN, an infinity, or a comma before a bracket",
    }
    refused = " ".join(
        f"WHEN {condition} THEN error({_literal(f'{file.path}: object ')} || number || "
        f"{_literal(f' {why}: ')} || left(written, 100))"
        for condition, why in refusals.items()
    )
    return (
        f"(SELECT CASE {refused} ELSE json END AS json, written FROM (SELECT json, CAST(json AS "
        "VARCHAR) AS written, row_number() OVER () AS number FROM "
        f"read_ndjson_objects({_path(file)}, compression='{packed}', "
        f"maximum_object_size={LONGEST})))"
    )


def members(file: File, names: Iterable[str]) -> str:
    """A table expression of what the objects of a file have by some keys, for `member`.

    DuckDB reads numbers as doubles or 64-bit integers: each becomes a marked string before.
    """
    numbered = f"regexp_replace(written, {_literal(_NUMBERED)}, '\\1\"{_MARK}\\2\"', 'g')"
    paths = f"[{', '.join(_literal(_pointer(name)) for name in names)}]::VARCHAR[]"
    return (
        f"(SELECT json_extract_string(replace({numbered}, '\"{_MARK}\"', ''), {paths}) AS found, "
        f"json_type(json, {paths}) AS {KINDS} FROM {objects(file)} WHERE json IS NOT NULL)"
    )


def member(position: int) -> str:
    """The text of a value of `members`: numbers as the file has them, in nested values as well."""
    x = f"found[{position}]"
    return (
        f"CASE WHEN starts_with({x}, '{_MARK}') THEN replace({x}, '{_MARK}', '') "
        f"WHEN contains({x}, '\"{_MARK}') "
        f"THEN regexp_replace({x}, '\"{_MARK}([^\"]*)\"', '\\1', 'g') ELSE {x} END"
    )


def _pointer(name: str) -> str:
    """A JSON pointer; in a path of DuckDB's own, the key `*` stands for all."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _literal(text: str) -> str:
    return DIALECT.literal(text)


def _path(file: File) -> str:
    """Without what DuckDB takes for a pattern; a store's reader takes nothing for one."""
    if isinstance(file.store, ObjectStore):
        return _literal(file.path)
    return _literal(re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", file.path))
