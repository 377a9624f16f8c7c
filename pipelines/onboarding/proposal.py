"""Proposes a transfer of a table by the catalog: names, key, ranges, types, decisions to review."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from re import ASCII, sub
from typing import Any, Literal

from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.declaring.many_tables import unknown_placeholder
from tableferry.assets.declaring.transfer_files import DEFAULTS
from tableferry.pipelines.onboarding.planning import (
    Catalogs,
    ColumnDecision,
    HopPlanning,
    Option,
    target_types,
)
from tableferry.resources.columns.key_kind import is_text_key, key_kind
from tableferry.resources.connecting.names import table_of
from tableferry.resources.contract.catalog import Described, TableSize
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

USUAL_ROWS = 250_000
RANGE_BYTES = 64 << 20
"""Aimed-at size of a range in the source: seconds of work, and little to repeat."""
FEWEST_ROWS, MOST_ROWS = 10_000, 1_000_000
COMFORTABLE_RANGES = 400
"""Aimed-at maximum of ranges per table; see `assets.declaring.bounds.MAX_RANGES`."""
CHANGED = ("updated_at", "modified_at", "changed_at", "last_modified", "last_update", "updated")
"""Usual names of columns that hold the time of a row's last change."""


def choose_key(
    columns: Sequence[Column], leading: Sequence[str], system: System
) -> tuple[str | None, str, tuple[Column, ...]]:
    """Choose the column to cut ranges by; return it, the reason, and all possible columns.

    The first choice is the primary key's first column, if it is orderable; then one of the columns
    that lead an index, because without one every range would scan the whole table. A text is
    chosen only if it is the whole primary key.
    """
    primary_key = [column.name for column in columns if column.primary_key]
    composite = len(primary_key) > 1
    possible = [
        column
        for column in columns
        if not column.generated and is_orderable(column, system)
        if column.primary_key == 1 or not is_text_key(column, system)
    ]
    primary = sorted(
        (column for column in possible if column.primary_key),
        key=lambda column: column.primary_key or 0,
    )
    by_name = {column.name: column for column in possible}
    indexed = [by_name[name] for name in leading if name in by_name]
    keys = tuple(dict.fromkeys([*primary, *indexed, *possible]))
    # many rows may have the same text in the first column of a composite key
    shared = composite and bool(primary) and is_text_key(primary[0], system)
    if primary and primary[0].primary_key == 1 and not shared:
        why = "the first column of the primary key" if composite else "the primary key"
        return primary[0].name, why, keys
    for column in indexed:
        if not column.nullable and not is_text_key(column, system):
            return column.name, "an index begins with it, and it is NOT NULL", keys
    if not possible:
        return None, "there is no integer, date, timestamp or uuid column", keys
    if primary_key:
        begins = "a text, which many rows may share" if shared else "a column that cannot be cut"
        return None, f"the primary key ({', '.join(primary_key)}) begins with {begins}", keys
    return None, "there is no primary key, nor an index that begins with a NOT NULL column", keys


def range_rows(size: TableSize) -> int:
    """Choose the rows per range, so that ranges are neither too large nor too many."""
    rows = USUAL_ROWS
    if size.bytes and size.rows:
        fitting = RANGE_BYTES * size.rows // size.bytes
        rows = min(max(_round_up(fitting), FEWEST_ROWS), MOST_ROWS)
    return max(rows, _round_up(size.rows // COMFORTABLE_RANGES))


def _round_up(rows: int) -> int:
    """Round up to 1, 2.5 or 5 times a power of ten."""
    unit = 1
    while unit * 10 <= max(rows, 1):
        unit *= 10
    return next(step for step in (unit, unit * 5 // 2, unit * 5, unit * 10) if step >= rows)


def is_orderable(column: Column, system: System) -> bool:
    try:
        key_kind(column, system)
    except InputError:
        return False
    return True


def is_watermark(column: Column, system: System) -> bool:
    if column.name.lower() not in CHANGED or not is_orderable(column, system):
        return False
    return key_kind(column, system)[0] == "timestamp"


def description_of(column: Column, leading: Collection[str]) -> str:
    parts = [column.type]
    if column.nullable:
        parts.append("may be NULL")
    if column.name not in leading:
        parts.append("not indexed: each range would read the whole table")
    return ", ".join(parts)


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


Arrangement = Literal["chain", "each"]
"""Several targets are reached one from the other, or each from the source."""

OURS = "__ferry_"
"""The prefix of Tableferry's own tables."""


def arrangements(connection: str, to: Sequence[str]) -> str:
    """Describe the ways to reach several targets, each with its option."""
    names = [text.partition("://")[0].lower() for text in to]
    chain = " -> ".join([connection, *names])
    each = ", ".join(f"{connection} -> {name}" for name in names)
    return (
        f"--chain, from one to the next ({chain}: what the first target cannot hold as it is, such "
        f"as a list, reaches the others as a text), or --each, a transfer per target ({each})"
    )


def suffix_of(target: TableRef, templates: Sequence[TableRef]) -> str:
    """What tells the transfer to one of several targets of a table from the others, by its name."""
    same = sum(template.connection == target.connection for template in templates)
    return f"_{target.connection}" + (f"_{target.schema}_{target.name}" if same > 1 else "")


def template_of(text: str) -> TableRef:
    if problem := unknown_placeholder(text):
        raise InputError(f"--to {text!r}: {problem}")
    target = table_of(text)
    loader_of(target.system)
    return target


def require_distinct(
    hops: Mapping[TableRef, Sequence[TableRef]],
) -> list[tuple[TableRef, str]]:
    """Find the tables whose targets another one has but for case, each with the reason.

    Raises:
        InputError: tables have the very same target.
    """
    claimed: dict[tuple[str, ...], tuple[TableRef, TableRef]] = {}
    unfit: dict[TableRef, str] = {}
    for table, targets in hops.items():
        for target in targets:
            folded = target.system.dialect.folded
            key = (target.connection, folded(target.schema), folded(target.name))
            other, theirs = claimed.setdefault(key, (table, target))
            if other == table:
                continue
            if theirs == target:
                raise InputError(
                    f"{other} and {table} would both go to {target}; "
                    "put {table} or {schema}_{table} into its name, or exclude one of them"
                )
            unfit[table] = (
                f"{target.system} would not tell its target {target} from that of {other}; write "
                "a file for it with another target"
            )
    return list(unfit.items())


def free_name(table: TableRef, plain: str, longer: str, taken: set[str]) -> str:
    """Choose a name for the transfer of a table, and take it.

    Args:
        table: the table.
        plain: the name, if it is free.
        longer: the name otherwise, with a number if need be.
        taken: the names that are not free, folded.
    """
    longer = identifier(longer)
    for name in (identifier(plain), longer, *(f"{longer}_{number}" for number in range(2, 1000))):
        if name.casefold() not in taken and is_valid_name(name):
            taken.add(name.casefold())
            return name
    raise InputError(f"{table}: there is no name left for its transfer")


def identifier(text: str) -> str:
    """Turn a text into a valid name of a transfer."""
    name = sub(r"\W+", "_", text, flags=ASCII).strip("_") or "table"
    return f"t_{name}" if name[0].isdigit() else name


def is_valid_name(name: str) -> bool:
    if f"{name}.yaml".casefold() == DEFAULTS:
        return False
    try:
        op_name(name)
    except ValueError:
        return False
    return True
