"""Plans the columns of all hops of a proposed transfer, and the decisions that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tableferry.assets.planning.columns.hop_columns import as_source
from tableferry.assets.planning.servers import Servers
from tableferry.resources.columns.advice import choices
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.columns.scan import ArraysHeld, Fitting, arrays_held, decimal_types
from tableferry.resources.contract.catalog import Described
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import Endpoint, release_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import ColumnsRefused, InputError, NamesClash, TableferryError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.kinds import Array, Decimal, Kind
from tableferry.resources.types.type_map import Column


class Catalogs:
    """The catalog of the source and those of the targets, for the tables that are selected.

    The number of queries does not grow with the tables.
    """

    def __init__(self, servers: Servers, tables: Mapping[TableRef, Sequence[TableRef]]) -> None:
        """Read the catalogs.

        Args:
            servers: the servers of all connections.
            tables: the targets of each selected table; all tables are of one connection.
        """
        self._servers = servers.looking_ahead(
            target for targets in tables.values() for target in targets
        )
        self._described: Mapping[TableRef, Described | TableferryError] = {}
        if tables:
            first = next(iter(tables))
            source = source_of(first.system)
            self._described = source.described(servers.endpoint(first), list(tables))

    def described(self, table: TableRef) -> Described:
        """Return what the source's catalog says about a table.

        Raises:
            TableferryError: why it says nothing.
        """
        described = self._described[table]
        if isinstance(described, TableferryError):
            raise described
        return described

    def endpoint(self, table: TableRef) -> Endpoint:
        """Return the server of a table."""
        return self._servers.endpoint(table)

    def target(self, table: TableRef) -> Target:
        """Return the loader of a target's server."""
        return self._servers.target(table)

    def release(self, table: TableRef) -> str | None:
        """Return the version of a target's server if its types depend on it."""
        return release_of(self._servers.endpoint(table))


SCANNED_BYTES = 1 << 30
"""Maximum size of tables that are read once to count the digits of unconstrained decimals."""


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


class HopPlanning:
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
                array = Option(type_, "a value that cannot be one is refused")
                text = Option(target.types.text, "JSON of the items")
                fits = held is not None and not unfit
                self._options[name, target.name] = [array, text] if fits else [text, array]
                now = "; some values are others" * unfit or "; all values now are such" * fits
                self._reasons[name, target.name] = (
                    f"{column.source.type} to {target}: {type_} takes arrays of one dimension"
                    f"{' that are not NULL' * never_null}{now}"
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
        if not isinstance(_item(self._table.system, column.type), Decimal):
            return None
        held = self._arrays_held().get(name)
        if held is not None and (held.null or held.unlike):
            return Fitting(None, not_numbers=False)
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
    match _item(system, roomy), _item(system, tight):
        case Decimal(int() as most, int() as scale), Decimal(int() as digits, int() as needed):
            return scale >= needed and most - scale >= digits - needed
    return False


def _item(system: System, type_: str) -> Kind | None:
    """The kind of a type, or of an array's items."""
    kind = system.types.read(type_).kind
    return kind.item if isinstance(kind, Array) else kind


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


def target_types(name: str, plans: Sequence[CopyPlan]) -> Iterator[str]:
    """Return the types of a column in the targets that it reaches, under whatever name."""
    for plan in plans:
        copied = next((column for column in plan.columns if column.source.name == name), None)
        if copied is None:
            return
        yield copied.target.type
        name = copied.target.name
