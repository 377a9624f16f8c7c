"""The types that a route moves, and the constants at their edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from tableferry.assets.planning.columns.hop_columns import as_source
from tableferry.pipelines.certifying.site import Site
from tableferry.resources.columns.conversions import NoConversion, conversion_of
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import release_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ColumnsRefused, TableferryError
from tableferry.resources.types.column import Column
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.kinds import Kind, signed
from tableferry.resources.types.samples import REFUSED, samples

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

    @property
    def _every(self) -> dict[str, str]:
        return {f"c{at}": type_ for at, type_ in enumerate(self.source.plain.types, start=1)}

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Types that are not moved, with the reasons."""
        out = dict(self._unknown())
        while True:
            columns = {name: type_ for name, type_ in self._every.items() if type_ not in out}
            try:
                for _ in self._hops(columns):
                    pass
            except ColumnsRefused as error:
                out |= {columns[name]: why for name, why in error.problems.items()}
            else:
                return out

    def _unknown(self) -> Iterator[tuple[str, str]]:
        """Yield the types that this source, or a prepared table, does not have."""
        endpoint, every = self.source.endpoint, self._every
        if self.prepared:
            there = {column.name for column in endpoint.columns(self.source.table(TYPES))}
            yield from ((every[name], "not prepared") for name in every if name not in there)
            return
        constants = {
            type_: f"CAST({[*self.source.plain.types[type_], 'NULL'][0]} AS {type_}) AS {name}"
            for name, type_ in every.items()
        }
        with suppress(TableferryError):
            endpoint.query(f"SELECT {', '.join(constants.values())}")
            return
        for type_, sql in constants.items():
            try:
                endpoint.query(f"SELECT {sql}")
            except TableferryError as error:
                yield type_, f"the source refuses it: {error}"

    def _hops(self, types: Mapping[str, str]) -> Iterator[CopyPlan]:
        """Plan the hops of a table of these columns.

        Raises:
            ColumnsRefused: a hop does not move some of them.
        """
        table, columns = self.source.table(TYPES), self._with_key(types)
        for site in self.sites[1:]:
            version = release_of(site.endpoint)
            plan = plan_copy(table, columns, site.table(TYPES), key="id", target_version=version)
            yield plan
            columns, table = as_source(plan), plan.target

    def _with_key(self, types: Mapping[str, str]) -> list[Column]:
        number = str(self.source.endpoint.system.types.default(signed(32)))
        key = Column("id", number, False, primary_key=1)
        return [key, *(Column(name, type_) for name, type_ in types.items())]

    @cached_property
    def _sampled(self) -> dict[str, dict[str, bool]]:
        """Constants of the type maps by type, and whether all targets hold them."""
        style = source_of(self.source.endpoint.system).style
        sampled: dict[str, dict[str, bool]] = {type_: {} for type_ in self.columns.values()}
        table, columns = self.source.table(TYPES), self._with_key(self.columns)
        for site in self.sites[1:] if style else ():
            assert style is not None
            version = release_of(site.endpoint)
            plan = plan_copy(table, columns, site.table(TYPES), key="id", target_version=version)
            for column, type_ in zip(plan.columns[1:], self.columns.values(), strict=True):
                conversion = _conversion(column, plan)
                for sample in samples(style, type_, conversion) if conversion else ():
                    fits = sample.expected != REFUSED
                    sampled[type_][sample.literal] = fits and sampled[type_].get(
                        sample.literal, True
                    )
        return sampled

    @cached_property
    def literals(self) -> dict[str, list[str]]:
        """Constants that every target holds, by type."""
        held: dict[str, list[str]] = {}
        for type_, sampled in self._sampled.items():
            fit = [literal for literal, fits in sampled.items() if fits]
            every = [*dict.fromkeys((*self.source.plain.types[type_], *fit))]
            held[type_] = self._accepted(type_, every)
        return held

    @property
    def _never_null(self) -> set[str]:
        """The columns that some target has no NULL for, such as arrays in ClickHouse."""
        return {
            name
            for plan in self._hops(self.columns)
            for name, column in zip(self.columns, plan.columns[1:], strict=True)
            if (conversion := _conversion(column, plan)) and not conversion.slot.nullable
        }

    @property
    def misfits(self) -> Iterator[tuple[str, str]]:
        """Types with a constant that some target does not hold, as far as is known."""
        for type_, sampled in self._sampled.items():
            yield from ((type_, literal) for literal, fits in sampled.items() if not fits)
        yield from self.source.plain.misfits

    def _accepted(self, type_: str, literals: Sequence[str]) -> list[str]:
        """Return the constants that the source takes for values of a type, such as `money`."""
        casts = [f"CAST({literal} AS {type_}) AS c{at}" for at, literal in enumerate(literals)]
        try:
            if casts:
                self.source.endpoint.query(f"SELECT {', '.join(casts)}")
        except TableferryError:
            if not literals[1:]:
                return []
            return [each for literal in literals for each in self._accepted(type_, [literal])]
        return [*literals]

    def statements(self) -> Iterator[str]:
        """Yield the statements that make and fill the table; the last row has NULL in all."""
        table, plain = self.source.sql(TYPES), self.source.plain
        columns = [f"{name} {type_}{plain.null}" for name, type_ in self.columns.items()]
        yield plain.create_types.format(table=table, columns=", ".join(columns))
        values = [self.literals[type_] for type_ in self.columns.values()]
        nulls = [None] * len(values)
        # of columns that a target cannot have NULL in, the first value is repeated
        instead = {name: self.literals[self.columns[name]][0] for name in self._never_null}
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
        there = [column.name for column in self.source.endpoint.columns(self.source.table(TYPES))]
        return [name for name in there if name != "id" and name not in self.columns]


def _conversion(column: ColumnPlan, plan: CopyPlan) -> Conversion | None:
    """Return how values of a column are converted; None of a type that the target has as well."""
    with suppress(NoConversion):
        return conversion_of(column, plan)
    return None
