"""Sums up groups of rows: their counts, their digests, and the figures that a transfer declares.

The connection's `digest_by` says who computes the digests of a server's rows: the server, or the
client from the rows that it sends. By default the server does, except for the variants of its SQL
that were measured to cost more than sending the rows: `System.slow_digests`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.contract.system import System
from tableferry.resources.contract.table_sql import (
    alias_prefix,
    filtered,
    range_number,
    read_from,
    within,
)
from tableferry.resources.digest.definition import RECORD, shown
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.digest.probe import DigestRefused, require_client
from tableferry.resources.digest.stretches import COUNT, segment_width
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

ROWS, DIGEST, CHANGED = "rows", "digest", "changed"
"""Names of figures: the row count, the sum of the row digests, and the number of values of each
column that `on_overflow` changes."""


MOST_ROWS, MOST_VALUES = 8_192, 100_000
"""Maximum size of a batch for the client, which writes each value as text, twice."""

SUMMED = ("integer", "decimal")
ORDERED = (*SUMMED, "date", "time", "timestamp")
"""The kinds of columns that can have figures, as they have an exact sum or an order."""


@dataclass(frozen=True)
class Grouped:
    """Rows to sum up: those that meet `where`, in groups numbered by the SQL `group`."""

    group: str
    where: str
    snapshot: str | None = None
    """The snapshot to read a PostgreSQL table under."""

    @classmethod
    def by_range(
        cls, ranges: Sequence[KeyRange], key: Column, system: System, where: str | None = None
    ) -> Grouped:
        """Make each of some ranges that do not overlap a group, numbered by its position."""
        rows = filtered(within(ranges, key, system), where)
        return cls("0" if len(ranges) == 1 else range_number(ranges, key, system), rows)

    @classmethod
    def by_segment(
        cls, ranges: Sequence[KeyRange], key: Column, system: System, where: str | None = None
    ) -> Grouped:
        """Make each segment of some ranges a group, numbered by the range's position times `COUNT`
        and its own number. A range without segments is one group."""
        name, dialect = system.quote(key.name), system.dialect

        def number_of(position: int) -> str:
            first, key_range = position * COUNT, ranges[position]
            if (width := segment_width(key_range)) is None:
                return str(first)
            return f"{first} + {dialect.whole_steps(name, int(str(key_range.lower)), width)}"

        rows = filtered(within(ranges, key, system), where)
        if len(ranges) == 1:
            return cls(number_of(0), rows)
        return cls(range_number(ranges, key, system, number_of), rows)


def check_figures(fields: Sequence[Field]) -> None:
    """Raise `InputError` for columns that have no exact figures on every system."""
    for field in fields:
        if field.kind not in ORDERED:
            raise InputError(
                f"figures: {field.name!r} is {field.source.type}; only whole numbers, decimals, "
                "dates and times have figures that are the same on every system"
            )


def measure(
    endpoint: Endpoint,
    table: TableRef,
    side: Side,
    grouped: Grouped,
    *,
    digest: RowDigest | None = None,
    figures: Sequence[Field] = (),
    changed: Mapping[str, str] | None = None,
) -> dict[int, Figures]:
    """Sum up each group of rows in one scan, without a sort.

    If the client computes the digests, see `client_computes`, the server sums up the other figures
    in a scan of their own.

    Args:
        endpoint: the table's server.
        table: the table.
        side: the table's side of the hop.
        grouped: the rows and groups.
        digest: the row digest, or None for counts alone.
        figures: columns to sum up too.
        changed: conditions by column; the rows that meet each are counted.

    Returns:
        The figures by group number; empty groups are missing.
    """
    changed = changed or {}

    def by_server(digest: RowDigest | None) -> dict[int, Figures]:
        sql = measuring(table, side, grouped, digest, figures, changed)
        return {
            int(row[0]): _figures(row, digest is not None, figures, changed)
            for row in endpoint.query(sql, snapshot=grouped.snapshot)
            if row[1]
        }

    if digest is None or not client_computes(endpoint, digest.dialect):
        return by_server(digest)
    by_client = _by_client(endpoint, table, grouped, digest)
    others = by_server(None) if figures or changed else {}
    return {number: {**others.get(number, {}), **sums} for number, sums in by_client.items()}


def _by_client(
    endpoint: Endpoint, table: TableRef, grouped: Grouped, digest: RowDigest
) -> dict[int, Figures]:
    # polars takes half a second to import
    from tableferry.resources.digest.client import summed

    prefix = alias_prefix(grouped.group, grouped.where, *(sql for sql, _ in digest.sent))
    sql = (
        f"SELECT {grouped.group} AS {prefix}g, {digest.selected(prefix)} FROM {read_from(table)} "
        f"WHERE {grouped.where}"
    )
    batch_rows = max(1, min(MOST_ROWS, MOST_VALUES // len(digest.fields)))
    with endpoint.read_arrow(sql, batch_rows=batch_rows, snapshot=grouped.snapshot) as reader:
        sums = summed(digest, reader)
    return {group: {ROWS: rows, DIGEST: str(total)} for group, (rows, total) in sums.items()}


def measuring(
    table: TableRef,
    side: Side,
    grouped: Grouped,
    digest: RowDigest | str | None,
    figures: Sequence[Field],
    changed: Mapping[str, str] | None = None,
) -> str:
    """Write the query of `measure` in the table's SQL."""
    system = table.system
    writer, dialect = system.digest, system.dialect
    # not every system gives NULL for figures of no rows: with GROUP BY there are none
    single = grouped.group.isdecimal() and not figures
    values = [field.value(side, dialect) for field in figures]
    conditions = [*(changed or {}).values()]
    prefix = alias_prefix(grouped.group, grouped.where, str(digest or ""), *values, *conditions)
    inner = [] if single else [f"{grouped.group} AS {prefix}g"]
    outer = [grouped.group if single else f"{prefix}g", dialect.count]
    if digest is not None:
        inner.append(f"{digest} AS {prefix}d")
        outer.append(dialect.exact_sum(f"{prefix}d"))
    for number, (field, value) in enumerate(zip(figures, values, strict=True)):
        name = f"{prefix}f{number}"
        inner.append(f"{value} AS {name}")
        if field.kind in SUMMED:
            outer.append(writer.exact_sum(field, name))
        outer += [writer.text(field, field.column(side), f"{end}({name})") for end in _ENDS]
    for number, condition in enumerate(conditions):
        name = f"{prefix}o{number}"
        inner.append(f"CASE WHEN {condition} THEN 1 ELSE 0 END AS {name}")
        outer.append(dialect.exact_sum(name))
    names = [f"{prefix}g" if single else f"{prefix}c0"]
    names += [f"{prefix}c{number}" for number in range(1, len(outer))]
    selected = ", ".join(f"{sql} AS {name}" for sql, name in zip(outer, names, strict=True))
    rows = f"{read_from(table)} WHERE {grouped.where}"
    if single:
        rows = f"(SELECT {', '.join(inner)} FROM {rows}) {prefix}rows" if inner else rows
        return f"SELECT {selected} FROM {rows}"
    rows = f"(SELECT {', '.join(inner)} FROM {rows}{dialect.barrier}) {prefix}rows"
    return f"SELECT {selected} FROM {rows} GROUP BY {prefix}g"


