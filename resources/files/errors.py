"""DuckDB's errors in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tableferry.resources.contract.refusals import refused_in_query
from tableferry.resources.errors import StatementFailed

_ERRNO = re.compile(r"\A\[Errno \d+\] ")
"""What Python puts before the system's words."""


@contextmanager
def translated(failures: Sequence[Exception] = ()) -> Iterator[None]:
    """Raise what DuckDB or its stream raises as `TableferryError`.

    Args:
        failures: what failed in reading an object store, of which DuckDB keeps the text only.

    Raises:
        ValueRefused: a guard of an export refused a value.
        StatementFailed: all else; trying again helps only if a store says so.
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
        reason = " ".join(line for line in lines[:3] if not line.startswith("Possible fixes"))
        path = file.removeprefix("file = ")
        raise StatementFailed("files", f"{path}: {reason}" if path else reason) from None


def is_transient(error: BaseException) -> bool | None:
    """Whether the same may succeed later: nothing about a file that stays as it is does."""
    return False if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb") else None
