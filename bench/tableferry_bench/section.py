"""The parts of a report, whatever they are printed as."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Chart:
    """A picture, and the name that its file gets."""

    name: str
    svg: str


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remarks: tuple[str, ...] = ()
    chart: Chart | None = None
    words: int = field(default=1)
    """So many columns hold words; the rest are figures."""
