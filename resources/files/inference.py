"""The types of a text file's columns that nobody declared, and of columns of several files."""

from __future__ import annotations

from resources.files.types import CLOCK, INSTANT, INTEGERS, TEXT, TEXTS, from_text, read
from resources.types.kinds import Decimal, Float, Integer, Timestamp

_SHAPES = {
    "BOOLEAN": "(?i)true|false",
    "BIGINT": r"-?(0|[1-9]\d{0,17})",
    "DECIMAL": r"-?(0|[1-9]\d*)(\.\d+)?",
    "DOUBLE": r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?",
    "DATE": TEXTS["DATE"],
    "TIMESTAMP": rf"\d{{4}}-\d{{2}}-\d{{2}}[ T]{CLOCK}",
    INSTANT: TEXTS[INSTANT],
    "UUID": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
"""What texts are taken for by themselves, first match; none that would lose a digit, so that `007`
stays a text."""


def shape(x: str) -> list[str]:
    """Aggregates over a column of texts, of which `inferred` makes its type."""
    text = f"nullif({x}, '')"
    found = [f"count({text})"]
    for name, pattern in _SHAPES.items():
        cast = f" AND TRY_CAST({x} AS {name}) IS NOT NULL" if name not in ("DECIMAL",) else ""
        found.append(f"count(*) FILTER (WHERE regexp_full_match({x}, '{pattern}'){cast})")
    whole = f"length(ltrim(split_part({x}, '.', 1), '-'))"
    found += [f"max({whole})", f"max(length(split_part({x}, '.', 2)))"]
    return found


WIDTH = len(_SHAPES) + 3
"""Figures of `shape`."""


def inferred(shapes: list[tuple[int, ...]]) -> str:
    """The type of a column, from the figures of all files together."""
    total, *matching = (sum(one[at] for one in shapes) for at in range(len(_SHAPES) + 1))
    if not total:
        return TEXT
    for name, count in zip(_SHAPES, matching, strict=True):
        if count < total:
            continue
        if name != "DECIMAL":
            return from_text(name)
        whole, scale = (max(one[at] or 0 for one in shapes) for at in (-2, -1))
        if whole + scale <= 38:
            digits = 18 if whole + scale <= 18 else 38
            return from_text(f"DECIMAL({digits},{scale})")
    return TEXT


def united(types: list[str]) -> str | None:
    """The type that holds the values of all of these exactly; None if there is none."""
    if len(set(types)) == 1:
        return types[0]
    kinds = [read(one).kind for one in types]
    integers = [one for one in kinds if isinstance(one, Integer)]
    if len(integers) == len(kinds):
        low, high = min(one.low for one in integers), max(one.high for one in integers)
        fits = [name for name, one in INTEGERS.items() if one.low <= low and high <= one.high]
        return fits[0] if fits else "DECIMAL(20,0)"
    if all(isinstance(one, Float) for one in kinds):
        return "DOUBLE"
    if all(isinstance(one, Integer | Decimal) for one in kinds):
        whole = max(
            (one.precision or 0) - (one.scale or 0)
            if isinstance(one, Decimal)
            else len(str(one.high))
            for one in kinds
            if isinstance(one, Integer | Decimal)
        )
        scale = max(one.scale or 0 for one in kinds if isinstance(one, Decimal))
        return f"DECIMAL({whole + scale},{scale})" if whole + scale <= 38 else None
    if all(isinstance(one, Timestamp) and one.zone == "none" for one in kinds):
        return "TIMESTAMP_NS" if "TIMESTAMP_NS" in types else "TIMESTAMP"
    return None
