"""Proposes how a table could travel, out of the catalog: key, ranges, types, and what is open."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.assets.planning.columns import as_source
from tableferry.assets.planning.resolve import Servers
from tableferry.resources.columns.advice import choices
from tableferry.resources.columns.planner import ColumnOverride, plan_copy, require_distinct
from tableferry.resources.columns.scan import Fitting, decimal_types
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import TargetOptions
from tableferry.resources.errors import ColumnsRefused, InputError, NamesClash
from tableferry.resources.ranges.key_kind import is_text_key, key_kind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

USUAL_ROWS = 250_000
RANGE_BYTES = 64 << 20
"""Of a range as the source stores it: some seconds of work, and little to repeat."""
FEWEST_ROWS, MOST_ROWS = 10_000, 1_000_000
COMFORTABLE_RANGES = 400
"""Of one table: see `assets.planning.boundaries.MAX_RANGES`."""
SCANNED_BYTES = 1 << 30
"""Tables of up to this size are read once, to tell how many digits undeclared decimals have."""
CHANGED = ("updated_at", "modified_at", "changed_at", "last_modified", "last_update", "updated")
"""What columns are called that tell when a row last changed."""


@dataclass(frozen=True)
class Choice:
    """One way to decide: a value as YAML, and what it means."""

    yaml: str
    meaning: str


@dataclass(frozen=True)
class Open:
    """What only somebody who knows the data can decide."""

    what: str
    """`key`, the name of a column, or a target."""
    why: str
    choices: tuple[Choice, ...] = ()
    column: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class Proposal:
    """How one table could travel."""

    source: TableRef
    hops: tuple[TableRef, ...]
    size: TableSize
    key: str | None
    why_key: str
    keys: tuple[Choice, ...]
    """Other columns that could be the key."""
    by_blocks: bool
    """The table has no such column at hand, and is cut by its blocks instead."""
    range_rows: int
    types: Mapping[str, tuple[str, ...]]
    """By column: its type in the source, and in each target that it gets to."""
    watermark: str | None = None
    """A column that seems to tell when a row last changed."""
    open: tuple[Open, ...] = field(default=())


def propose(table: TableRef, hops: Sequence[TableRef], servers: Servers) -> Proposal:
    """Look at a table, and at what the targets have for its columns. Nothing is changed.

    Args:
        table: of the source.
        hops: its targets, in order.
        servers: where they are.

    Raises:
        TableferryError: a server does not answer.
    """
    endpoint = servers.endpoint(table)
    source = source_of(table.system)
    columns = endpoint.columns(table)
    size = source.size(endpoint, table)
    leading = source.leading(endpoint, table)
    key, why, keys = choose_key(columns, leading, table.system)
    others = tuple(Choice(one.name, _described(one, leading)) for one in keys if one.name != key)
    by_blocks = key is None and _has_blocks(endpoint, table)
    found = [] if key is not None or by_blocks else [Open("key", why, others)]
    plans, refused, renames, clashes = _plans(table, columns, hops, key, servers)
    found += clashes
    digits: dict[str, Fitting] = {}
    first = {one.name for number, one, _ in refused if number == 1}
    if first and size.bytes is not None and size.bytes <= SCANNED_BYTES:
        asked = [column for column in columns if column.name in first]
        digits = decimal_types(endpoint, table, asked, hops[0].system)
    for number, column, reason in refused:
        here = table if number == 1 else hops[number - 2]
        measured = digits.get(column.name) if number == 1 else None
        rename = renames.pop(column.name, None)
        target = hops[number - 1].system
        found.append(_open_column(column, here.system, target, reason, measured, rename))
    found += [_open_name(column, renames) for column in columns if column.name in renames]
    found += _targets(plans, servers)
    types = {column.name: (column.type, *_on_the_way(column.name, plans)) for column in columns}
    changed = [one.name for one in columns if _tells_changes(one, table.system)]
    return Proposal(
        table,
        tuple(hops),
        size,
        key,
        why,
        others,
        by_blocks,
        range_rows(size),
        types,
        next((name for name in changed if name in leading), next(iter(changed), None)),
        tuple(found),
    )


def choose_key(
    columns: Sequence[Column], leading: Sequence[str], of: System
) -> tuple[str | None, str, tuple[Column, ...]]:
    """The column to cut ranges by.

    A primary key's first column of a type with an order, else another column that an index begins
    with; a text only if it is the primary key. What no index begins with would make every range a
    scan of the whole table.

    Args:
        columns: of the table.
        leading: the columns that an index begins with, those of unique ones first.
        of: the table's system.

    Returns:
        Its name or None, why, and all columns that could be it.
    """
    composite = sum(1 for column in columns if column.primary_key) > 1
    possible = [
        one
        for one in columns
        if not one.generated and _orderable(one, of)
        if one.primary_key == 1 or not is_text_key(one, of)
    ]
    primary = sorted(
        (one for one in possible if one.primary_key), key=lambda one: one.primary_key or 0
    )
    by_name = {one.name: one for one in possible}
    indexed = [by_name[name] for name in leading if name in by_name]
    keys = tuple(dict.fromkeys([*primary, *indexed, *possible]))
    # a text that is no whole primary key is rather what many rows have in common
    shared = composite and bool(primary) and is_text_key(primary[0], of)
    if primary and primary[0].primary_key == 1 and not shared:
        why = "the first column of the primary key" if composite else "the primary key"
        return primary[0].name, why, keys
    for one in indexed:
        if not one.nullable and not is_text_key(one, of):
            return one.name, "an index begins with it, and it is NOT NULL", keys
    if not possible:
        return None, "there is no integer, date, timestamp or uuid column", keys
    if any(column.primary_key for column in columns):
        names = ", ".join(one.name for one in columns if one.primary_key)
        begins = "a text, which many rows may share" if shared else "a column that cannot be cut"
        return None, f"the primary key ({names}) begins with {begins}", keys
    return None, "there is no primary key, nor an index that begins with a NOT NULL column", keys


def range_rows(size: TableSize) -> int:
    """Rows of a range, so that it is neither long to repeat nor one of too many."""
    rows = USUAL_ROWS
    if size.bytes and size.rows:
        fitting = RANGE_BYTES * size.rows // size.bytes
        rows = min(max(_round(fitting), FEWEST_ROWS), MOST_ROWS)
    return max(rows, _round(size.rows // COMFORTABLE_RANGES))


def _round(rows: int) -> int:
    """Up to 1, 2 or 5 and zeros, or a quarter of them."""
    unit = 1
    while unit * 10 <= max(rows, 1):
        unit *= 10
    return next(found for found in (unit, unit * 5 // 2, unit * 5, unit * 10) if found >= rows)


def _has_blocks(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether a table can be cut by where its rows are stored."""
    source = source_of(table.system)
    if source.place is None:
        return False
    try:
        source.blocks(endpoint, table)
    except InputError:
        return False
    return True