_ENDS = ("min", "max")


def _figures(
    row: Sequence[Any], digested: bool, figures: Sequence[Field], changed: Mapping[str, str]
) -> Figures:
    measured: Figures = {ROWS: int(row[1])}
    values = list(row[2:])
    if digested:
        measured[DIGEST] = str(values.pop(0) or "0")
    for field in figures:
        sums = {"sum": str(values.pop(0) or "0")} if field.kind in SUMMED else {}
        ends = {end: shown(field, values.pop(0)) or "NULL" for end in _ENDS}
        measured[field.name] = sums | ends
    if changed:
        measured[CHANGED] = {name: int(values.pop(0) or 0) for name in changed}
    return measured


def empty(digested: bool, figures: Sequence[Field]) -> Figures:
    """The figures of an empty group."""
    sums = [None] * (1 + len(figures) * 3)
    return _figures([None, 0, *sums], digested, figures, {})


logger = logging.getLogger(__name__)


def client_computes(endpoint: Endpoint, dialect: DigestSql) -> bool:
    """Whether the client computes the digests that the server would compute by `dialect`.

    Raises:
        DigestRefused: `digest_by` says so, but the client does not get the right digests.
    """
    digest_by = endpoint.digests_by()
    if digest_by == "server" or dialect.algorithm == RECORD:
        return False
    if digest_by == "client":
        require_client(endpoint, dialect)
        return True
    if dialect.variant not in endpoint.system.slow_digests:
        return False
    facts = endpoint.settings().facts
    return facts.known(("client digests", dialect), lambda: _client_is_right(endpoint, dialect))


def _client_is_right(endpoint: Endpoint, dialect: DigestSql) -> bool:
    try:
        require_client(endpoint, dialect)
    except (DigestRefused, ImportError) as error:
        logger.warning("the server computes its row digests, though slowly: %s", error)
        return False
    return True
