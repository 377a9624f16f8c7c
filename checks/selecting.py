"""Writes conditions that select rows by their primary keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from tableferry.checks.rowhash import IDENTITY
from tableferry.checks.table_side import TableSide
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.table_sql import predicate
from tableferry.resources.digest.fields import key_field
from tableferry.resources.digest.values import shown
from tableferry.resources.errors import InputError
from tableferry.resources.keys import text as texts
from tableferry.resources.keys.bounds import to_bound
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange

SHOWN_KEY = "c0"
"""The column of `Layout.columns` with the key."""

ROWS_PER_STATEMENT, KEYS_LENGTH = 500, 20_000
"""Maximum rows that a condition selects, and length of the keys that it lists: bcp takes its query
from the command line, of which Linux limits each argument to 128 KiB."""

NEAR = dt.timedelta(seconds=1)
"""How much further a range of times reaches than the times that it is to have."""


def shown_key(key: Field, value: bytes | None) -> str | None:
    """Return a key, as a server has sent it, in the form that people read."""
    return None if value is None else shown(key, value.decode(errors="backslashreplace"))


def conditions(side: TableSide, identity: str, kind: KeyKind, rows: pa.Table) -> Iterator[str]:
    """Write conditions in the SQL of a side that each select some of the rows of a range.

    Args:
        side: the table.
        identity: the SQL of its rows' identities.
        kind: the kind of the key.
        rows: the rows, with their `IDENTITY` and `SHOWN_KEY`.
    """
    for at in range(0, len(rows), ROWS_PER_STATEMENT):
        part = rows.slice(at, ROWS_PER_STATEMENT)
        bounds = _bounds(key_field(side.plan), kind, part[SHOWN_KEY].to_pylist())
        near = _near(side, bounds, kind)
        identities = ", ".join(map(str, part[IDENTITY].to_pylist()))
        exactly = f"{identity} IN ({identities})"
        yield f"({near}) AND {exactly}" if near else exactly


def _near(side: TableSide, bounds: Sequence[Bound], kind: KeyKind) -> str:
    """Write a condition on the key column that all of some keys meet, and few others."""
    column, system = side.key, side.table.system
    if not bounds:
        return ""
    if kind == "timestamp":
        # constants may have other digits than the column, or be rounded otherwise
        times = [bound for bound in bounds if isinstance(bound, dt.datetime)]
        with suppress(OverflowError):
            around = KeyRange(kind, min(times) - NEAR, max(times) + NEAR)
            return predicate(column, around, system)
        return ""
    listed = ", ".join(system.dialect.bound(bound, column) for bound in dict.fromkeys(bounds))
    return f"{system.quote(column.name)} IN ({listed})" if len(listed) <= KEYS_LENGTH else ""


def _bounds(field: Field, kind: KeyKind, keys: Sequence[bytes | None]) -> list[Bound]:
    """Read keys; return none if one of them cannot be written as a constant everywhere."""
    bounds = []
    for key in keys:
        try:
            bound = to_bound(shown_key(field, key), kind)
        except InputError:
            return []
        if isinstance(bound, str) and texts.problem(bound):
            return []
        bounds.append(bound)
    return bounds
