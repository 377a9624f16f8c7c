"""Declared types: how they are read, and the types of a system, each described once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from tableferry.resources.types.export import Export, Refusal, Slot
from tableferry.resources.types.kinds import Kind


@dataclass(frozen=True)
class Column:
    """A column as its server declares it.

    `type` is the full declared type in the system's own words, for example `numeric(38,10)`,
    `nvarchar(max)` or `DateTime64(6, 'UTC')`. For ClickHouse it is without `Nullable(...)`, which
    `nullable` says instead.
    """

    name: str
    type: str
    nullable: bool = True
    generated: bool = False
    identity: bool = False
    primary_key: int | None = None
    """1-based position in the primary key, or None."""
    own_type: str | None = field(default=None, repr=False, compare=False)
    """What a statement would call the type, where `type` only says what kind of a type it is."""
    collation: str | None = field(default=None, repr=False, compare=False)
    """How the server itself orders a text, in its own words; None where nobody asked."""


@dataclass(frozen=True)
class ColumnType:
    """A declared type's parts."""

    name: str
    """The system's own name, without arguments and aliases."""
    kind: Kind | None
    """The kind of its values; None if only a text can represent them."""
    item: str | None = None
    """The declared type of an array's items."""


@dataclass(frozen=True)
class TypeMap:
    """The types of a system. A source needs `export`, a target all from `slot` to `decimal`."""

    read: Callable[[str], ColumnType]
    """Reads a declared type."""

    export: Callable[[str], Export | Refusal] = lambda type_: Refusal(
        "of a system that is a target only"
    )
    """How a column of a declared type is selected, and the values it can hold."""
    computed: Mapping[str, str] = field(default_factory=dict)
    """Types whose values SQL has to compute, and the expressions, with `{}` for the column."""
    arrives_as: Callable[[pa.DataType, Kind], pa.DataType] = lambda arrow, sent: arrow
    """The equivalent Arrow type in which the driver sends values that are wanted in a given one."""
    decimals_as_text: bool = False
    """Whether the driver sends decimals as text."""
    infinities: bool = False
    """Whether dates and timestamps may be infinite, beyond the limits of their kinds."""
    epoch_days: int = 0
    """Days that the driver adds to the server's own count, which may wrap around."""
    calendar: Callable[[int, int, int], int | str] = lambda number, per_day, bits: number
    """Converts a date or timestamp as the driver sends it to its count from 1970-01-01, or to
    `infinity`, given the number, its units per day, and its bits."""

    slot: Callable[[str, str], Slot | None] = lambda type_, version: None
    """The values that a column of a declared type holds; None if it can be filled by no kind of
    values exactly. The second argument is `CopyPlan.target_version`."""
    default: Callable[[Kind], str | None] = lambda kind: None
    """The type that holds a kind of values without loss; None if there is none."""
    text: str = "text"
    """The type for text of any length."""
    most_digits: int = 38
    """The maximum precision of a decimal."""
    decimal: Callable[[int, int], str] = lambda precision, scale: f"decimal({precision},{scale})"
    """The type for decimals of a precision and scale."""
    plain: Callable[[str], str] = lambda type_: " ".join(type_.split())
    """A type as users write it, without what nullability and options add."""
    low_cardinality: Callable[[str], str] | None = None
    """The type that stores repeated values once; None if the system has none."""
    keeps: Callable[[Column], str | None] = lambda column: None
    """The type that a column keeps in another server of the system, to which its values are passed
    on unchanged; None if they are converted as between different systems."""
    second_digits: int = 7
    """The maximum decimals of a second that can be stored."""
    holds_nul: bool = True
    """Whether texts may hold a NUL character."""
    wall_clocks_as_utc: bool = False
    """Whether wall clocks are stored as instants in UTC."""
    by_release: bool = False
    """Whether the values that columns hold depend on the server's release."""
    reads_floats: Callable[[str], bool] = lambda version: True
    """Whether a version reads floats in text exactly."""


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
