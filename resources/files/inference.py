"""The types of a text file's columns that nobody declared, and of columns of several files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

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
"""The types that texts are inferred to be, first match, each by a condition: only a type that gives
the same texts back, so that `007`, `+1`, `-0`, `1E5`, `TRUE` and instants beyond UTC stay texts."""

_KINDS = {
    "strings": "'VARCHAR'",
    "numbers": "'BIGINT', 'UBIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE', 'DECIMAL'",
    "booleans": "'BOOLEAN'",
    "nested": "'ARRAY', 'OBJECT'",
}
"""The kinds of JSON values, each by DuckDB's names of their types."""


class _Shape(NamedTuple):
    """The figures of a column's texts."""

    texts: int
    """The number of texts that are not empty."""
    alike: tuple[int, ...]
    """The number of texts of each type of `_ALIKE`."""
    kinds: tuple[int, ...]
    """The number of JSON values of each of `_KINDS`."""
    padded: int
    """The number of fractions that end in a zero."""
    with_t: int
    """The number of texts with a T, as between a date and a time."""
    longest: tuple[int, ...]
    """Maximum number of characters, of digits before the point, and of digits behind it."""
    shortest: tuple[int, ...]
    """Minimum number of characters, and of digits behind the point."""


def figures(x: str, kind: str | None = None) -> list[str]:
    """Write the aggregates over a column of texts from which its type is `inferred`.

    Args:
        x: SQL of the column.
        kind: SQL of DuckDB's name of the JSON value's type; None for other texts.
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
        *(f"coalesce(max({count}), 0)" for count in (length, whole, fraction)),
        *(f"coalesce(min({count}), {MANY})" for count in (length, fraction)),
    ]


MANY = 1 << 30
WIDTH = len(figures("x"))
"""The number of `figures`."""
_COMBINED: tuple[Callable[[Sequence[int]], int], ...] = (
    *[sum] * (WIDTH - 5),
    *[max] * 3,
    *[min] * 2,
)
"""What combines each figure of several files."""


def _shape(of_files: Sequence[Sequence[int]]) -> _Shape:
    columns = zip(*of_files, strict=True)
    rest = iter([combine(column) for combine, column in zip(_COMBINED, columns, strict=True)])

    def some(count: int) -> tuple[int, ...]:
        return tuple(islice(rest, count))

    return _Shape(
        next(rest), some(len(_ALIKE)), some(len(_KINDS)), next(rest), next(rest), some(3), some(2)
    )


def inferred(of_files: Sequence[Sequence[int]]) -> str:
    """Infer the type of a column from its `figures` in each file."""
    shape = _shape(of_files)
    strings = shape.kinds[0]
    if sum(map(bool, shape.kinds)) > 1:
        return MIXED
    if not shape.texts or shape.kinds[-1]:
        return TEXT
    for name, count in zip(_ALIKE, shape.alike, strict=True):
        literal = name in NUMBERS or name == "BOOLEAN"
        if count < shape.texts or (strings and literal):
            continue
        if not _uniform(name, shape):
            if name in ("TIMESTAMP", INSTANT):
                return f"{LIKE}{from_text(name)}"
            continue
        if name != "DECIMAL":
            return from_text(name)
        _, digits, scale = shape.longest
        if digits + scale <= MOST_DIGITS:
            return from_text(f"DECIMAL({18 if digits + scale <= 18 else MOST_DIGITS},{scale})")
    return TEXT


def _uniform(name: str, shape: _Shape) -> bool:
    """Whether all of a column's texts have the same form, so that no two texts, such as `1.0` and
    `1`, have the same value."""
    (longest, _, scale), (shortest, least) = shape.longest, shape.shortest
    if name == "DECIMAL":
        return scale == least or not shape.padded
    if name in ("TIMESTAMP", INSTANT):
        # for instants the same length: it tells notations of the zone apart, too
        alike = longest == shortest or (not shape.padded and name == "TIMESTAMP")
        return alike and shape.with_t in (0, shape.texts)
    return True


def united(types: Sequence[str]) -> str | None:
    """The type that holds the values of all of some types exactly; None if there is none."""
    unreadable = [type_ for type_ in types if UNREADABLE in type_]
    if unreadable:
        return unreadable[0]
    types = [type_ for type_ in types if type_ != NOTHING] or ["INTEGER"]
    if len(set(types)) == 1:
        return types[0]
    kinds = [read(type_).kind for type_ in types]
    integers = [kind for kind in kinds if isinstance(kind, Integer)]
    if len(integers) == len(kinds):
        low, high = min(kind.low for kind in integers), max(kind.high for kind in integers)
        fits = [name for name, kind in INTEGERS.items() if kind.low <= low and high <= kind.high]
        return fits[0] if fits else "DECIMAL(20,0)"
    if all(isinstance(kind, Float) for kind in kinds):
        return "DOUBLE"
    decimals = [kind for kind in kinds if isinstance(kind, Decimal)]
    if len(integers) + len(decimals) == len(kinds):
        digits = [len(str(kind.high)) for kind in integers]
        whole = max(digits + [(kind.precision or 0) - (kind.scale or 0) for kind in decimals])
        scale = max(kind.scale or 0 for kind in decimals)
        return f"DECIMAL({whole + scale},{scale})" if whole + scale <= MOST_DIGITS else None
    if all(isinstance(kind, Timestamp) and kind.zone == "none" for kind in kinds):
        return "TIMESTAMP_NS" if "TIMESTAMP_NS" in types else "TIMESTAMP"
    pairs = ((INSTANT, INSTANT_NS), ("TIME", "TIME_NS"), ("JSON", "VARCHAR"))
    return next((wider for type_, wider in pairs if {type_, wider} == set(types)), None)
