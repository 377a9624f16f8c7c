"""Cheap summaries of a source's key ranges, which tell whether their rows changed since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from resources.dialects import qualified, quote
from resources.digest.definition import definition
from resources.digest.expressions import RowDigest
from resources.digest.fields import all_fields, fields, own_field
from resources.digest.measure import DIGEST, ROWS, Grouped, Taken, empty, measure
from resources.digest.probe import dialect
from resources.endpoint import Endpoint
from resources.errors import InputError
from resources.keys.kind import key_kind
from resources.keys.range import KeyRange
from resources.keys.sql import MOST_RANGES, range_number, within
from resources.plan import CopyPlan
from resources.tables import Column, System, TableRef

METHODS = {
    "content": "nothing: every value of every copied column counts (64 bits per row, summed)",
    "row_version": (
        "nothing that was written; rewriting the table (VACUUM FULL, CLUSTER, a restored dump) "
        "or updating a row to the same values counts as a change. SQL Server: needs a rowversion "
        "column"
    ),
    "watermark": (
        "an update that leaves both the key and the watermark as they were; inserts and deletes "
        "are seen"
    ),
    "count_minmax": "every update; inserts and deletes that leave count, least and largest key",
    "none": "everything: a committed range runs again only if it is forced or its target differs",
}
"""What each method can miss."""


@dataclass(frozen=True)
class SourceFingerprint:
    """One range of a source table: its rows, and a value that changes when they do."""

    rows: int
    value: str
    definition: str = ""
    """Of the row digest that the value is made of, if it is: values of different definitions tell
    nothing about each other."""
    taken: Taken | None = field(default=None, compare=False)
    """The source's side of a checksum, where that has been read by the way."""


def fingerprints(
    endpoint: Endpoint,
    plan: CopyPlan,
    ranges: Sequence[KeyRange],
    method: str = "content",
    *,
    snapshot: str | None = None,
    watermark_column: str | None = None,
) -> dict[str, SourceFingerprint]:
    """Fingerprint many ranges of a hop's source by one aggregate query (one per 500 on SQL Server).

    The value does not depend on the order in which the server reads the rows. With up to 16 ranges
    the query selects just these, so that an index on the key serves it.

    Args:
        endpoint: Where `plan.source` is, PostgreSQL or SQL Server.
        plan: The hop; `content` looks at its columns only.
        ranges: Ranges that do not overlap; they need not cover the table.
        method: One of `METHODS`, which says what each can miss.
        snapshot: Exported PostgreSQL snapshot to read under.
        watermark_column: Column that every update raises, for `watermark`.

    Returns:
        By range name; a range without rows is there, with 0 rows.

    Raises:
        InputError: the method is unknown or needs something that the table does not have.
        DigestRefused: the server does not compute the row digest.
    """
    if endpoint.system not in ("postgres", "sqlserver"):
        raise InputError(f"{plan.source}: fingerprints should be of a postgres or sqlserver table")
    if method == "content":
        return _contents(endpoint, plan, ranges, snapshot)
    table, system = plan.source, endpoint.system
    parts = _parts(endpoint, table, plan.key.source, method, watermark_column)
    names = [f"a{number}" for number in range(len(parts))]
    selected = "".join(
        f", {value} AS {name}" for name, (value, _) in zip(names, parts, strict=True)
    )
    figures = "".join(
        f", {aggregate.format(name)}" for name, (_, aggregate) in zip(names, parts, strict=True)
    )
    used = definition(dialect(endpoint).algorithm) if method == "watermark" else ""
    method = f"{method}:{used}" if used else method
    found = {
        key_range.name: SourceFingerprint(0, _value(method, 0, [None] * len(parts)), used)
        for key_range in ranges
    }
    # else PostgreSQL expects as many groups as there are keys, and sorts the whole table
    barrier = " OFFSET 0" if system == "postgres" else ""
    for chunk in _chunks(ranges, endpoint.system):
        number_of = range_number(chunk, plan.key.source, system)
        where = within(chunk, plan.key.source, system)
        sql = (
            f"SELECT r, {_count(system)}{figures} FROM (SELECT {number_of} AS r{selected}"
            f" FROM {qualified(table)} WHERE {where}{barrier}) AS counted GROUP BY r"
        )
        for number, rows, *values in endpoint.query(sql, snapshot=snapshot):
            if number >= 0:
                value = _value(method, rows, values)
                found[chunk[number].name] = SourceFingerprint(int(rows), value, used)
    return found


