"""How rows enter a system: its load target, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan, Format, WireFormat
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import RangeLoad, Target, TargetOptions
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

Rehearsal = Callable[[Any, CopyPlan, TargetOptions], AbstractContextManager[RangeLoad]]


@dataclass(frozen=True)
class Loader:
    """How rows enter a system."""

    open: Callable[[Any], Target]
    """The load target of a resource."""
    accepts: Sequence[Format]
    """The formats that it takes."""
    modes: Sequence[WriteMode] = tuple(WriteMode)
    """The ways in which it writes."""
    table_problem: Callable[[TableRef], str | None] = lambda table: None
    """Why a table cannot be written to, by its name alone, to be put after it; None if it can."""
    options: Mapping[str, Callable[[Any], str | None]] = field(default_factory=dict)
    """Of a hop: which of `engine`, `order_by`, `partition_by` mean something there, each with what
    says why a value cannot be, or None."""
    orders_key: Callable[[CopyPlan], bool] = lambda plan: True
    """Whether the table that is made for a plan has an index for the order of a key that is a
    text."""
    require_tools: Callable[[Any, WireFormat], None] = lambda resource, wire: None
    """Raises `InputError` if a tool that takes the wire format is not installed."""
    rehearsals: Mapping[Format, Rehearsal] = field(default_factory=dict)
    """By format that is believed only after edge values arrived by it, see `resources.wires.loads`:
    how a load is opened whose rows nobody gets to see, for a table that need not be there."""
    trial: Callable[[Any, TableRef, Format], str | None] = lambda resource, table, format: None
    """Why no row enters the server in a format, whatever its types, by one that was loaded beside a
    table and read back, once per server; None where it does, or where that could not be tried."""


def loader_of(system: System) -> Loader:
    """How rows enter a system.

    Raises:
        InputError: they do not.
    """
    if not isinstance(system.loader, Loader):
        raise InputError(f"{system} cannot be a target of rows: {system.no_loader}")
    return system.loader
