"""Proposes a transfer of a table from the catalog: key, ranges, types and decisions to review."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tableferry.pipelines.onboarding.catalogs import Catalogs
from tableferry.pipelines.onboarding.keys import (
    choose_key,
    description_of,
    is_watermark,
    range_rows,
)
from tableferry.pipelines.onboarding.planning import (
    ColumnDecision,
    HopPlanning,
    Option,
    target_types,
)
from tableferry.resources.contract.catalog import Described, TableSize
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

NO_SELECT = "this login may not read it (SELECT)"


@dataclass(frozen=True)
class Proposal:
    """A proposed transfer of one table."""

    source: TableRef
    hops: tuple[TableRef, ...]
    size: TableSize
    key: str | None
    """None: the table has no suitable key, and is cut by its storage blocks instead."""
    why_key: str
    keys: tuple[Option, ...]
    """Other columns that could be the key."""
    range_rows: int
    types: Mapping[str, tuple[str, ...]]
    """The types of each column in the source and in the targets that it reaches."""
    watermark: str | None = None
    """A column that seems to hold the time of a row's last change."""
    decisions: tuple[ColumnDecision, ...] = field(default=())
    shortened: Mapping[TableRef, str] = field(default_factory=dict)
    """Why targets do not have the names that they would have, by target."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further keys of the transfer's file, with their values."""

    @property
    def range_count(self) -> int:
        """The number of ranges of the table as it is."""
        return max(1, -(-self.size.rows // self.range_rows))

    @property
    def columns(self) -> dict[str, dict[str, Any]]:
        """What `columns:` says."""
        return {one.column: one.choices[0].value for one in self.decisions if one.choices}

    @property
    def exclude(self) -> list[str]:
        """The columns that no target can hold."""
        return [decision.column for decision in self.decisions if not decision.choices]

    @property
    def ranges(self) -> dict[str, Any]:
        """What `ranges:` says."""
        place = source_of(self.source.system).place
        if self.key is None and place is not None:
            return {"by": place.column.name, "count": self.range_count}
        return {"rows": self.range_rows}


def propose(
    table: TableRef,
    hops: Sequence[TableRef],
    catalogs: Catalogs,
    declared_key: str | None = None,
    unreadable: Collection[str] | None = None,
) -> Proposal:
    """Propose a transfer of a table to its targets, in the order of the hops. Nothing is changed.

    Args:
        table: the table.
        hops: its targets.
        catalogs: describe it, and the targets.
        declared_key: the key, where somebody has chosen it.
        unreadable: the columns that the login may not read, if it may not read the whole table.

    Raises:
        InputError: the table cannot be moved like this, and why.
        TableferryError: a server does not answer.
    """
    source = source_of(table.system)
    described = catalogs.described(table)
    if unreadable is not None:
        described = _readable(described, unreadable)
    columns, leading = described.columns, described.leading
    key, why, keys = choose_key(columns, leading, table.system)
    if declared_key is not None:
        key, why = declared_key, "declared"
        if key not in {column.name for column in columns}:
            raise InputError(f"there is no column {key!r} to be the key")
    others = tuple(
        Option(column.name, description_of(column, leading))
        for column in keys
        if column.name != key
        # NULLs are a range of their own
        if key is None or not column.nullable or column.name in leading
    )
    if key is None:
        _require_blocks(described, why, others)
    planning = HopPlanning(table, described, hops, key, catalogs)
    plans = planning.plans()
    for plan in plans:
        catalogs.target(plan.target).require(plan, TargetOptions())
    place = None if source.place is None else source.place.column.name
    decisions = planning.decisions()
    types = {column.name: (column.type, *target_types(column.name, plans)) for column in columns}
    watermarks = [column.name for column in columns if is_watermark(column, table.system)]
    # an indexed column is preferred
    watermarks.sort(key=lambda name: name not in leading)
    return Proposal(
        table,
        tuple(hops),
        described.size,
        key,
        why,
        others,
        range_rows(described.size),
        types,
        next(iter(watermarks), None),
        tuple(
            decision
            for decision in (
                *decisions,
                *(ColumnDecision(name, NO_SELECT) for name in unreadable or ()),
            )
            if decision.column != place
        ),
    )


def _readable(described: Described, unreadable: Collection[str]) -> Described:
    """Leave out what a login does not see that may read some columns of a table only."""
    readable = [column for column in described.columns if column.name not in unreadable]
    if not readable:
        raise InputError(NO_SELECT)
    if any(column.primary_key for column in described.columns if column.name in unreadable):
        readable = [replace(column, primary_key=None) for column in readable]
    no_blocks = described.no_blocks
    if described.blocks is not None:
        no_blocks = "cut by blocks only for a login that may read all of it (SELECT)"
    return replace(described, columns=readable, blocks=None, no_blocks=no_blocks)


def _require_blocks(described: Described, why: str, others: Sequence[Option]) -> None:
    """Refuse a table that has neither a key nor blocks."""
    if described.blocks is not None:
        return
    remedy = "add an identity column or a primary key"
    if others:
        names = ", ".join(str(choice.value) for choice in others[:5])
        remedy = f"write a file for it with `key:` and one of {names}, or {remedy}"
    blocks = f", and it is {described.no_blocks}" if described.no_blocks else ""
    raise InputError(f"{why}{blocks}: {remedy}")
