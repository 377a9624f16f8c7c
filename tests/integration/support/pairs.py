"""Every pair of systems, and a table of one copied into the other as a hop does it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tableferry.checks.comparing.pairing import ComparisonScope, pair
from tableferry.checks.comparing.tables import TableComparison, compare_tables
from tableferry.checks.levels import Level
from tableferry.checks.reconcile import reconcile_all
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Verdict
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan, Format
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.loader import WIRES, formats_between
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.source import columns_of_rows, source_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import RangeLoad, Target
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, TypeRefused
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.target import FilesTarget
from tableferry.resources.files.types import FILE
from tableferry.resources.keys.range import ROW, KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.target import PostgresTarget
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tests.servers import Servers

PAIRS = [
    (source, target)
    for source in ("postgres", "sqlserver", "clickhouse", "files")
    for target in ("postgres", "sqlserver", "clickhouse", "files")
    if (source, target) != ("files", "files")
]
"""What goes from a folder into a folder is refused."""

TEXT = {
    "postgres": "text",
    "sqlserver": "nvarchar(max)",
    "clickhouse": "String",
    "files": "VARCHAR",
}

OPTIONS = TargetOptions()


@dataclass(frozen=True)
class Place:
    """A server, or the folder of folders, and where in it the tables of a test are."""

    endpoint: Endpoint
    loader: Target
    schema: str = ""

    def table(self, name: str) -> TableRef:
        if self.endpoint.system_name == "files":
            return TableRef("files", name, "*.parquet")
        return TableRef(self.endpoint.system_name, self.schema, name)

    def drop(self, table: TableRef) -> None:
        if self.endpoint.system_name == "files":
            for path in self.paths(table):
                path.unlink()
        else:
            self.endpoint.execute(f"DROP TABLE IF EXISTS {qualified(table)}")

    def paths(self, table: TableRef) -> list[Path]:
        """The files of a folder."""
        assert isinstance(self.endpoint, FilesResource)
        return list((self.endpoint.root / table.schema).glob(table.name))


def places(servers: Servers, folder: Path) -> dict[str, Place]:
    """One for every system."""
    postgres = PostgresResource(url=servers.postgres_url)
    sqlserver = SqlServerResource(url=servers.sqlserver_url)
    clickhouse = ClickHouseResource(url=servers.clickhouse_url)
    files = FilesResource(url=f"file://{folder}")
    return {
        "postgres": Place(postgres, PostgresTarget(postgres), "public"),
        "sqlserver": Place(sqlserver, SqlServerTarget(sqlserver), "dbo"),
        "clickhouse": Place(clickhouse, ClickHouseTarget(clickhouse), "warehouse"),
        "files": Place(files, FilesTarget(files)),
    }


@dataclass
class Hop:
    """One table copied into another."""

    plan: CopyPlan
    source: Place
    target: Place

    @property
    def name(self) -> str:
        return f"{self.plan.source.system} -> {self.plan.target.system}"

    def compared(self, key: Sequence[str] = ()) -> TableComparison:
        """Compare both tables as if nothing was known of the move; a query in the place of the
        source where its server describes queries."""
        source = self.plan.source
        found = self.source.endpoint.columns(source)
        exclude = {*self.plan.excluded} - {FILE, ROW}
        with suppress(InputError):
            query = replace(source, query=f"SELECT * FROM {qualified(source)}")
            found, source = columns_of_rows(self.source.endpoint, query), query
        pairing = pair(
            source,
            found,
            self.plan.target,
            self.target.endpoint.columns(self.plan.target),
            ComparisonScope(key=key, exclude=exclude),
        )
        return compare_tables(pairing, self.source.endpoint, self.target.endpoint)

    def both(self, *ranges: KeyRange) -> Comparison:
        """Both sides of some ranges."""
        return Comparison(self.plan, self.source.endpoint, self.target.endpoint, ranges)

    def move(self, key_range: KeyRange) -> None:
        """By record batches, or what only the two servers read if some types need that."""
        if all(one.arrow_sql for one in self.plan.columns):
            with self.source.endpoint.read_arrow(self.plan.select(key_range, "arrow")) as reader:
                self.load(key_range, (conform(batch, self.plan, {}) for batch in reader))
            return
        (format, *_) = formats_between(self.plan.source, self.plan.target)
        sending = source_of(self.plan.source.system)
        sql = self.plan.select(key_range, WIRES[format])
        with (
            sending.read_bytes(self.source.endpoint, self.plan, sql, format) as chunks,
            self._attempt(key_range, format) as attempt,
        ):
            attempt.load_bytes(chunks)
            attempt.finalise()

    def load(self, key_range: KeyRange, batches: Iterator[pa.RecordBatch]) -> None:
        with self._attempt(key_range) as attempt:
            attempt.load_arrow(batches, schema(self.plan))
            attempt.finalise()

    def _attempt(
        self, key_range: KeyRange, format: Format | None = None
    ) -> AbstractContextManager[RangeLoad]:
        publication = Publication(self.plan, key_range, "1", "test", format=format)
        return self.target.loader.attempt(publication, OPTIONS)

    def verdicts(self, level: Level, ranges: Sequence[KeyRange]) -> dict[str, Verdict]:
        """The level's, by range."""
        return reconcile_all(self.both(*ranges), level)


