"""Proposes a transfer of a table from the catalog: key, ranges, types and decisions to review."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tableferry.assets.planning.columns.hop_columns import as_source
from tableferry.pipelines.onboarding.catalogs import Catalogs
from tableferry.resources.columns.advice import choices
from tableferry.resources.columns.key_kind import is_text_key, key_kind
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.columns.scan import ArraysHeld, Fitting, arrays_held, decimal_types
from tableferry.resources.contract.catalog import Described, TableSize
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import ColumnsRefused, InputError, NamesClash
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Array, Decimal

USUAL_ROWS = 250_000
RANGE_BYTES = 64 << 20
"""Aimed-at size of a range in the source: seconds of work, and little to repeat."""
FEWEST_ROWS, MOST_ROWS = 10_000, 1_000_000
COMFORTABLE_RANGES = 400
"""Aimed-at maximum of ranges per table; see `assets.planning.ranges.boundaries.MAX_RANGES`."""
SCANNED_BYTES = 1 << 30
"""Maximum size of tables that are read once to count the digits of unconstrained decimals."""
CHANGED = ("updated_at", "modified_at", "changed_at", "last_modified", "last_update", "updated")
"""Usual names of columns that hold the time of a row's last change."""


@dataclass(frozen=True)
class Option:
    """One option of a decision: a key column, or what `columns:` says about a column."""

    value: Any
    meaning: str


@dataclass(frozen=True)
class ColumnDecision:
    """A column that needed a decision; the proposal takes the first choice."""

    column: str
    why: str
    """The same for columns alike, so that a summary can group them."""
    choices: tuple[Option, ...] = ()
    """Without any, the column is left out."""

    @property
    def taken(self) -> str:
        """Say what the proposal does about the column."""
        if not self.choices:
            return "left out by `exclude`"
        first = self.choices[0]
        types = first.value.get("type", {}).values()
        return f"taken as {', '.join(types)}: {first.meaning}" if types else first.meaning


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
        Option(column.name, _description(column, leading))
        for column in keys
        if column.name != key
        # NULLs are a range of their own
        if key is None or not column.nullable or column.name in leading
    )
    if key is None:
        _require_blocks(described, why, others)
    planning = _Planning(table, described, hops, key, catalogs)
    plans = planning.plans()
    for plan in plans:
        catalogs.target(plan.target).require(plan, TargetOptions())
    place = None if source.place is None else source.place.column.name
    decisions = planning.decisions()
    types = {column.name: (column.type, *_target_types(column.name, plans)) for column in columns}
    watermarks = [column.name for column in columns if _is_watermark(column, table.system)]
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
                *(ColumnDecision(name, _NO_SELECT) for name in unreadable or ()),
            )
            if decision.column != place
        ),
    )


_NO_SELECT = "this login may not read it (SELECT)"


def _readable(described: Described, unreadable: Collection[str]) -> Described:
    """Leave out what a login does not see that may read some columns of a table only."""
    readable = [column for column in described.columns if column.name not in unreadable]
    if any(column.primary_key for column in described.columns if column.name in unreadable):
        readable = [replace(column, primary_key=None) for column in readable]
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


