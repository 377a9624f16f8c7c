"""Inspections of a server and its tables: health, unique keys, row-level security."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tableferry.resources.contract.looking_ahead import Question, answer
from tableferry.resources.contract.system import System
from tableferry.resources.tables import TableRef

Withheld = tuple[str | None, Sequence[str]]
"""Why rows of a table are withheld, if some are, and which columns."""

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
    withheld: Question[Withheld] = lambda endpoint, tables: {}
    """Says of tables of one schema by which row-level security, and with which remedies, a login
    cannot read or write all rows, and which columns it may not read; tables of which neither is
    known may be missing."""
    refused: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Says why a table can be neither read nor written, whatever is declared; None if it can."""

    def withheld_from(self, endpoint: Any, table: TableRef) -> Withheld:
        """Return what `withheld` says of a table."""
        return answer(endpoint, self.withheld, table) or (None, ())


def inspection_of(system: System) -> Inspection:
    """Return how a system inspects its servers; by default it does not."""
    return system.inspection if isinstance(system.inspection, Inspection) else Inspection()
