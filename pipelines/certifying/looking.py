"""Looks at what is in source and targets, by plain queries, past the product's digests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tableferry.pipelines.certifying.edges import TYPES, Edges
from tableferry.pipelines.certifying.plain import COLUMNS, as_text, normal
from tableferry.pipelines.certifying.site import Site

ROWS = "certify_rows"
"""The table of many rows."""
READ_AT_ONCE = 10_000
"""Rows that are compared at a time."""

Row = tuple[Any, ...]


def differing_rows(source: Site, target: Site) -> str:
    """Say how the many rows of a target differ from the source's; '' if they do not."""
    ends = [
        int(end or 0)
        for site in (source, target)
        for end in site.query(f"SELECT MIN(id), MAX(id) FROM {site.sql(ROWS)}")[0]
    ]
    for first in range(min(ends), max(ends) + 1, READ_AT_ONCE):
        sent, came = _slice(source, first), _slice(target, first)
        if sent != came:
            return difference(sent, came)
    return ""


def _slice(site: Site, first: int) -> list[Row]:
    columns = ", ".join(map(site.endpoint.system.quote, COLUMNS))
    rows = site.query(
        f"SELECT {columns} FROM {site.sql(ROWS)} "
        f"WHERE id >= {first} AND id < {first + READ_AT_ONCE} ORDER BY id"
    )
    return [
        (int(id_), version, note, amount, as_text(at), None if flag is None else bool(flag))
        for id_, version, note, amount, at, flag in rows
    ]


def difference(source: list[Row], target: list[Row]) -> str:
    """Say how two lists of rows differ, whose first values are ids."""
    keys = [row[0] for row in target]
    by_key = {row[0]: row for row in source}
    counts = {
        "lost": sorted(by_key.keys() - {*keys}),
        "extra": sorted({*keys} - by_key.keys()),
        "with other values": [row[0] for row in target if row != by_key.get(row[0], row)],
        "doubled": sorted(key for key, rows in Counter(keys).items() if rows > 1),
    }
    said = [f"{len(ids)} {what} (id {ids[0]})" for what, ids in counts.items() if ids]
    return ", ".join(said) or "in another order"


def torn_ranges(target: Site, spans: list[tuple[int, int]]) -> list[str]:
    """Say which ranges of a target are neither old nor new: with rows of several versions, or with
    several rows of a key.

    Args:
        target: the site.
        spans: the first keys of the ranges, and those behind their last ones.
    """
    torn = []
    for first, end in spans:
        versions = target.query(
            f"SELECT version, COUNT(*), COUNT(DISTINCT id) FROM {target.sql(ROWS)} "
            f"WHERE id >= {first} AND id < {end} GROUP BY version"
        )
        if len(versions) > 1 or any(rows != keys for _, rows, keys in versions):
            said = [f"{rows} rows of {keys} keys in version {v}" for v, rows, keys in versions]
            torn.append(f"from id {first} on there are {', '.join(said)}")
    return torn


def differing_values(edges: Edges, target: Site) -> tuple[int, list[str]]:
    """Compare the table of all types with the source's, value by value.

    Returns:
        How many values were compared, and those that differ.
    """
    sent, came = _typed(edges, edges.source), _typed(edges, target)
    wrong = [] if sent.keys() == came.keys() else [f"{len(sent)} rows became {len(came)}"]
    count = 0
    for number in sorted(sent.keys() & came.keys()):
        of_row = zip(edges.columns.values(), edges.kinds, sent[number], came[number], strict=True)
        for type_, kind, was, is_ in of_row:
            count += 1
            if normal(kind, was) != normal(kind, is_):
                wrong.append(f"{type_}, row {number}: {_short(was)} became {_short(is_)}")
    return count, wrong


def _typed(edges: Edges, site: Site) -> dict[int, list[str | None]]:
    """Read the table of all types as texts, by id."""
    types = {column.name: column.type for column in site.endpoint.columns(site.table(TYPES))}
    quote, plain = site.endpoint.system.quote, site.plain
    expressions = [
        plain.text(quote(name), types[name], kind)
        for name, kind in zip(edges.columns, edges.kinds, strict=True)
    ]
    rows = site.query(f"SELECT id, {', '.join(expressions)} FROM {site.sql(TYPES)}")
    return {
        # nothing but a text that is marked begins with the mark
        int(number): [text and text.removeprefix(plain.mark) for text in map(as_text, values)]
        for number, *values in rows
    }


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 60 else f"{text[:60]}...")
