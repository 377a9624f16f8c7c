"""Reads declared types: `numeric(38,10)`, `time(3) without time zone`, `Array(Nullable(Int32))`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_SQL = re.compile(
    r"""\s*(?P<name>"(?:[^"]|"")+"|[^()\[\]]*?[^()\[\]\s])\s*
        (?:\(\s*(?P<args>[^()]*?)\s*\)\s*(?P<suffix>[a-zA-Z ]*?))?\s*
        (?P<dims>(?:\[\d*\]\s*)*)$""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class TypeText:
    """A type's name without its arguments, and the arguments.

    `array` is true for PostgreSQL's `type[]`; `numbers` holds the arguments that are integers
    (`max` is -1).
    """

    name: str
    numbers: tuple[int, ...] = ()
    array: bool = False

    def number(self, position: int, default: int) -> int:
        """Return an argument, or the system's default without it."""
        return self.numbers[position] if position < len(self.numbers) else default


@lru_cache(4096)
def read(text: str) -> TypeText:
    """Read a PostgreSQL or SQL Server type; text of another form is the name as a whole.

    Args:
        text: e.g. `character varying(20)[]`, `nvarchar(max)`, `timestamp(3) with time zone`.
    """
    match = _SQL.match(text)
    if not match:
        return TypeText(text.strip())
    name, suffix = match["name"], match["suffix"]
    if not name.startswith('"'):
        name = " ".join(f"{name} {suffix or ''}".lower().split())
    numbers = []
    for argument in (match["args"] or "").split(","):
        if argument.strip().lower() == "max":
            numbers.append(-1)
        elif re.fullmatch(r"\s*-?\d+\s*", argument):
            numbers.append(int(argument))
    return TypeText(name, tuple(numbers), bool(match["dims"]))


def clickhouse(text: str) -> tuple[str, list[str]]:
    """Split a ClickHouse type into its name and its arguments.

    Args:
        text: e.g. `DateTime64(6, 'UTC')` or `Array(Nullable(Decimal(9, 2)))`.
    """
    text = text.strip()
    name, parenthesis, rest = text.partition("(")
    if not parenthesis or not rest.endswith(")"):
        return text, []
    arguments, depth, quoted, start, inner = [], 0, False, 0, rest[:-1]
    for position, character in enumerate(inner):
        if character == "'":
            quoted = not quoted
        elif not quoted and character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not quoted and not depth:
            arguments.append(inner[start:position].strip())
            start = position + 1
    return name.strip(), [*arguments, inner[start:].strip()]


def unwrap(text: str) -> tuple[str, bool, bool]:
    """Remove LowCardinality and Nullable from a ClickHouse type.

    Returns:
        The inner type, whether it was Nullable, whether it was LowCardinality.
    """
    nullable = low_cardinality = False
    while True:
        name, arguments = clickhouse(text)
        if name not in ("Nullable", "LowCardinality") or len(arguments) != 1:
            return text.strip(), nullable, low_cardinality
        nullable |= name == "Nullable"
        low_cardinality |= name == "LowCardinality"
        text = arguments[0]
