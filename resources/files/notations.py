"""How texts write values: in the canonical notation, which values are printed in, or in any.

DuckDB's own casts round, or ignore what they do not know. The functions write conditions in its
SQL, on a text and a type.
"""

from __future__ import annotations

import re

INSTANT = "TIMESTAMP WITH TIME ZONE"
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")

_YEAR = r"(\d{3}[1-9]|\d{2}[1-9]\d|\d[1-9]\d{2}|[1-9]\d{3})"
DAY = rf"{_YEAR}-\d{{2}}-\d{{2}}"
_MINUTE = r"([01]\d|2[0-3]):[0-5]\d"
SECOND = rf"{_MINUTE}:[0-5]\d(\.\d{{1,6}})?"
_CLOCK = rf"{_MINUTE}(:[0-5]\d(\.\d{{1,6}}0*)?)?"
_NUMBER = r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"

NOTATIONS = {
    **dict.fromkeys((*INTEGERS, *UNSIGNED), r"-?\d+"),
    "BOOLEAN": "(?i)true|false|t|f|1|0",
    "FLOAT": rf"{_NUMBER}|(?i)nan|-?inf|-?infinity",
    "DOUBLE": rf"{_NUMBER}|(?i)nan|-?inf|-?infinity",
    "DATE": DAY,
    "TIME": rf"{_CLOCK}|24:00(:00(\.0+)?)?",
    "TIMESTAMP": rf"{DAY}([ T]{_CLOCK})?",
    INSTANT: rf"{DAY}[ T]{_CLOCK}(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)",
    "UUID": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
"""Patterns of texts that write a value of a type in any notation, by the type's name."""

WHOLE = r"0|-?[1-9]\d*"
CANONICAL = {
    **dict.fromkeys((*INTEGERS, *UNSIGNED), WHOLE),
    "BOOLEAN": "true|false",
    "DATE": DAY,
    "TIME": SECOND,
    "TIMESTAMP": f"{DAY}[ T]{SECOND}",
    INSTANT: rf"{DAY}[ T]{SECOND}(Z|\+00(:?00)?)",
    "UUID": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
"""Patterns of texts in the notation in which the value is printed, by the type's name."""

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def is_written(x: str, type_: str) -> str:
    """The condition that a text writes a value of a type exactly, in any notation."""
    name, scale = _named(type_)
    if name == "DECIMAL":
        return _matches(x, rf"-?\d+(\.\d{{0,{scale}}}0*)?", type_)
    condition = _matches(x, NOTATIONS[name], type_)
    if name in ("FLOAT", "DOUBLE"):
        # the nearest float may be another number: all digits have to come back
        longest = "{:.8e}" if name == "FLOAT" else "{:.16e}"
        number = f"TRY_CAST({x} AS {name})"
        shortest, fixed = f"CAST({number} AS VARCHAR)", f"format('{longest}', {number})"
        return f"({condition} AND {_digits(x)} IN ({_digits(shortest)}, {_digits(fixed)}))"
    return condition


def is_canonical(x: str, type_: str) -> str:
    """The condition that a text is how a value of a type is printed."""
    name, scale = _named(type_)
    if name in ("FLOAT", "DOUBLE"):
        return f"coalesce(CAST(TRY_CAST({x} AS {name}) AS VARCHAR) = {x}, false)"
    if name == "DECIMAL":
        fixed = rf"\.\d{{{scale}}}" if scale else ""
        shorter = rf"(\.\d{{0,{scale - 1}}}[1-9])?" if scale > 1 else "(\\.[1-9])?" if scale else ""
        pattern = rf"-?(0|[1-9]\d*)({fixed}|{shorter})"
        return f"({_matches(x, pattern, type_)} AND NOT {zero_below(x)})"
    return _matches(x, CANONICAL[name], type_)


def zero_below(x: str) -> str:
    """The condition that a text is a negative zero, which no integer or decimal is."""
    return f"regexp_full_match({x}, '-0(\\.0*)?')"


def _matches(x: str, pattern: str, type_: str) -> str:
    return f"(regexp_full_match({x}, '{pattern}') AND TRY_CAST({x} AS {type_}) IS NOT NULL)"


def _digits(x: str) -> str:
    """The significant digits of a number's text."""
    return f"trim(regexp_replace({x}, '[eE].*|[^0-9]', '', 'g'), '0')"


def _named(type_: str) -> tuple[str, int]:
    decimal = _DECIMAL.fullmatch(type_)
    return ("DECIMAL", int(decimal[2])) if decimal else (type_, 0)
