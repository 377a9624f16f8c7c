"""How rows enter a system: its load target, options, and the formats it shares with a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import RangeLoad, Target
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef


class Part(NamedTuple):
    """The most that a server stores at once as one part of a table."""

    rows: int
    bytes: int


Rehearsal = Callable[[Any, CopyPlan, Framing], AbstractContextManager[RangeLoad]]


@dataclass(frozen=True)
class Loader:
    """How rows enter a system."""

    open: Callable[[Any], Target]
    """Returns the load target of a resource."""
    accepts: Sequence[Format]
    """The formats that it can load."""
    modes: Sequence[WriteMode] = tuple(mode for mode in WriteMode if mode.moves)
    """The write modes that it has."""
    deltas: bool = False
    """Whether it has `Publication.delta`."""
    delta_share: float = 0.0
    """The share of a range's rows up to which it takes no longer to compare the range, and to write
    these rows by themselves, than to write the range; 0 if it always does."""
    stored_share: float = 1.2
    """Typical bytes of a stored row, its indexes included, per byte of it in Arrow."""
    most_in_part: Part | None = None
    """None in a system whose tables have no parts."""
    updates_in_place: bool = False
    """Whether a row that is updated keeps its values in columns that are not written."""
    removes: bool = False
    """Whether it has `TargetOptions.removes`."""
    quarantines: bool = True
    """Whether it keeps rejected values beside a table, see `Publication.quarantine`."""
    table_problem: Callable[[TableRef], str | None] = lambda table: None
    """Says why the name of a table rules out writing to it, as a predicate of it; None if not."""
    options: Mapping[str, Callable[[Any], str | None]] = field(default_factory=dict)
    """Which of a hop's `engine`, `order_by` and `partition_by` have a meaning there. The value says
    why an argument is invalid, or returns None."""
    orders_key: Callable[[CopyPlan], bool] = lambda plan: True
    """Whether a table created for a plan has an index for the order of a text key."""
    require_tools: Callable[[Any, WireFormat], None] = lambda resource, wire: None
    """Raises `InputError` if a tool that loads the wire format is not installed."""
    shut_out: Callable[[Any, WireFormat], str | None] = lambda resource, wire: None
    """Says why a server does not let in what loads a wire format, though it lets in others."""
    rehearsals: Mapping[Format, Rehearsal] = field(default_factory=dict)
    """How to open a load whose rows nobody sees, for a table that need not exist: by the formats
    that are used only after edge values have arrived by them, see `resources.wires.exports`."""
    trial: Callable[[Any, TableRef, Format], str | None] = lambda resource, table, format: None
    """Says why a server stores no rows of any type in a format, after one was loaded beside a table
    and read back, once per server; None if it does, or if that could not be tried."""


def loader_of(system: System) -> Loader:
    """Return the loader of a system.

    Raises:
        InputError: it has none.
    """
    if not isinstance(system.loader, Loader):
        raise InputError(f"{system} cannot be a target of rows: {system.no_loader}")
    return system.loader


WIRES: dict[Format, WireFormat] = {
    "pgcopy": "pgcopy",
    "copy_text": "text",
    "arrow": "arrow",
    "tab_separated": "text",
    "delimited": "text",
}
"""All formats, by preference, and the names that users know them by. Formats that are passed on
unparsed come first, then `arrow`, which carries every type that two systems share without a tool.
"""

UNREAD: tuple[Format, ...] = ("pgcopy", "copy_text")
"""The formats that the client passes on without reading them."""


def formats_between(source: TableRef, target: TableRef) -> tuple[Format, ...]:
    """List the formats that the source's system sends and the target's accepts, preferred first.

    Raises:
        InputError: the source's system cannot be a source, or the target's no target.
    """
    sends = source_of(source.system).sends
    accepts = loader_of(target.system).accepts
    return tuple(format for format in WIRES if format in sends and format in accepts)


def format_of(wire: WireFormat, source: TableRef, target: TableRef) -> Format | None:
    """The format that a wire format stands for between two systems; None if they share none."""
    formats = formats_between(source, target)
    return next((format for format in formats if WIRES[format] == wire), None)