def _chunks(ranges: Sequence[KeyRange], system: System) -> Iterator[Sequence[KeyRange]]:
    size = MOST_RANGES if system == "sqlserver" else max(1, len(ranges))
    return (ranges[start : start + size] for start in range(0, len(ranges), size))


def _contents(
    endpoint: Endpoint, plan: CopyPlan, ranges: Sequence[KeyRange], snapshot: str | None
) -> dict[str, SourceFingerprint]:
    own = dialect(endpoint)
    digest, used = RowDigest(own, all_fields(plan), "source"), definition(own.algorithm)
    figures = [one for one in fields(plan) if one.name in plan.figures]
    found: dict[str, SourceFingerprint] = {}
    for chunk in _chunks(ranges, endpoint.system):
        measured = measure(
            endpoint,
            plan.source,
            "source",
            Grouped.by_range(chunk, plan.key.source, endpoint.system),
            digest=digest,
            figures=figures,
            snapshot=snapshot,
        )
        for number, key_range in enumerate(chunk):
            one = measured.get(number) or empty(True, figures)
            value = _value(f"content:{used}", one[ROWS], [one[DIGEST]])
            found[key_range.name] = SourceFingerprint(
                one[ROWS], value, used, Taken(str(digest), one)
            )
    return found


def _parts(
    endpoint: Endpoint, table: TableRef, key: Column, method: str, watermark_column: str | None
) -> list[tuple[str, str]]:
    """Per figure an expression on the row, and the aggregate over it with `{}` in its place."""
    system = endpoint.system
    total = "SUM({}::numeric)::text" if system == "postgres" else "SUM(CAST({} AS decimal(38,0)))"
    match method:
        case "row_version" if system == "postgres":
            _refuse_view(endpoint, table, method)
            # ctid is unique in a table, but not among the partitions of one
            seed = "xmin::text::bigint + (tableoid::bigint << 32)"
            return [(f"hashtidextended(ctid, {seed})", total)]
        case "row_version":
            version = _row_version(endpoint, table)
            return [(version, total), (version, "MAX({})")]
        case "watermark":
            mark = next((c for c in endpoint.columns(table) if c.name == watermark_column), None)
            if mark is None:
                raise InputError(
                    f"{table}: the watermark column {watermark_column!r} does not exist"
                )
            both = [own_field(system, key), own_field(system, mark)]
            return [(dialect(endpoint).digest(both, "source"), total)]
        case "count_minmax":
            ends = _ordered(system, key)
            text = "{}::text" if system == "postgres" else "CAST({} AS nvarchar(50))"
            return [(ends, text.replace("{}", f"{end}({{}})")) for end in ("MIN", "MAX")]
        case "none":
            return []
    raise InputError(f"{table}: fingerprint {method!r} should be one of {', '.join(METHODS)}")


def _value(method: str, rows: int, values: Sequence[Any]) -> str:
    if method == "none":
        return "none"
    return ":".join([method, str(rows), *("" if value is None else str(value) for value in values)])


def _count(system: System) -> str:
    return "COUNT_BIG(*)" if system == "sqlserver" else "count(*)"


def _ordered(system: System, key: Column) -> str:
    name = quote(system, key.name)
    if key_kind(key, system)[0] == "uuid":
        # PostgreSQL has min(uuid) from version 18 on only
        return f"CAST({name} AS char(36))"
    if system == "sqlserver" and key.type in ("datetime", "smalldatetime"):
        # their own text has no seconds
        return f"CAST({name} AS datetime2(7))"
    return name


def _row_version(endpoint: Endpoint, table: TableRef) -> str:
    for column in endpoint.columns(table):
        if column.type in ("timestamp", "rowversion"):
            return f"CAST({quote(endpoint.system, column.name)} AS bigint)"
    raise InputError(
        f"{table}: fingerprint row_version needs a rowversion column, and there is none; "
        "add one, or use content"
    )


def _refuse_view(endpoint: Endpoint, table: TableRef, method: str) -> None:
    name = qualified(table).replace("'", "''")
    kind = endpoint.query(f"SELECT relkind::text FROM pg_class WHERE oid = '{name}'::regclass")
    if kind[0][0] not in ("r", "p", "m"):
        raise InputError(
            f"{table}: fingerprint {method} needs a table, and this is a view; use content"
        )
