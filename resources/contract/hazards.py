"""Hazards: what may show a target's readers other rows than those that were audited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import TableRef

PublishAudit = Literal["auto", "visible"]

Effect = Literal["refused", "destroys", "changes", "noted"]
"""`refused`: it is certain to change rows, or to make the publication fail. `destroys`: replacing
the rows of a range deletes rows elsewhere. `changes`: it may change rows as they are published.
`noted`: it changes no row at that moment."""


NOT_CARRIED_OVER = "would not be on the table that is recreated"


@dataclass(frozen=True)
class Hazard:
    """Something that a server may do when rows are published."""

    kind: str
    """E.g. `trigger`, `foreign key`, `rule`."""
    name: str
    """Its name and place."""
    effect: Effect
    says: str
    """What it does, as a predicate of the name."""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.says}"

    @property
    def with_remedy(self) -> str:
        """The hazard with its remedy."""
        return f"{self}. {self.remedy}" if self.remedy else str(self)

    def json(self) -> dict[str, Any]:
        """The hazard as `--json` shows it."""
        return asdict(self)


def not_carried_over(parts: Iterable[tuple[str, str]]) -> list[Hazard]:
    """Return the hazards of what a table that is recreated would lack, by their kinds and names."""
    says, remedy = NOT_CARRIED_OVER, "Drop it, run, and add it again, or alter by hand"
    return [Hazard(kind, name, "refused", says, remedy) for kind, name in parts]


Look = Callable[[], Sequence[Hazard]]
"""Reads the hazards of a table from the server."""


def present(look: Look, known: Sequence[Hazard]) -> Sequence[Hazard]:
    """A table's hazards, of which some may be newer than the plan's, which are known."""
    with suppress(TableferryError):
        return look()
    return known


class ShownDiffers(TableferryError):
    """Readers would see other rows of a range than those that were audited."""


def require_publishable(table: TableRef, hazards: Sequence[Hazard]) -> None:
    """Refuse a table that would not show the rows that are published.

    Raises:
        InputError: the message names all hazards and remedies.
    """
    if refused := having(hazards, "refused"):
        raise InputError(f"{table}: {with_remedies(refused)}")


def having(hazards: Sequence[Hazard], *effects: Effect) -> list[Hazard]:
    """The hazards with one of these effects."""
    return [hazard for hazard in hazards if hazard.effect in effects]


def with_remedies(hazards: Iterable[Hazard]) -> str:
    """Describe hazards and their remedies in one line."""
    return "; ".join(hazard.with_remedy for hazard in hazards)
