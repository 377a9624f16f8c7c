"""A system's types, each of which its module `types` describes once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tableferry.resources.types.column import Column
from tableferry.resources.types.export import Export, Refusal, Slot
from tableferry.resources.types.kinds import Kind


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
