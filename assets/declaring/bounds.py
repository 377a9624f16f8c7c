"""What is wrong with declared bounds of ranges, whatever the key's column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tableferry.resources.errors import InputError
from tableferry.resources.keys.cover import to_bound, to_number
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.keys.text import problem as text_problem

MAX_RANGES = 2000
"""An event of a range costs about 25 ms in Dagster's storage; 200 to 500 ranges are comfortable."""

KINDS: tuple[KeyKind, ...] = ("integer", "timestamp", "uuid")
"""Kinds that declared bounds may be of; dates count as timestamps."""


def bounds_problems(bounds: Sequence[Any], measures: Mapping[str, Any]) -> list[str]:
    """What is wrong with declared bounds, and with the rows, count or width beside them."""
    problems = []
    if "rows" in measures:
        problems.append("bounds go with width or count or alone, not with rows")
    if len(bounds) < 2:
        problems.append("bounds should hold at least two values")
    elif len(bounds) != 2 and ("count" in measures or "width" in measures):
        problems.append(
            f"with {' and '.join(measures)}, bounds should be the two ends of the span to divide, "
            f"found {len(bounds)}"
        )
    kinds = {kind: numbers for kind in KINDS if (numbers := _numbers(bounds, kind)) is not None}
    if not kinds and _texts(bounds):
        return [*problems, *_text_problems(bounds, measures)]
    if not kinds:
        problems.append("bounds should all be integers, dates and timestamps, uuids, or texts")
    elif not any(_ascending(values) for values in [*kinds.values(), _texts(bounds)]):
        problems.append(f"bounds overlap: {list(bounds)} should be strictly ascending")
    width = measures.get("width")
    if kinds and isinstance(width, str) and "timestamp" not in kinds:
        problems.append(f"a width of {width!r} needs bounds that are dates or timestamps")
    if width is not None and set(kinds) == {"uuid"}:
        problems.append("a uuid key cannot be cut by width; give rows or count")
    return problems


def _ascending(bounds: Sequence[Any]) -> bool:
    return bool(bounds) and all(a < b for a, b in pairwise(bounds))


def _texts(bounds: Sequence[Any]) -> Sequence[str]:
    """The bounds if all are texts, else none."""
    return bounds if all(isinstance(bound, str) for bound in bounds) else ()


def _text_problems(bounds: Sequence[str], measures: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"bound {bound!r} {why}" for bound in bounds if (why := text_problem(bound)))
    if not _ascending(bounds):
        yield f"bounds overlap: {list(bounds)} should be strictly ascending, by code points"
    if "width" in measures or "count" in measures:
        yield "text bounds go alone: they are no span to divide"


def _numbers(bounds: Sequence[Any], kind: KeyKind) -> list[int] | None:
    """The bounds as keys of a kind; None if they are no such keys."""
    if kind == "integer" and any(isinstance(value, dt.date | float) for value in bounds):
        return None
    if any(isinstance(value, bool | dict | list) or value is None for value in bounds):
        return None
    try:
        return [to_number(to_bound(value, kind)) for value in bounds]
    except (InputError, OverflowError):
        return None
