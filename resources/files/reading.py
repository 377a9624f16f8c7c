"""The table functions of DuckDB that read a file; texts stay texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from resources.dialects import quote, string_literal
from resources.files.folder import File, header
from resources.files.object_store import ObjectStore

LONGEST = 1 << 24
"""Bytes of a line of text, or of a JSON object."""

_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_STRING = r'"(?:[^"\\]|\\.)*"'


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
        return _ndjson(file, names)
    delimiter, own = header(file)
    columns = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in own)
    return (
        f"read_csv({_path(file)}, columns={{{columns}}}, header=true, auto_detect=false, "
        f"delim={_literal(delimiter)}, quote='\"', escape='\"', nullstr='', "
        "allow_quoted_nulls=false, null_padding=false, "
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
    return f"read_parquet({_path(file)}{options})"


def objects(file: File) -> str:
    """The table function of a file of JSON objects, each a text in the column `json`."""
    packed = file.compression or "uncompressed"
    return (
        f"read_ndjson_objects({_path(file)}, compression='{packed}', maximum_object_size={LONGEST})"
    )


def _ndjson(file: File, names: Iterable[str]) -> str:
    """Values as texts. DuckDB reads numbers as doubles or 64-bit integers; what that changes is
    refused."""
    written = f"regexp_replace(CAST(json AS VARCHAR), {_literal(_STRING)}, '\"\"', 'g')"
    digits = "length(regexp_replace(t, '[eE].*|[^0-9]', '', 'g'))"
    changed = (
        f"list_filter(regexp_extract_all({written}, {_literal(_NUMBER)}), lambda t: "
        f"{digits} > 15 AND CASE WHEN regexp_matches(t, '[.eE]') "
        "THEN CAST(TRY_CAST(t AS DOUBLE) AS VARCHAR) IS DISTINCT FROM t "
        "ELSE coalesce(TRY_CAST(t AS BIGINT)::VARCHAR, TRY_CAST(t AS UBIGINT)::VARCHAR) "
        "IS DISTINCT FROM t END)[1]"
    )
    message = f"{_literal(file.path)} || ': the number ' || changed || "
    message += "' has too many digits; write it as a string'"
    kind = f"error({_literal(file.path)} || ': a line is no JSON object')"
    selected = ", ".join(
        f"json_extract_string(json, {_literal(_member(name))}) AS {quote('files', name)}"
        for name in names
    )
    return (
        f"(SELECT {selected} FROM (SELECT CASE WHEN json_type(json) <> 'OBJECT' THEN {kind} "
        f"WHEN changed IS NOT NULL THEN error({message}) ELSE json END AS json "
        f"FROM (SELECT json, {changed} AS changed FROM {objects(file)})))"
    )


def _member(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'$."{escaped}"'


def _literal(text: str) -> str:
    return string_literal("files", text)


def _path(file: File) -> str:
    """Without what DuckDB takes for a pattern; a store's reader takes nothing for one."""
    if isinstance(file.store, ObjectStore):
        return _literal(file.path)
    return _literal(re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", file.path))
