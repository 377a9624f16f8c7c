"""What a system says about its types: each is stated once, in the system's own module `types`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tableferry.resources.types.column import Column
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.slot import Slot


@dataclass(frozen=True)
class ColumnType:
    """A declared type, read."""

    name: str
    """In the system's own words, without arguments; aliases are resolved."""
    kind: Kind | None
    """What its columns hold; None for a type whose values only a text can stand for."""
    item: str | None = None
    """The declared type of an array's items."""


def _no_export(type_: str) -> Export | Refusal:
    return Refusal("of a system that is a target only")


def _no_slot(type_: str, version: str) -> Slot | None:
    return None


def _no_default(kind: Kind) -> str | None:
    return None


def _as_it_is(array: pa.DataType, sent: Kind) -> pa.DataType:
    return array


@dataclass(frozen=True)
class TypeMap:
    """The types of a system. A source needs `export`, a target all from `slot` to `decimal`."""

    read: Callable[[str], ColumnType]
    """Of a declared type."""

    export: Callable[[str], Export | Refusal] = _no_export
    """How a column of a declared type is selected, and what it can hold."""
    computed: Mapping[str, str] = field(default_factory=dict)
    """Types whose columns stand for a value that SQL has to compute, by an expression of `{}`."""
    arrives_as: Callable[[pa.DataType, Kind], pa.DataType] = _as_it_is
    """In which Arrow type the driver sends what is wanted in a given one, which is as good."""
    decimals_as_text: bool = False
    """The driver sends decimals as text."""
    infinities: bool = False
    """Dates and timestamps may be infinite, beyond the ends of their kinds."""
    epoch_days: int = 0
    """What the driver adds to the server's own count of days, wrapping around."""
    calendar: Callable[[int, int, int], int | str] = lambda number, per_day, bits: number
    """A date or timestamp as the driver sends it -> its count from 1970-01-01, or `infinity`.
    Takes the number, how many of its units a day has, and its bits."""

    slot: Callable[[str, str], Slot | None] = _no_slot
    """What a column of a declared type holds, and how it is handed over; None if nothing of ours
    can be stored in it exactly. The second argument is `CopyPlan.target_version`."""
    default: Callable[[Kind], str | None] = _no_default
    """The type that holds a kind of values without loss, None if there is none."""
    text: str = "text"
    """The type for text of any length."""
    most_digits: int = 38
    """Of a decimal."""
    decimal: Callable[[int, int], str] = lambda precision, scale: f"decimal({precision},{scale})"
    """The type for decimals of a precision and scale."""
    plain: Callable[[str], str] = lambda type_: " ".join(type_.split())
    """A type as users write it, without what nullability and options add."""
    low_cardinality: Callable[[str], str] | None = None
    """The type that stores repeated values once; None if there is none."""
    keeps: Callable[[Column], str | None] = lambda column: None
    """The type that a column of the system keeps in another server of the system, which is handed
    its values as they are; None where they are converted as between any two systems."""
    second_digits: int = 7
    """The most decimals of a second that reach a column of the system."""
    holds_nul: bool = True
    """Whether a text may hold a NUL character."""
    wall_clocks_as_utc: bool = False
    """Wall clocks are stored as instants in UTC."""
    by_release: bool = False
    """What columns hold depends on the server's release."""
    reads_floats: Callable[[str], bool] = lambda version: True
    """Whether a version reads the nearest float out of a text."""