class _Planning:
    """Plans the hops of a table, with a decision about each column that a target refuses."""

    def __init__(
        self,
        table: TableRef,
        described: Described,
        hops: Sequence[TableRef],
        key: str | None,
        catalogs: Catalogs,
    ) -> None:
        self._table, self._described, self._hops = table, described, hops
        self._catalogs = catalogs
        self._columns = list(described.columns)
        self._renames: dict[str, str] = {}
        self._misnamed: dict[str, str] = {}
        """The reason of each column that is renamed."""
        self._options: dict[tuple[str, str], list[Option]] = {}
        """By column and target system: the type that is planned with, and those left to try."""
        self._excluded: dict[str, str] = {}
        """The reason of each column that is left out."""
        self._reasons: dict[tuple[str, str], str] = {}
        self._fittings: dict[str, dict[str, Fitting]] = {}
        self._held: Mapping[str, ArraysHeld] | None = None
        place = source_of(table.system).place
        if key is None and place is not None:
            # as `assets.planning.columns.hop_columns` has them
            plain = [replace(column, primary_key=None) for column in self._columns]
            self._columns = [place.column, *plain]
            key, self._renames[place.column.name] = place.column.name, place.name
        self._key = str(key)

    def plans(self) -> list[CopyPlan]:
        """Plan all hops, anew after each decision, as it may concern the hops before.

        Raises:
            InputError: a hop is refused as a whole.
        """
        while True:
            plans: list[CopyPlan] = []
            source, columns = self._table, self._columns
            for number, target in enumerate(self._hops, start=1):
                try:
                    plan = self._plan(number, source, columns, target)
                except NamesClash as error:
                    self._rename(error)
                    break
                except ColumnsRefused as error:
                    self._decide(number, source, columns, target, error.problems)
                    break
                plans.append(plan)
                source, columns = target, as_source(plan)
            else:
                if not self._decide_arrays(plans):
                    return plans

    def decisions(self) -> list[ColumnDecision]:
        """Return the decisions in the order of the columns."""
        return [
            decision for column in self._columns if (decision := self._decision(column)) is not None
        ]

    def _decision(self, column: Column) -> ColumnDecision | None:
        name = column.name
        if name in self._excluded:
            return ColumnDecision(name, self._excluded[name])
        rename = {"rename": self._renames[name]} if name in self._renames else {}
        systems = [system for of, system in self._options if of == name]
        if not systems:
            meaning = f"renamed to {rename.get('rename')} in all targets"
            why = self._misnamed.get(name, "")
            return ColumnDecision(name, why, (Option(rename, meaning),)) if rename else None
        *before, last = systems
        types = {system: self._options[name, system][0].value for system in before}
        options = tuple(
            Option({**rename, "type": {**types, last: choice.value}}, choice.meaning)
            for choice in self._options[name, last]
        )
        reasons = [self._reasons[name, system] for system in systems]
        if name in self._misnamed:
            reasons.insert(0, self._misnamed[name])
        return ColumnDecision(name, "; ".join(reasons), options)

    def _plan(
        self, number: int, source: TableRef, columns: Sequence[Column], target: TableRef
    ) -> CopyPlan:
        here = self._names(number)
        overrides = {}
        for name in {*self._renames, *(name for name, _ in self._options)} - {*self._excluded}:
            types = self._options.get((name, target.system.name), ())
            overrides[here.get(name, name)] = ColumnOverride(
                rename=self._renames.get(name) if number == 1 else None,
                type=types[0].value if types else None,
            )
        return plan_copy(
            source,
            columns,
            target,
            key=here.get(self._key, self._key),
            overrides=overrides,
            exclude=self._excluded if number == 1 else (),
            target_version=self._catalogs.release(target),
        )

    def _names(self, number: int) -> Mapping[str, str]:
        """The names that renamed columns have in a hop's source, by their first names."""
        return {} if number == 1 else self._renames

    def _rename(self, error: NamesClash) -> None:
        first_names = {new: name for name, new in self._renames.items()}
        for name, new in error.renames.items():
            first = first_names.get(name, name)
            self._renames[first] = new
            self._misnamed.setdefault(first, f"its name {error.reasons[name]}")

    def _decide(
        self,
        number: int,
        source: TableRef,
        columns: Sequence[Column],
        target: TableRef,
        problems: Mapping[str, str],
    ) -> None:
        """Take the next type for each refused column; leave it out if there is none."""
        first_names = {name: first for first, name in self._names(number).items()}
        refused = {column.name: column for column in columns if column.name in problems}
        for name, column in refused.items():
            first = first_names.get(name, name)
            if first == self._key:
                raise InputError(f"the key {problems[name]}")
            place = (first, target.system.name)
            if place in self._options:
                options = self._options[place][1:]
            else:
                reason = problems[name]
                typed = "of type" in reason
                why = reason.partition(": ")[2].partition(";")[0] if typed else reason
                self._reasons[place] = f"{column.type} to {target.system}: {why}"
                fitting = self._fitting(first, target.system)
                options = list(_types(source.system, column, target.system, fitting)) * typed
            if options:
                self._options[place] = options
            else:
                self._excluded[first] = self._reasons[place]
                self._options = {at: one for at, one in self._options.items() if at[0] != first}

    def _decide_arrays(self, plans: Sequence[CopyPlan]) -> bool:
        """Choose types for arrays that a target's arrays may not hold; return if there are any."""
        decided = False
        for number, plan in enumerate(plans, start=1):
            first_names = {name: first for first, name in self._names(number).items()}
            target = plan.target.system
            for column in plan.columns:
                name = first_names.get(column.source.name, column.source.name)
                if (name, target.name) in self._options or not _is_array_again(plan, column):
                    continue
                held, type_ = self._arrays_held().get(name), column.target.type
                never_null = _is_never_null(plan, column)
                unfit = held is not None and (held.unlike or (held.null and never_null))
                if not unfit and not never_null:
                    continue
                array = Option(type_, "a value that cannot be one is refused by name")
                text = Option(target.types.text, "JSON of the items")
                fits = held is not None and not unfit
                self._options[name, target.name] = [array, text] if fits else [text, array]
                self._reasons[name, target.name] = (
                    f"{column.source.type} to {target}: {type_} has "
                    f"{'no NULL, and ' * never_null}one dimension"
                    f"{', unlike values now' * unfit}{', as all values now' * fits}"
                )
                decided = True
        return decided

    def _arrays_held(self) -> Mapping[str, ArraysHeld]:
        """What the arrays of a small table hold; its values are looked at once."""
        if self._held is None:
            system = self._table.system
            arrays = [column for column in self._columns if _is_array(system, column.type)]
            self._held = {}
            if arrays and self._is_small:
                endpoint = self._catalogs.endpoint(self._table)
                self._held = arrays_held(endpoint, self._table, arrays)
        return self._held

    @property
    def _is_small(self) -> bool:
        """Whether the table may be read once to look at its values."""
        stored = self._described.size.bytes
        return stored is not None and stored <= SCANNED_BYTES

    def _fitting(self, name: str, target: System) -> Fitting | None:
        """Scan a small table, once per target system, for the digits of its decimals."""
        column = next(column for column in self._columns if column.name == name)
        if not isinstance(self._table.system.types.read(column.type).kind, Decimal):
            return None
        if target.name not in self._fittings and self._is_small:
            endpoint = self._catalogs.endpoint(self._table)
            self._fittings[target.name] = decimal_types(
                endpoint, self._table, self._columns, target
            )
        return self._fittings.get(target.name, {}).get(name)