def _plans(
    table: TableRef,
    columns: Sequence[Column],
    hops: Sequence[TableRef],
    key: str | None,
    servers: Servers,
) -> tuple[list[CopyPlan], list[tuple[int, Column, str]], dict[str, str], list[Open]]:
    """The hops without the columns that cannot travel, and renamed where a target would not tell
    names apart; the former, as hop, column, reason; the new names; and what stands against a hop
    as a whole."""
    plans: list[CopyPlan] = []
    refused: list[tuple[int, Column, str]] = []
    renames: dict[str, str] = {}
    here, found = table, list(columns)
    for number, to in enumerate(hops, start=1):
        types = to.system.types
        version = servers.endpoint(to).ping() if types.by_release else None
        without: set[str] = set()
        names = _free_names(here, found, to)
        renamed = {name: ColumnOverride(rename=new) for name, new in names.items()}
        while True:
            left = [column for column in found if column.name not in without]
            if not left:
                return plans, refused, renames, []
            # which one it is decides over no type
            of = key if key in {one.name for one in left} else left[0].name
            try:
                plan = plan_copy(
                    here,
                    found,
                    to,
                    key=of,
                    overrides={n: one for n, one in renamed.items() if n not in without},
                    exclude=without,
                    target_version=version,
                )
            except ColumnsRefused as error:
                before = {new: name for name, new in renames.items()}
                by_name = {
                    column.name: replace(column, name=before.get(column.name, column.name))
                    for column in found
                }
                refused += [(number, by_name[name], why) for name, why in error.problems.items()]
                without |= set(error.problems)
            except InputError as error:
                return plans, refused, renames, [Open(str(to), str(error))]
            else:
                break
        plans.append(plan)
        renames |= names
        here, found = to, as_source(plan)
    return plans, refused, renames, []


def _free_names(source: TableRef, columns: Sequence[Column], target: TableRef) -> dict[str, str]:
    """Other names for the columns whose own the target does not tell from those of others."""
    try:
        require_distinct(source, target, {column.name: column.name for column in columns})
    except NamesClash as error:
        return error.renames
    return {}


def _open_name(column: Column, renames: Mapping[str, str]) -> Open:
    new = renames[column.name]
    choice = Choice(f"{{rename: {json.dumps(new, ensure_ascii=False)}}}", "its name in all targets")
    why = "a target would not tell its name from another column's"
    return Open(column.name, why, (choice,), column=True)


def _open_column(
    column: Column,
    source: System,
    target: System,
    reason: str,
    measured: Fitting | None,
    rename: str | None,
) -> Open:
    possible = choices(source, column, target) if "of type" in reason else []
    if measured:
        known = [one for one in possible if one[0] != measured.type]
        possible = [(measured.type, measured.held), *known]
    name = f"rename: {json.dumps(rename, ensure_ascii=False)}, " if rename else ""
    found = [Choice(f'{{{name}type: {{{target}: "{type_}"}}}}', held) for type_, held in possible]
    why = reason.partition(": ")[2].partition(";")[0] if "of type" in reason else reason
    return Open(column.name, f"{column.type} to {target}: {why}", tuple(found), column=True)


def _targets(plans: Sequence[CopyPlan], servers: Servers) -> list[Open]:
    """What the targets would refuse."""
    found = []
    for plan in plans:
        try:
            servers.target(plan.target).require(plan, TargetOptions())
        except InputError as error:
            found.append(Open(str(plan.target), str(error)))
    return found


def _on_the_way(name: str, plans: Sequence[CopyPlan]) -> Iterator[str]:
    """The types of a column in the targets that it gets to; it keeps its name."""
    for plan in plans:
        found = next((one for one in plan.columns if one.source.name == name), None)
        if found is None:
            return
        yield found.target.type


def _orderable(column: Column, of: System) -> bool:
    try:
        key_kind(column, of)
    except InputError:
        return False
    return True


def _tells_changes(column: Column, of: System) -> bool:
    if column.name.lower() not in CHANGED or not _orderable(column, of):
        return False
    return key_kind(column, of)[0] == "timestamp"


def _described(column: Column, leading: Collection[str]) -> str:
    parts = [column.type]
    if column.nullable:
        parts.append("may be NULL")
    if column.name not in leading:
        parts.append("not indexed: each range would read the whole table")
    return ", ".join(parts)
