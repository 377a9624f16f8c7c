"""Translates DuckDB's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.errors import StatementFailed, shortened

_ERRNO = re.compile(r"\A\[Errno \d+\] ")
"""The prefix of Python's messages for errors of the operating system."""

_KIND = re.compile(r"\A[A-Z][A-Za-z ]* Error: ")
"""What DuckDB calls an error, which tells nothing of the file."""

_STATEMENT = ("Possible fixes", "LINE ", "^")
"""How lines begin that are about our own statement."""

_LINE = re.compile(r"(?<= at byte )(\d+) in line (\d+)(?=: )")
"""Where JSON is malformed: DuckDB 1.5 names the line after it."""


@contextmanager
def translated(failures: Sequence[Exception] = ()) -> Iterator[None]:
    """Raise the errors of DuckDB and its streams as `TableferryError`.

    Args:
        failures: errors in reading files, of which DuckDB keeps only the text: raised instead.

    Raises:
        ValueRefused: a guard of an export refused a value.
        StatementFailed: any other error; trying again helps only if a store says so.
    """
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if failures:
            raise failures[0] from None
        text = _ERRNO.sub("", str(error))
        refused = refused_in_query(text)
        if refused is not None:
            raise refused from None
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        file = next((line for line in lines if line.startswith("file = ")), "")
        told = (_KIND.sub("", line) for line in lines[:3] if not line.startswith(_STATEMENT))
        reason = _LINE.sub(_counted_from_one, " ".join(map(shortened, told)))
        path = file.removeprefix("file = ")
        raise StatementFailed("files", f"{path}: {reason}" if path else reason) from None


def is_transient(error: BaseException) -> bool | None:
    """False for DuckDB's errors: they do not pass while the files stay as they are."""
    return False if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb") else None


def _counted_from_one(place: re.Match[str]) -> str:
    return f"{place[1]} in line {int(place[2]) - 1}"
