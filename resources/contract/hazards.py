"""What of a target may show its readers other rows than those that were audited in staging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import TableRef

PublishAudit = Literal["auto", "visible"]

Effect = Literal["refused", "destroys", "changes", "noted"]
"""`refused`: it is certain to change rows, or the publication is certain to fail. `destroys`: where
a range has rows already, rows elsewhere go with them. `changes`: it may change rows as they are
published. `noted`: it changes no row at that moment."""


@dataclass(frozen=True)
class Hazard:
    """One thing that a server may do with rows, or because of them, when they are published."""

    kind: str
    """E.g. `trigger`, `foreign key`, `rule`."""
    name: str
    """Of the thing, and where it is."""
    effect: Effect
    says: str
    """What it does."""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.says}"

    @property
    def told(self) -> str:
        """The same with the remedy."""
        return f"{self}. {self.remedy}" if self.remedy else str(self)

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


Look = Callable[[], Sequence[Hazard]]
"""Looks for the hazards of a table anew."""


class ShownDiffers(TableferryError):
    """What readers would see of a range is not what was audited."""


def require_publishable(table: TableRef, hazards: Sequence[Hazard]) -> None:
    """Refuse a table that would not show what is published into it.

    Raises:
        InputError: names all that stands in the way, with the remedies.
    """
    if refused := having(hazards, "refused"):
        raise InputError(f"{table}: {told(refused)}")


def having(hazards: Sequence[Hazard], *effects: Effect) -> list[Hazard]:
    """The hazards with one of these effects."""
    return [hazard for hazard in hazards if hazard.effect in effects]


def told(hazards: Iterable[Hazard]) -> str:
    """All of them with their remedies, in one line."""
    return "; ".join(hazard.told for hazard in hazards)
