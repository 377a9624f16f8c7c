"""A target with a plan for one small table, and a look at it past the product."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.crash_points import CRASH_AT
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.target import PostgresTarget
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.types.type_map import Column
from tests.integration.support import looking

Row = tuple[int | None, str | None]
LOW = KeyRange("integer", None, 10)
HIGH = KeyRange("integer", 10, None)
REPLACE = TargetOptions()

OLD: list[Row] = [(1, "old"), (2, "old"), (3, "old")]
NEW: list[Row] = [(2, "new"), (4, "new\t\n\\ '' 😀"), (5, ""), (6, None)]
AFTER: dict[WriteMode, list[Row]] = {
    WriteMode.REPLACE: NEW,
    WriteMode.APPEND: [*OLD, *NEW[1:]],
    WriteMode.UPSERT: [OLD[0], NEW[0], OLD[2], *NEW[1:]],
    WriteMode.SWAP: NEW,
}
"""What a target with the rows OLD shows after NEW was loaded into it."""
ELSEWHERE: list[Row] = [(10, "other range")]


class Bench:
    """A table of its own on a server; gone, with all that was made for it, at the end."""

    system: str
    schema: str
    integer = "bigint"
    """The type of the column `id`."""
    text: str
    """The type of the column `note`."""
    base = REPLACE
    """How a table is made."""
    misfit = "(id int NOT NULL, more int NOT NULL)"
    """The definition of a table that the plan does not fit."""
    locks = 0
    """The tables that hold a range, beside what is staged."""
    identity: str
    """The declaration of an identity column."""
    commit: bytes
    """What of a transaction's end is seen on the wire."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.target = self.at(url)
        self.table = TableRef(self.system, self.schema, name)
        self.plan = self.make_plan()

    def at(self, url: str) -> Any:
        """The target at another address of the server."""
        raise NotImplementedError

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """A statement's rows, past the product."""
        raise NotImplementedError

    @property
    def plain_url(self) -> str:
        """For a connection that a proxy can read along."""
        return self.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        prefix, name = staging_prefix(self.table), self.table.name
        left = [table for table in self.tables() if name in table or table.startswith(prefix)]
        for table in left:
            self.ask(f"DROP TABLE {self.named(table)}")

    def make_plan(
        self, *, nullable_key: bool = False, primary_key: tuple[str, ...] = ("id",)
    ) -> CopyPlan:
        key = column("id", self.integer, pa.int64(), nullable_key)
        text = column("note", self.text, pa.string(), True)
        source = TableRef("postgres", "public", "numbers")
        return CopyPlan(source, self.table, (key, text), key, primary_key)

    def load(
        self,
        rows: Sequence[Row],
        key_range: KeyRange = LOW,
        options: TargetOptions | None = None,
        *,
        owner: str = "run-1",
        target: Any = None,
        text: bool = False,
    ) -> None:
        with (target or self.target).attempt(
            Publication(self.plan, key_range, "v1", owner), options or self.base
        ) as load:
            if text:
                receipt = load.load_bytes(iter([tab_separated(rows[:1]), tab_separated(rows[1:])]))
            else:
                receipt = load.load_arrow([batch(rows[:1]), batch(rows[1:])])
            assert receipt.rows == load.staged_rows() == len(rows)
            load.finalise()

    def options(self, mode: WriteMode) -> TargetOptions:
        """How ranges are written by a mode."""
        return replace(self.base, mode=mode)

    def staged(self, load: Any) -> str:
        """The staging table of an attempt, quoted."""
        return self.named(load.staging.name)

    def settle(self) -> None:
        """Wait until the server tells what is made from now on from what there is by its age."""

    def named(self, table: str | None = None) -> str:
        """A table of the schema, quoted."""
        name = (table or self.table.name).replace('"', '""')
        return f'{self.schema}."{name}"'

    def rows(self, table: TableRef | None = None) -> list[tuple[Any, ...]]:
        rows = self.ask(f"SELECT * FROM {self.named((table or self.table).name)}")
        return sorted(rows, key=lambda row: (row[0] is None, row))

    def left_over(self) -> list[str]:
        """Tables of this target that should not be there after an attempt."""
        prefix = staging_prefix(self.table)
        return [name for name in self.tables() if name.startswith(prefix)]

    def tables(self) -> list[str]:
        rows = self.ask(
            f"SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = '{self.schema}'"
        )
        return [str(row[0]) for row in rows]

    def in_process_that_dies(self, point: str, work: Callable[[], None]) -> None:
        """Run in a child process that is killed when it reaches the point."""
        child = os.fork()
        if child == 0:
            try:
                os.environ[CRASH_AT] = point
                self.forked()
                work()
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 9

    def forked(self) -> None:
        """Make ready in a process that was forked."""


