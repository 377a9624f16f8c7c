"""The types of a text file's columns that nobody declared, and of columns of several files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import add
from typing import Any

from tableferry.resources.files.notations import INSTANT, is_canonical, zero_below
from tableferry.resources.files.types import (
    INSTANT_NS,
    INTEGERS,
    LIKE,
    MIXED,
    MOST_DIGITS,
    NOTHING,
    TEXT,
    UNREADABLE,
    from_text,
    read,
)
from tableferry.resources.types.kinds import Decimal, Float, Integer, Timestamp

NUMBERS = ("BIGINT", "DECIMAL", "DOUBLE")
_ONE_ZERO = r"(0|[1-9]\d*)(\.\d+)?"
_ALIKE = {
    "BOOLEAN": is_canonical("{}", "BOOLEAN"),
    "BIGINT": is_canonical("{}", "BIGINT"),
    "DECIMAL": rf"(regexp_full_match({{}}, '-?{_ONE_ZERO}') AND NOT {zero_below('{}')})",
    "DOUBLE": rf"({is_canonical('{}', 'DOUBLE')} AND regexp_full_match({{}}, '-?\d.*'))",
    "DATE": is_canonical("{}", "DATE"),
    "TIMESTAMP": is_canonical("{}", "TIMESTAMP"),
    INSTANT: is_canonical("{}", INSTANT),
    "UUID": is_canonical("{}", "UUID"),
}
"""What texts are taken for by themselves, first match: only what gives the same texts back, so that
`007`, `+1`, `-0`, `1E5`, `TRUE` and an instant of another zone than UTC stay texts."""

_KINDS = {
    "strings": "'VARCHAR'",
    "numbers": "'BIGINT', 'UBIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE', 'DECIMAL'",
    "booleans": "'BOOLEAN'",
    "nested": "'ARRAY', 'OBJECT'",
}
"""Kinds of JSON values, as DuckDB names their types."""


@dataclass(frozen=True)
class Shape:
    """What the texts of a column are like."""

    texts: int
    """But for empty ones."""
    alike: tuple[int, ...]
    """How many are, by `_ALIKE`."""
    kinds: tuple[int, ...]
    """Of JSON values, by `_KINDS`."""
    padded: int
    """Fractions that end in a zero."""
    with_t: int
    """Those with a T, as between a date and a time."""
    longest: tuple[int, ...]
    """Most characters, digits before the point and digits behind it."""
    shortest: tuple[int, ...]
    """Fewest characters, and digits behind the point."""

    def __add__(self, other: Shape) -> Shape:
        def together(name: str, one: Any, another: Any) -> Any:
            if isinstance(one, int):
                return one + another
            choose = {"longest": max, "shortest": min}.get(name, lambda a, b: a + b)
            return tuple(map(choose, one, another))

        own, others = vars(self), vars(other)
        return Shape(**{name: together(name, own[name], others[name]) for name in own})


def shape(x: str, kind: str | None = None) -> list[str]:
    """Aggregates over a column of texts, of which `shape_of` makes its shape.

    Args:
        x: the column.
        kind: DuckDB's name of the JSON type of a value; None of other texts.
    """
    text = f"nullif({x}, '')"
    counts = [condition.replace("{}", x) for condition in _ALIKE.values()]
    counts += [f"{kind} IN ({names})" if kind else "false" for names in _KINDS.values()]
    counts += [f"regexp_full_match({x}, '.*\\.\\d*0(Z|\\+00(:?00)?)?')", f"contains({x}, 'T')"]
    length, fraction = f"length({text})", f"length(split_part({text}, '.', 2))"
    whole = f"length(ltrim(split_part({text}, '.', 1), '-'))"
    return [
        f"count({text})",
        *(f"count(*) FILTER (WHERE {condition})" for condition in counts),
        *(f"coalesce(max({one}), 0)" for one in (length, whole, fraction)),
        *(f"coalesce(min({one}), {MANY})" for one in (length, fraction)),
    ]


MANY = 1 << 30
WIDTH = len(shape("x"))
"""Figures of `shape`."""


def shape_of(figures: Sequence[int]) -> Shape:
    """The shape of a column."""
    rest = iter(figures)

    def some(count: int) -> tuple[int, ...]:
        return tuple(islice(rest, count))

    return Shape(
        next(rest), some(len(_ALIKE)), some(len(_KINDS)), next(rest), next(rest), some(3), some(2)
    )


def inferred(shapes: Sequence[Shape]) -> str:
    """The type of a column, from its shapes in all files together."""
    whole = reduce(add, shapes)
    strings = whole.kinds[0]
    if sum(map(bool, whole.kinds)) > 1:
        return MIXED
    if not whole.texts or whole.kinds[-1]:
        return TEXT
    for name, count in zip(_ALIKE, whole.alike, strict=True):
        literal = name in NUMBERS or name == "BOOLEAN"
        if count < whole.texts or (strings and literal):
            continue
        if not _uniform(name, whole):
            if name in ("TIMESTAMP", INSTANT):
                return f"{LIKE}{from_text(name)}"
            continue
        if name != "DECIMAL":
            return from_text(name)
        _, digits, scale = whole.longest
        if digits + scale <= MOST_DIGITS:
            return from_text(f"DECIMAL({18 if digits + scale <= 18 else MOST_DIGITS},{scale})")
    return TEXT


def _uniform(name: str, whole: Shape) -> bool:
    """Whether all of a column's texts are of one form: `1.0` is not written beside `1`, where one
    value would stand for both."""
    (longest, _, scale), (shortest, least) = whole.longest, whole.shortest
    if name == "DECIMAL":
        return scale == least or not whole.padded
    if name in ("TIMESTAMP", INSTANT):
        # zones have to be alike, too, so that their lengths tell those of clocks
        alike = longest == shortest or (not whole.padded and name == "TIMESTAMP")
        return alike and whole.with_t in (0, whole.texts)
    return True


def united(types: Sequence[str]) -> str | None:
    """The type that holds the values of all of these exactly; None if there is none."""
    unread = [one for one in types if UNREADABLE in one]
    if unread:
        return unread[0]
    types = [one for one in types if one != NOTHING] or ["INTEGER"]
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
    if all(isinstance(one, Timestamp) for one in kinds) and set(types) == {INSTANT, INSTANT_NS}:
        return INSTANT_NS
    if set(types) == {"TIME", "TIME_NS"}:
        return "TIME_NS"
    if set(types) == {"JSON", "VARCHAR"}:
        return "VARCHAR"
    return None
