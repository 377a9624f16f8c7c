"""Proposes a transfer of a table from the catalog: key, ranges, types and open decisions."""

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
"""Aimed-at size of a range in the source: seconds of work, and little to repeat."""
FEWEST_ROWS, MOST_ROWS = 10_000, 1_000_000
COMFORTABLE_RANGES = 400
"""Aimed-at maximum of ranges per table; see `assets.planning.boundaries.MAX_RANGES`."""
SCANNED_BYTES = 1 << 30
"""Maximum size of tables that are read once to count the digits of unconstrained decimals."""
CHANGED = ("updated_at", "modified_at", "changed_at", "last_modified", "last_update", "updated")
"""Usual names of columns that hold the time of a row's last change."""


@dataclass(frozen=True)
class Choice:
    """One option of a decision: its value as YAML, and its meaning."""

    yaml: str
    meaning: str


@dataclass(frozen=True)
class Open:
    """A decision that needs knowledge of the data."""

    what: str
    """`key`, the name of a column, or a target."""
    why: str
    choices: tuple[Choice, ...] = ()
    column: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True)
class Proposal:
    """A proposed transfer of one table."""

    source: TableRef
    hops: tuple[TableRef, ...]
    size: TableSize
    key: str | None
    why_key: str
    keys: tuple[Choice, ...]
    """Other columns that could be the key."""
    by_blocks: bool
    """Whether the table has no suitable key, and is cut by its storage blocks instead."""
    range_rows: int
    types: Mapping[str, tuple[str, ...]]
    """The types of each column in the source and in the targets that it reaches."""
    watermark: str | None = None
    """A column that seems to hold the time of a row's last change."""
    open: tuple[Open, ...] = field(default=())


def propose(table: TableRef, hops: Sequence[TableRef], servers: Servers) -> Proposal:
    """Propose a transfer of a table to its targets, in the order of the hops. Nothing is changed.

    Raises:
        TableferryError: a server does not answer.
    """
    endpoint = servers.endpoint(table)
    source = source_of(table.system)
    columns = endpoint.columns(table)
    size = source.size(endpoint, table)
    leading = source.leading(endpoint, table)
    key, why, keys = choose_key(columns, leading, table.system)
    others = tuple(
        Choice(column.name, _description(column, leading)) for column in keys if column.name != key
    )
    by_blocks = key is None and _has_blocks(endpoint, table)
    decisions = [] if key is not None or by_blocks else [Open("key", why, others)]
    plans, refused, renames, clashes = _plans(table, columns, hops, key, servers)
    decisions += clashes
    fittings: dict[str, Fitting] = {}
    in_first_hop = [column for hop, column, _ in refused if hop == 1]
    if in_first_hop and size.bytes is not None and size.bytes <= SCANNED_BYTES:
        fittings = decimal_types(endpoint, table, in_first_hop, hops[0].system)
    for hop, column, reason in refused:
        origin = table if hop == 1 else hops[hop - 2]
        fitting = fittings.get(column.name) if hop == 1 else None
        rename = renames.pop(column.name, None)
        target = hops[hop - 1].system
        decisions.append(_open_type(column, origin.system, target, reason, fitting, rename))
    decisions += [_open_name(column, renames) for column in columns if column.name in renames]
    decisions += _target_refusals(plans, servers)
    types = {column.name: (column.type, *_target_types(column.name, plans)) for column in columns}
    watermarks = [column.name for column in columns if _is_watermark(column, table.system)]
    # an indexed column is preferred
    watermarks.sort(key=lambda name: name not in leading)
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
        next(iter(watermarks), None),
        tuple(decisions),
    )


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
        if not column.generated and _is_orderable(column, system)
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


def _has_blocks(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether a table can be cut by the blocks that store its rows."""
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
    """Plan the hops without the columns that they refuse.

    Returns:
        The plans; the refused columns, each with the hop and the reason; new names of columns
        whose names clash in a target; and a decision if a hop is refused as a whole.
    """
    plans: list[CopyPlan] = []
    refused: list[tuple[int, Column, str]] = []
    renames: dict[str, str] = {}
    source, source_columns = table, list(columns)
    for hop, target in enumerate(hops, start=1):
        types = target.system.types
        version = servers.endpoint(target).ping() if types.by_release else None
        excluded: set[str] = set()
        new_names = _distinct_names(source, source_columns, target)
        while True:
            names = [column.name for column in source_columns if column.name not in excluded]
            if not names:
                return plans, refused, renames, []
            overrides = {
                name: ColumnOverride(rename=new)
                for name, new in new_names.items()
                if name not in excluded
            }
            try:
                plan = plan_copy(
                    source,
                    source_columns,
                    target,
                    # any column will do: the key has no influence on types
                    key=key if key in names else names[0],
                    overrides=overrides,
                    exclude=excluded,
                    target_version=version,
                )
            except ColumnsRefused as error:
                first_names = {new: name for name, new in renames.items()}
                by_name = {
                    column.name: replace(column, name=first_names.get(column.name, column.name))
                    for column in source_columns
                }
                refused += [(hop, by_name[name], why) for name, why in error.problems.items()]
                excluded |= set(error.problems)
            except InputError as error:
                return plans, refused, renames, [Open(str(target), str(error))]
            else:
                break
        plans.append(plan)
        renames |= new_names
        source, source_columns = target, as_source(plan)
    return plans, refused, renames, []


def _distinct_names(
    source: TableRef, columns: Sequence[Column], target: TableRef
) -> dict[str, str]:
    """Return new names for columns whose names are equal in the target, e.g. but for case."""
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


def _open_type(
    column: Column,
    source: System,
    target: System,
    reason: str,
    fitting: Fitting | None,
    rename: str | None,
) -> Open:
    types = choices(source, column, target) if "of type" in reason else []
    if fitting:
        others = [choice for choice in types if choice[0] != fitting.type]
        types = [(fitting.type, fitting.held), *others]
    name = f"rename: {json.dumps(rename, ensure_ascii=False)}, " if rename else ""
    options = [Choice(f'{{{name}type: {{{target}: "{type_}"}}}}', held) for type_, held in types]
    why = reason.partition(": ")[2].partition(";")[0] if "of type" in reason else reason
    return Open(column.name, f"{column.type} to {target}: {why}", tuple(options), column=True)


def _target_refusals(plans: Sequence[CopyPlan], servers: Servers) -> list[Open]:
    refusals = []
    for plan in plans:
        try:
            servers.target(plan.target).require(plan, TargetOptions())
        except InputError as error:
            refusals.append(Open(str(plan.target), str(error)))
    return refusals


def _target_types(name: str, plans: Sequence[CopyPlan]) -> Iterator[str]:
    """Return the types of a column in the targets that it reaches under its name."""
    for plan in plans:
        copied = next((column for column in plan.columns if column.source.name == name), None)
        if copied is None:
            return
        yield copied.target.type


def _is_orderable(column: Column, system: System) -> bool:
    try:
        key_kind(column, system)
    except InputError:
        return False
    return True


def _is_watermark(column: Column, system: System) -> bool:
    if column.name.lower() not in CHANGED or not _is_orderable(column, system):
        return False
    return key_kind(column, system)[0] == "timestamp"


def _description(column: Column, leading: Collection[str]) -> str:
    parts = [column.type]
    if column.nullable:
        parts.append("may be NULL")
    if column.name not in leading:
        parts.append("not indexed: each range would read the whole table")
    return ", ".join(parts)