def hop(
    source: Place, table: TableRef, target: Place, name: str, *, without: Collection[str] = ()
) -> Hop:
    """Plan a hop into a new table.

    Args:
        source: where the rows are.
        table: their table, with the key `id`.
        target: where they go to.
        name: of the table there.
        without: columns to leave out where the source has texts only.

    Arrays that have no form there travel as texts.
    """
    columns = source.endpoint.columns(table)
    exclude = {FILE, ROW} & {one.name for one in columns}
    if table.system_name == "clickhouse":
        exclude |= set(without)
    there = target.table(name)
    try:
        plan = plan_copy(table, columns, there, key="id", exclude=exclude)
    except TypeRefused as refused:
        types = {one.name: one.type for one in columns}
        assert all("Array(" in types[one] or "[]" in types[one] for one in refused.problems)
        text = ColumnOverride(type=TEXT[target.endpoint.system_name])
        overrides = dict.fromkeys(refused.problems, text)
        plan = plan_copy(table, columns, there, key="id", overrides=overrides, exclude=exclude)
    target.drop(there)
    target.loader.prepare(plan, OPTIONS)
    return Hop(plan, source, target)


@contextmanager
def graph(
    servers: Servers,
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    name: str,
    create: str,
    *,
    without: Collection[str] = (),
) -> Iterator[dict[tuple[str, str], Hop]]:
    """The hops of some pairs, in the order in which rows get from one to the next.

    The rows begin in a table of PostgreSQL; each other system has them from there first.

    Args:
        servers: where they are.
        folder: for files.
        pairs: source and target.
        name: of the tables: the first's, and what those of the others begin with.
        create: the columns of the first one, with their types, after `id`.
        without: columns that have no way out of ClickHouse.
    """
    found = places(servers, folder)
    postgres = found["postgres"]
    sources = {"postgres": postgres.table(name)}
    hops: dict[tuple[str, str], Hop] = {}
    postgres.drop(sources["postgres"])
    postgres.endpoint.execute(
        f"CREATE TABLE {qualified(sources['postgres'])} (id integer, {create})"
    )
    try:
        for pair in sorted(pairs, key=lambda pair: pair[0] != "postgres"):
            source, target = pair
            hops[pair] = hop(
                found[source],
                sources[source],
                found[target],
                f"{name}_{source}_{target}",
                without=without,
            )
            if source == "postgres" != target:
                sources[target] = hops[pair].plan.target
                if target == "files":
                    # a folder has columns when a file is in it
                    hops[pair].move(KeyRange("integer", null=True))
        yield hops
    finally:
        for one in hops.values():
            one.target.drop(one.plan.target)
        postgres.drop(sources["postgres"])
