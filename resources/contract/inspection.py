"""What can be found out about a server and its tables, besides their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tableferry.resources.contract.system import System
from tableferry.resources.tables import TableRef

State = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    """E.g. `TLS`, `privileges`, `disk`."""
    state: State
    """`problem`: something will fail; `warning`: it may; `note`: good to know, or not to be found
    out."""
    says: str
    do: tuple[str, ...] = ()
    """What to do about it: statements to run, or a sentence."""


@dataclass(frozen=True)
class Use:
    """What the declared transfers want of a server."""

    reads: Sequence[TableRef] = ()
    writes: Sequence[TableRef] = ()


@dataclass(frozen=True)
class Inspection:
    """How a system finds out about its servers and their tables."""

    health: Callable[[Any, Use], Iterator[Finding]] = lambda resource, use: iter(())
    """What is well and what is not, of a server that can be reached: see `ferry doctor`."""
    unique_by: Callable[[Any, TableRef, Sequence[str]], str | None] = lambda *_: None
    """The name of what keeps a table of a resource from having two rows alike in all of some
    columns; None where nothing does."""
    hidden: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Why a resource's login does not see, or may not write, all rows of a table: its row-level
    security, and the remedies; None if it does, or nobody can tell."""


def inspection_of(system: System) -> Inspection:
    """How a system finds out about its servers; nothing is found where it cannot."""
    return system.inspection if isinstance(system.inspection, Inspection) else Inspection()