class SqlServerBench(Bench):
    system, schema, text = "sqlserver", "dbo", "nvarchar(40)"
    identity = "bigint IDENTITY(100, 1) NOT NULL PRIMARY KEY"
    commit = "COMMIT TRANSACTION".encode("utf-16-le")

    def at(self, url: str) -> SqlServerTarget:
        return SqlServerTarget(SqlServerResource(url=url))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return looking.ask_sqlserver(self.url, statement)

    @property
    def plain_url(self) -> str:
        return looking.unencrypted(self.url)


class PostgresBench(Bench):
    system, schema, text = "postgres", "public", "character varying(40)"
    identity = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    commit = b"COMMIT TRANSACTION"

    def at(self, url: str) -> PostgresTarget:
        return PostgresTarget(PostgresResource(url=url))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return looking.ask_postgres(self.url, statement)


class ClickHouseBench(Bench):
    system, schema, integer, text = "clickhouse", "warehouse", "Int64", "String"
    misfit = "(id Int32, more String) ENGINE = MergeTree ORDER BY id"
    locks = 1

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self.client = looking.clickhouse(url)

    def at(self, url: str) -> ClickHouseTarget:
        return ClickHouseTarget(ClickHouseResource(url=url))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        if statement.startswith("SELECT"):
            return [tuple(row) for row in self.client.query(statement).result_rows]
        self.client.command(statement + " SYNC" * statement.startswith("DROP TABLE"))
        return []

    def staged(self, load: Any) -> str:
        return self.named(load.staging)

    def settle(self) -> None:
        time.sleep(1.1)  # the catalog has the time in seconds

    def named(self, table: str | None = None) -> str:
        name = (table or self.table.name).replace("\\", "\\\\").replace("`", "\\`")
        return f"{self.schema}.`{name}`"

    def tables(self) -> list[str]:
        rows = self.ask(f"SELECT name FROM system.tables WHERE database = '{self.schema}'")
        return [str(name) for (name,) in rows]

    def forked(self) -> None:
        # its connections are the parent's
        self.target = self.at(self.url)


class ForeignBench(ClickHouseBench):
    """A table that is partitioned otherwise, as somebody else's would be."""

    base = TargetOptions(partition_by="id % 3")


TRANSACTIONAL: dict[str, type[Bench]] = {"sqlserver": SqlServerBench, "postgres": PostgresBench}
BENCHES = {**TRANSACTIONAL, "clickhouse": ClickHouseBench, "foreign": ForeignBench}


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    ids, notes = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "note": pa.array(notes, pa.string())})


def tab_separated(rows: Sequence[Row]) -> bytes:
    """Rows as ClickHouse's TabSeparated has them."""

    def cell(value: object) -> str:
        if value is None:
            return "\\N"
        return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")

    return "".join("\t".join(map(cell, row)) + "\n" for row in rows).encode()


def column(name: str, type_: str, arrow: pa.DataType, nullable: bool) -> ColumnPlan:
    return ColumnPlan(
        source=Column(name, type_, nullable=nullable),
        target=Column(name, type_, nullable=nullable),
        arrow_sql=name,
        arrow_type=arrow,
    )
