"""The types that a route moves, and the constants at their edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from tableferry.assets.planning.columns.hop_columns import as_source
from tableferry.pipelines.certifying.plain import types_of
from tableferry.pipelines.certifying.site import Site
from tableferry.resources.columns.conversions import NoConversion, conversion_of
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import release_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ColumnsRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import Kind, signed
from tableferry.resources.types.samples import REFUSED, samples
from tableferry.resources.types.type_map import Column

TYPES = "certify_types"
"""The table of all types: a column for each, and a row for each constant of the most."""


@dataclass(frozen=True)
class Edges:
    """The types of a source that are moved, and their constants."""

    sites: Sequence[Site]
    prepared: bool = False
    """Whether the table of all types is there; then its columns are those that can be moved."""

    @property
    def source(self) -> Site:
        """The site that is read."""
        return self.sites[0]

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns that are moved, with their types."""
        return {name: type_ for name, type_ in self._every.items() if type_ not in self.left_out}

    @property
    def kinds(self) -> list[Kind | None]:
        """What the values of the columns are."""
        read = self.source.endpoint.system.types.read
        return [read(type_).kind for type_ in self.columns.values()]

    @cached_property
    def _constants(self) -> dict[str, Sequence[str]]:
        return types_of(self.source.endpoint.system)

    @property
    def _every(self) -> dict[str, str]:
        return {f"c{at}": type_ for at, type_ in enumerate(self._constants, start=1)}

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Types that are not moved, with the reasons."""
        out = self._unknown()
        while True:
            columns = {name: type_ for name, type_ in self._every.items() if type_ not in out}
            try:
                self._hops(columns)
            except ColumnsRefused as error:
                out |= {columns[name]: why for name, why in error.problems.items()}
            else:
                return out

    def _unknown(self) -> dict[str, str]:
        """Return the types that this source, or a prepared table, does not have, and why."""
        if self.prepared:
            there = {column.name for column in self._there()}
            return {
                type_: "not prepared" for name, type_ in self._every.items() if name not in there
            }
        first = {type_: [*of, "NULL"][0] for type_, of in self._constants.items()}
        casts = {type_: f"CAST({literal} AS {type_})" for type_, literal in first.items()}
        return {
            type_: f"the source refuses it: {why}"
            for type_, why in self.source.refused(casts).items()
        }

    def _hops(self, types: Mapping[str, str]) -> list[CopyPlan]:
        """Plan the hops of a table of these columns.

        Raises:
            ColumnsRefused: a hop does not move some of them.
        """
        plans: list[CopyPlan] = []
        table, columns = self.source.table(TYPES), self._with_key(types)
        for site in self.sites[1:]:
            plans.append(_plan(table, columns, site))
            columns, table = as_source(plans[-1]), plans[-1].target
        return plans

    def _with_key(self, types: Mapping[str, str]) -> list[Column]:
        number = str(self.source.endpoint.system.types.default(signed(32)))
        key = Column("id", number, False, primary_key=1)
        return [key, *(Column(name, type_) for name, type_ in types.items())]

    @cached_property
    def literals(self) -> dict[str, list[str]]:
        """Constants that the source takes, and that every target holds, by type."""
        style = source_of(self.source.endpoint.system).style
        table, columns = self.source.table(TYPES), self._with_key(self.columns)
        conversions = [[*_conversions(_plan(table, columns, site))] for site in self.sites[1:]]
        held: dict[str, list[str]] = {}
        for type_, of_type in zip(
            self.columns.values(), zip(*conversions, strict=True), strict=True
        ):
            fit = {each: True for each in self._constants[type_]}
            for conversion in of_type:
                for sample in samples(style, type_, conversion) if style and conversion else ():
                    before = fit.get(sample.literal, True)
                    fit[sample.literal] = before and sample.expected != REFUSED
            casts = {each: f"CAST({each} AS {type_})" for each, fits in fit.items() if fits}
            refused = self.source.refused(casts)
            held[type_] = [literal for literal in casts if literal not in refused]
        return held

    def statements(self) -> Iterator[str]:
        """Yield the statements that make and fill the table; the last row has NULL in all."""
        table = self.source.sql(TYPES)
        yield self.source.plain.create_types(table, self.columns)
        # of columns that a target cannot have NULL in, the first value is repeated
        instead = {
            name: self.literals[type_][0]
            for plan in self._hops(self.columns)
            for (name, type_), conversion in zip(
                self.columns.items(), _conversions(plan), strict=True
            )
            if conversion and not conversion.slot.nullable
        }
        values = [self.literals[type_] for type_ in self.columns.values()]
        nulls = [None] * len(values)
        for number, row in enumerate([*zip_longest(*values), nulls], start=1):
            constants = {
                name: f"CAST({literal or instead[name]} AS {self.columns[name]})"
                for name, literal in zip(self.columns, row, strict=True)
                if literal is not None or name in instead
            }
            names = ", ".join(("id", *constants))
            of_row = ", ".join((str(number), *constants.values()))
            yield f"INSERT INTO {table} ({names}) SELECT {of_row}"

    def excluded(self) -> list[str]:
        """Return the columns of the table that are not moved."""
        names = [column.name for column in self._there()]
        return [name for name in names if name != "id" and name not in self.columns]

    def _there(self) -> Sequence[Column]:
        return self.source.endpoint.columns(self.source.table(TYPES))


def _plan(source: TableRef, columns: Sequence[Column], site: Site) -> CopyPlan:
    """Plan the copy of a table with the key `id` to a site."""
    version = release_of(site.endpoint)
    return plan_copy(source, columns, site.table(TYPES), key="id", target_version=version)


def _conversions(plan: CopyPlan) -> Iterator[Conversion | None]:
    """Yield how values of the columns behind the key are converted; None of a type that the target
    has as well."""
    for column in plan.columns[1:]:
        try:
            yield conversion_of(column, plan)
        except NoConversion:
            yield None
