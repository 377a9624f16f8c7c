"""The ground that a certification stands on: schemas, tables and transfers of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from tableferry.pipelines.certifying.commands import CommandLine
from tableferry.pipelines.certifying.edges import TYPES, Edges
from tableferry.pipelines.certifying.looking import ROWS
from tableferry.pipelines.certifying.site import Site
from tableferry.resources.contract.markers import MARKERS
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import staging_prefix

MISFIT = "certify_misfit"
"""Tables of a value that may be refused. The name of each table is also that of its transfer."""
RANGES = 4
DAMAGE = 12345
"""The amount of a row that is damaged."""


@dataclass
class Ground:
    """What a certification works on. Only what it has made itself is dropped."""

    sites: Sequence[Site]
    rows: int
    commands: CommandLine
    version: int = 1
    """The version of all rows of the source."""
    read_only: str = ""
    """Why the rows of the source stay as they are, if they do."""
    prepared: bool = False
    """Whether somebody else has made the tables of the source."""
    _made: list[Site] = field(default_factory=list)
    _before: dict[int, list[str]] = field(default_factory=dict)
    """The tables that given schemas had, by the position of the site."""

    @property
    def source(self) -> Site:
        """The site that is read."""
        return self.sites[0]

    @property
    def targets(self) -> Sequence[Site]:
        """The sites that are written to."""
        return self.sites[1:]

    @cached_property
    def edges(self) -> Edges:
        """The types that are moved; `make` has found out whether their table is there."""
        return Edges(self.sites, self.prepared)

    # what is made

    def makes(self, site: Site) -> Iterator[str]:
        """Yield the statements that make what a site needs."""
        if not site.given:
            yield site.of_schema(site.plain.create_schema)
        if site is self.source:
            yield from self._fills()

    def _fills(self) -> Iterator[str]:
        table, plain = self.source.sql(ROWS), self.source.plain
        yield plain.create_rows(table)
        yield from plain.fill_rows(table, self.rows)
        yield from self.edges.statements()

    def make(self) -> None:
        """Make the schemas, and the tables of the source unless somebody has prepared them.

        Raises:
            InputError: a login may not, which is said of all of them.
        """
        refused = []
        for site in self.sites:
            try:
                if site.given:
                    self._before[site.position] = site.tables()
                else:
                    site.execute(site.of_schema(site.plain.create_schema))
                    self._made.append(site)
            except TableferryError as error:
                refused.append(
                    f"{site.connection}: no schema can be made: {error}\n"
                    f"where the login may not, give one: --schema {site.connection}=NAME"
                )
        if refused:
            raise InputError("\n".join(refused))
        self._require_room()
        if self.prepared:
            ((rows,),) = self.source.query(f"SELECT COUNT(*) FROM {self.source.sql(ROWS)}")
            self.rows = int(rows)
            try:
                self.source.execute(self.changed(self.source, "version = version", "id = -1"))
            except TableferryError as error:
                self.read_only = str(error)
            return
        try:
            for statement in self._fills():
                self.source.execute(statement)
        except TableferryError as error:
            name = self.source.connection
            raise InputError(
                f"{name}: the tables cannot be made: {error}\n"
                "where the login may not, have somebody run what `ferry certify --dry-run` prints "
                f"for the source, and give the schema: --schema {name}=NAME"
            ) from error

    def _require_room(self) -> None:
        """Find out whether the source is prepared.

        Raises:
            InputError: a target has a table of the name of one that is to be made.
        """
        for position, tables in self._before.items():
            site = self.sites[position]
            there = [name for name in tables if name.startswith((ROWS, TYPES, MISFIT))]
            if there and position:
                raise InputError(
                    f"{site.connection}: {site.schema} has {', '.join(there)}: drop what an "
                    "earlier certification has left there, or give another schema"
                )
            self.prepared = self.prepared or bool(there)

    def drops(self, site: Site, tables: Sequence[str] = ("...",)) -> Iterator[str]:
        """Yield the statements that drop what was made, given the tables that are to go."""
        yield from (drop_table(site.table(ROWS), name) for name in tables)
        if not site.given:
            yield site.of_schema(site.plain.drop_schema)

    def drop(self) -> Iterator[str]:
        """Drop what was made; yields what could not be dropped, with the reason."""
        if self.declared:  # staging tables and views of runs that were killed last
            self.commands.ferry("clean", *self.declared, "--markers")
        for site in self.sites:
            if site not in self._made and site.position not in self._before:
                continue
            try:
                for statement in self.drops(site, [*self._to_drop(site)]):
                    site.endpoint.execute(statement)
            except TableferryError as error:
                yield f"{site.connection}: {site.schema} is left: {error}"

    def _to_drop(self, site: Site) -> Iterator[str]:
        """Yield the tables that were made: in a given schema, others may make some meanwhile."""
        transfers = [site.table(name) for name in self.declared]
        ours = (ROWS, TYPES, MISFIT, *map(staging_prefix, transfers))
        for name in site.tables():
            if name in self._before.get(site.position, ()):
                continue
            if not site.given or name.startswith(ours):
                yield name
            elif name == MARKERS:
                markers = qualified(site.table(ROWS), MARKERS)
                if site.endpoint.query(f"SELECT COUNT(*) FROM {markers}") == [(0,)]:
                    yield name

    # changes

    def changed(self, site: Site, assignment: str, condition: str) -> str:
        """Return the statement that changes some of the many rows."""
        return site.plain.update.format(
            table=site.sql(ROWS), assignment=assignment, condition=condition
        )

    def one_row(self) -> dict[str, str]:
        """Return the statements that change, delete and insert a row of the source."""
        plain, table = self.source.plain, self.source.sql(ROWS)
        return {
            "changed": self.changed(self.source, "amount = amount + 1", "id = 2"),
            "deleted": plain.delete.format(table=table, condition="id = 3"),
            "inserted": plain.insert_row(table, f"CAST({self.rows + 1} AS bigint)"),
        }

    def all_rows(self) -> str:
        """Return the statement that gives all rows of the source the next version."""
        self.version += 1
        return self.changed(self.source, f"version = {self.version}", "id > 0")

    @property
    def damaged_key(self) -> int:
        """The key of the row that is damaged in targets."""
        return self.bounds[0] + 1

    def damage(self, site: Site) -> str:
        """Return the statement that damages a row of a target."""
        return self.changed(site, f"amount = {DAMAGE}", f"id = {self.damaged_key}")

    def misfits(self) -> dict[str, list[str]]:
        """Return the statements that make tables with a value that may not fit, by their names."""
        source, made = self.source, {}
        for number, (type_, literal) in enumerate(source.plain.misfits, start=1):
            table = source.sql(name := f"{MISFIT}_{number}")
            made[name] = [source.plain.create_types(table, {"misfit": type_})] + [
                f"INSERT INTO {table} SELECT {id_}, CAST({value} AS {type_})"
                for id_, value in enumerate(("NULL", literal), start=1)
            ]
        return made

    def changes(self, site: Site) -> Iterator[str]:
        """Yield all statements that change rows of a site."""
        if site is not self.source:
            yield self.damage(site)
            return
        yield from (*self.one_row().values(), self.all_rows())
        for statements in self.misfits().values():
            yield from statements

    # transfers

    def declare(self, name: str, **settings: Any) -> None:
        """Write the transfer of a table."""
        self.commands.transfers.mkdir(exist_ok=True)
        document = {
            "transfer": name,
            "source": str(self.source.table(name)),
            "hops": [str(site.table(name)) for site in self.targets],
            "key": "id",
            **settings,
        }
        text = yaml.safe_dump(document, sort_keys=False)
        (self.commands.transfers / f"{name}.yaml").write_text(text, encoding="utf-8")

    @property
    def declared(self) -> list[str]:
        """The transfers that were declared."""
        return sorted(path.stem for path in self.commands.transfers.glob("*.yaml"))

    @cached_property
    def bounds(self) -> list[int]:
        """The keys at which the ranges of the many rows meet."""
        return [self.rows * number // RANGES + 1 for number in range(1, RANGES)]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The ranges of the many rows, by their first key and the one behind their last."""
        return [*zip([1, *self.bounds], [*self.bounds, 2**62], strict=True)]
