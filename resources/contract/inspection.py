"""Inspections of a server and its tables: health, unique keys, row-level security."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tableferry.resources.contract.system import System
from tableferry.resources.tables import TableRef

State = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check of a server."""

    subject: str
    """E.g. `TLS`, `privileges`, `disk`."""
    state: State
    """`problem`: something will fail; `warning`: it may; `note`: good to know, or unknown."""
    says: str
    do: tuple[str, ...] = ()
    """Remedies: statements to run, or a sentence."""


@dataclass(frozen=True)
class Use:
    """The tables that the declared transfers use on a server."""

    reads: Sequence[TableRef] = ()
    writes: Sequence[TableRef] = ()


@dataclass(frozen=True)
class Inspection:
    """How a system inspects its servers and tables."""

    health: Callable[[Any, Use], Iterator[Finding]] = lambda resource, use: iter(())
    """Checks a server that can be reached, for `ferry doctor`."""
    unique_by: Callable[[Any, TableRef, Sequence[str]], str | None] = lambda *_: None
    """Returns the name of a constraint or index that makes some columns of a table unique; None if
    there is none."""
    hidden: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Says by which row-level security, and with which remedies, a login cannot read or write all
    rows of a table; None if it can, or if that is unknown."""
    withheld: Callable[[Any, TableRef], tuple[str | None, Sequence[str]]] | None = None
    """Returns by one query what `hidden` does, and the columns that a login may not read; None if
    a system cannot tell these."""

    refused: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Says why a table can be neither read nor written, whatever is declared; None if it can."""

    def withheld_from(self, endpoint: Any, table: TableRef) -> tuple[str | None, Sequence[str]]:
        """Return what `hidden` does, and the columns that the login is known not to read."""
        if self.withheld is None:
            return self.hidden(endpoint, table), ()
        return self.withheld(endpoint, table)


def inspection_of(system: System) -> Inspection:
    """Return how a system inspects its servers; by default it does not."""
    return system.inspection if isinstance(system.inspection, Inspection) else Inspection()
