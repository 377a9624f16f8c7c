"""Cheap summaries of a source's key ranges, which tell whether their rows changed since."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import filtered, qualified, quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import (
    HISTORY,
    LONGEST,
    KnownFigures,
    SourceFingerprint,
)
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.digest.definition import definition
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import all_fields, fields, own_field
from tableferry.resources.digest.measure import DIGEST, ROWS, Grouped, empty, measure
from tableferry.resources.digest.probe import dialect, preferred
from tableferry.resources.errors import InputError
from tableferry.resources.keys.bounds import to_bound
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.own_names import own_prefix
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.ranges.sql import range_number, within
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

METHODS = {
    "content": "nothing: every value of every copied column counts (64 bits per row, summed)",
    "row_version": (
        "nothing that was written, nor what ALTER TABLE or ALTER TYPE made of it; but a type whose "
        "output function was replaced, and the names of objects (regclass and its like) that were "
        "renamed. Rewriting the table (VACUUM FULL, CLUSTER, a restored dump), a new enum label, "
        "or updating a row to the same values counts as a change. SQL Server: needs a rowversion "
        "column; a column that was dropped and made anew under its name is missed"
    ),
    "watermark": (
        "an update that leaves primary key, key and watermark as they were, and a row that gave "
        "way to another with all of these; other inserts and deletes are seen. Without a primary "
        "key, no two rows may have the same key"
    ),
    "count_minmax": "every update; inserts and deletes that leave count, least and largest key",
    "none": "everything: a committed range runs again only if it is forced or its target differs",
}
"""What each method can miss."""

OF_WRITES = ("row_version", "watermark")
"""Those that look at what writing a row left there, and not at the row."""


def fingerprints(
    endpoint: Endpoint,
    plan: CopyPlan,
    ranges: Sequence[KeyRange],
    method: str = "content",
    *,
    snapshot: str | None = None,
    watermark_column: str | None = None,
    greatest: bool = False,
) -> dict[str, SourceFingerprint]:
    """Fingerprint many ranges of a hop's source by one aggregate query (SQL Server: one per 500).

    The value does not depend on the order in which the server reads the rows. With up to 16 ranges
    the query selects just these, so that an index on the key serves it.

    Args:
        endpoint: Where `plan.source` is.
        plan: The hop; `content` looks at its columns only.
        ranges: Ranges that do not overlap; they need not cover the table.
        method: One of `METHODS`, which says what each can miss.
        snapshot: Exported PostgreSQL snapshot to read under.
        watermark_column: Column that every update raises, for `watermark`.
        greatest: Also find each range's greatest watermark.

    Returns:
        By range name; a range without rows is there, with 0 rows.

    Raises:
        InputError: the method is unknown or needs something that the table does not have.
        DigestRefused: the server does not compute the row digest.
    """
    own = endpoint.system
    sending = source_of(own)
    if method == "content" and sending.own_key is not None:
        return sending.fingerprints(endpoint, plan.source, ranges, plan.where)
    if method == "content":
        return _contents(endpoint, plan, ranges, snapshot)
    table, system = plan.source, endpoint.system
    marked = _marked(endpoint, plan, watermark_column) if method == "watermark" else ()
    parts = _parts(endpoint, table, plan.key.source, method, marked)
    apart = bool(marked) and not any(column.primary_key for column in marked)
    if apart:
        parts = [*parts, _distinct(plan.key.source, system)]
    kind = None
    if greatest and marked:
        kind, figure = _greatest(endpoint, marked[-1])
        parts = [*parts, figure]
    used = definition(dialect(endpoint).algorithm) if method == "watermark" else ""
    more = used
    if method == "row_version":
        copied = [column.source.name for column in plan.columns]
        more = sending.reading(endpoint, table, copied, snapshot)
    told = f"{method}:{more}" if more else method

    def fingerprint(rows: int, values: Sequence[Any], top: str | None) -> SourceFingerprint:
        value, counted = _value(told, rows, values), KnownFigures("", {ROWS: rows})
        return SourceFingerprint(rows, value, used, greatest=top, source_figures=counted)

    nothing = fingerprint(0, [None] * (len(parts) - bool(kind) - apart), None)
    found = {key_range.name: nothing for key_range in ranges}
    for chunk in _chunks(ranges, endpoint.system):
        number_of = range_number(chunk, plan.key.source, system)
        where = filtered(within(chunk, plan.key.source, system), plan.where)
        ours = own_prefix(number_of, where, *(value for value, _ in parts))
        selected = "".join(f", {value} AS {ours}{at}" for at, (value, _) in enumerate(parts))
        figures = "".join(f", {one.format(f'{ours}{at}')}" for at, (_, one) in enumerate(parts))
        sql = (
            f"SELECT {ours}g, {own.dialect.count}{figures} FROM "
            f"(SELECT {number_of} AS {ours}g{selected} FROM {qualified(table)} "
            f"WHERE {where}{own.dialect.barrier}) AS {ours}rows GROUP BY {ours}g"
        )
        for number, rows, *values in endpoint.query(sql, snapshot=snapshot):
            if number >= 0:
                top = _finite(values.pop(), kind) if kind else None
                if apart:
                    _require_apart(plan, chunk[number], int(rows), int(values.pop()))
                found[chunk[number].name] = fingerprint(int(rows), values, top)
    if method not in OF_WRITES:
        return found
    # asked afterwards: what is read of the old history may be taken for a part of the new one
    history = sending.history(endpoint)
    definition_of = f"{used or 'r'}{HISTORY}{history}"[:LONGEST] if history else used
    return {name: replace(one, definition=definition_of) for name, one in found.items()}


def _chunks(ranges: Sequence[KeyRange], system: System) -> Iterator[Sequence[KeyRange]]:
    size = system.dialect.most_branches or max(1, len(ranges))
    return (ranges[start : start + size] for start in range(0, len(ranges), size))


def _contents(
    endpoint: Endpoint, plan: CopyPlan, ranges: Sequence[KeyRange], snapshot: str | None
) -> dict[str, SourceFingerprint]:
    own = preferred(endpoint, plan.target.system)
    digest, used = RowDigest(own, all_fields(plan), "source"), definition(own.algorithm)
    figures = [one for one in fields(plan) if one.name in plan.figures]
    found: dict[str, SourceFingerprint] = {}
    for chunk in _chunks(ranges, endpoint.system):
        measured = measure(
            endpoint,
            plan.source,
            "source",
            Grouped.by_range(chunk, plan.key.source, endpoint.system, plan.where),
            digest=digest,
            figures=figures,
            snapshot=snapshot,
        )
        for number, key_range in enumerate(chunk):
            one = measured.get(number) or empty(True, figures)
            value = _value(f"content:{used}", one[ROWS], [one[DIGEST]])
            found[key_range.name] = SourceFingerprint(
                one[ROWS], value, used, source_figures=KnownFigures(str(digest), one)
            )
    return found


def _parts(
    endpoint: Endpoint, table: TableRef, key: Column, method: str, marked: Sequence[Column]
) -> list[tuple[str, str]]:
    """Per figure an expression on the row, and the aggregate over it with `{}` in its place."""
    system, sql = endpoint.system, endpoint.system.dialect
    match method:
        case "row_version":
            return source_of(system).row_version(endpoint, table)
        case "watermark":
            told = [own_field(system, column) for column in marked]
            return [(dialect(endpoint).digest(told, "source"), sql.exact_sum("{}"))]
        case "count_minmax":
            ends = sql.key_extent(quote(system, key.name), key, key_kind(key, system)[0])
            return [(ends, sql.text(f"{end}({{}})")) for end in ("MIN", "MAX")]
        case "none":
            return []
    raise InputError(f"{table}: fingerprint {method!r} should be one of {', '.join(METHODS)}")


def _marked(endpoint: Endpoint, plan: CopyPlan, watermark: str | None) -> list[Column]:
    """The key, what else tells rows apart, and the watermark, which is the last."""
    columns = {column.name: column for column in endpoint.columns(plan.source)}
    if watermark not in columns:
        raise InputError(f"{plan.source}: the watermark column {watermark!r} does not exist")
    own = [column for column in columns.values() if column.primary_key]
    named = {column.name: column for column in (plan.key.source, *own)}
    named.pop(watermark, None)
    return [*named.values(), columns[watermark]]


def _distinct(key: Column, system: System) -> tuple[str, str]:
    """How many keys there are, as `_parts` has its figures."""
    name = quote(system, key.name)
    return system.dialect.told_apart(name, key), "COUNT(DISTINCT {})"


def _require_apart(plan: CopyPlan, key_range: KeyRange, rows: int, keys: int) -> None:
    """Refuse rows of which one could give way to another without a change of the fingerprint."""
    if rows > keys + key_range.null:
        raise InputError(
            f"{plan.source}: fingerprint watermark cannot tell rows apart: there is no primary "
            f"key, and in the range {key_range.name} {rows} rows have {keys} different values of "
            f"{plan.key.source.name!r}; give the table a primary key, choose a key whose values "
            "are unique, or use fingerprint content"
        )


def _greatest(endpoint: Endpoint, mark: Column) -> tuple[KeyKind, tuple[str, str]]:
    """The greatest watermark, as `_parts` has its figures, and its kind."""
    kind, dialect = key_kind(mark, endpoint.system)[0], endpoint.system.dialect
    value = dialect.key_value(quote(endpoint.system, mark.name), mark, kind)
    return kind, (value, dialect.text("MAX({})"))


def _finite(text: Any, kind: KeyKind) -> str | None:
    """A watermark as `to_bound` reads it again; None for infinity and years beyond 9999."""
    try:
        bound = None if text is None else to_bound(text, kind)
    except InputError:
        return None
    if bound is None:
        return None
    return bound.isoformat() if isinstance(bound, dt.date) else str(bound)


def _value(method: str, rows: int, values: Sequence[Any]) -> str:
    if method == "none":
        return "none"
    return ":".join([method, str(rows), *("" if value is None else str(value) for value in values)])
