"""A target with a plan for one small table, and a look at it past the product."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.crash_points import CRASH_AT
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.target import PostgresTarget
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.types.column import Column
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
    text: str
    """The type of the column `note`."""
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
        key = _column("id", "bigint", pa.int64(), nullable_key)
        text = _column("note", self.text, pa.string(), True)
        source = TableRef("postgres", "public", "numbers")
        return CopyPlan(source, self.table, (key, text), key, primary_key)

    def load(
        self,
        rows: Sequence[Row],
        key_range: KeyRange = LOW,
        options: TargetOptions = REPLACE,
        *,
        target: Any = None,
    ) -> None:
        with (target or self.target).attempt(
            Publication(self.plan, key_range, "v1", "run-1"), options
        ) as load:
            receipt = load.load_arrow([batch(rows[:1]), batch(rows[1:])])
            assert receipt.rows == load.staged_rows() == len(rows)
            load.finalise()

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
                work()
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 9


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


BENCHES: dict[str, type[Bench]] = {"sqlserver": SqlServerBench, "postgres": PostgresBench}


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    ids, notes = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "note": pa.array(notes, pa.string())})


def _column(name: str, type_: str, arrow: pa.DataType, nullable: bool) -> ColumnPlan:
    return ColumnPlan(
        source=Column(name, type_, nullable=nullable),
        target=Column(name, type_, nullable=nullable),
        arrow_sql=name,
        arrow_type=arrow,
    )