def _types(
    source: System, column: Column, target: System, fitting: Fitting | None
) -> Iterator[Option]:
    """The types that a column without a default could have, the most faithful first."""
    options = [Option(*choice) for choice in choices(source, column, target)]
    if fitting is None:
        yield from options
        return
    if fitting.type is None:
        options.sort(key=lambda option: option.value != target.types.text)
        yield from options
        return
    fits = Option(fitting.type, fitting.held)
    others = [option for option in options if option.value != fitting.type]
    if fitting.not_numbers:
        others.sort(key=lambda option: option.value != target.types.text)
        yield from (*others[:1], fits, *others[1:])
    elif others and _holds(target, others[0].value, fitting.type):
        yield from (others[0], fits, *others[1:])
    else:
        yield from (fits, *others)


def _holds(system: System, roomy: str, tight: str) -> bool:
    """Whether a decimal type holds all values of another one."""
    kinds = system.types.read(roomy).kind, system.types.read(tight).kind
    match kinds:
        case Decimal(int() as most, int() as scale), Decimal(int() as digits, int() as needed):
            return scale >= needed and most - scale >= digits - needed
    return False


def _is_array(system: System, type_: str) -> bool:
    return isinstance(system.types.read(type_).kind, Array)


def _is_array_again(plan: CopyPlan, column: ColumnPlan) -> bool:
    """Whether the values of an array are read, and written as an array of another system."""
    source, target = plan.source.system, plan.target.system
    arrays = _is_array(source, column.source.type) and _is_array(target, column.target.type)
    return arrays and source != target


def _is_never_null(plan: CopyPlan, column: ColumnPlan) -> bool:
    """Whether a nullable column becomes one of a type that cannot be NULL."""
    types = plan.target.system.types
    slot = types.slot(types.plain(column.target.type), plan.target_version)
    return column.source.nullable and slot is not None and not slot.nullable


def _target_types(name: str, plans: Sequence[CopyPlan]) -> Iterator[str]:
    """Return the types of a column in the targets that it reaches, under whatever name."""
    for plan in plans:
        copied = next((column for column in plan.columns if column.source.name == name), None)
        if copied is None:
            return
        yield copied.target.type
        name = copied.target.name


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
