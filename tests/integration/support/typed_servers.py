"""One typed column through the product, filled and read back without it."""

from __future__ import annotations

import contextlib
import re
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tableferry.resources.artifacts import artifact_folder, workspace
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.types import declared_type
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delimited import Framing, framed_rows
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import ValueRefused
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.ddl import STATEMENTS as PG_STATEMENTS
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.target import copy_in
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.bcp import load_files, read_tab_separated
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import STATEMENTS
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import bulk_copy
from tableferry.resources.tables import TableRef
from tests.integration.support import looking

REFUSED = object()
"""In the place of what arrives: nothing does."""

EVERYTHING = KeyRange("integer")
SHORT_CALENDAR = "26.7"
"""The ClickHouse release to plan for, if it is not the real one."""


@dataclass
class Case:
    """One source type: which values to send, and what must arrive."""

    type: str
    values: st.SearchStrategy[Any]
    literal: Callable[[Any], str] = str
    """The value in the source's SQL, or in COPY's text for PostgreSQL."""
    expected: Callable[[Any], object] = str
    """What the target must show, or REFUSED."""
    read_back: str = "toString({})"
    """The target's expression; `{}` is the column."""
    normal: Callable[[Any], object] = lambda value: value
    """Makes what was read comparable with what is expected."""
    wires: tuple[str, ...] = ("arrow", "text")
    examples: tuple[Any, ...] = ()
    override: tuple[tuple[str, str], ...] = ()
    long_calendar: bool = False

    @property
    def name(self) -> str:
        """For the test's id."""
        return " -> ".join([self.type, *dict(self.override).values()]) + " long" * (
            self.long_calendar
        )


class PostgresEnd:
    """A source table `t (id, x)`, in a schema of its own."""

    def __init__(self, url: str) -> None:
        self.schema = f"typed_{uuid.uuid4().hex[:8]}"
        self.table = TableRef("postgres", self.schema, "t")
        self.resource = PostgresResource(url=url)
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self.connection.execute("SET client_min_messages = error; SET timezone = 'UTC'")
        self.connection.execute(f"CREATE SCHEMA {self.schema}")

    def into(self, wire: str) -> TableRef:
        """What a wire format fills."""
        return replace(self.table, name=f"t_{wire}")

    def load(self, plan: CopyPlan, batches: list[pa.RecordBatch]) -> None:
        """Into a new table."""
        self.connection.execute(f"DROP TABLE IF EXISTS {qualified(plan.target)}".encode())
        for statement in PG_STATEMENTS.create_staging(plan, plan.target):
            self.connection.execute(statement.encode())
        receipt = copy_in(self.resource, plan, plan.target, batches)
        assert receipt.rows == sum(batch.num_rows for batch in batches)

    def read(self, table: TableRef, expression: str) -> list[Any]:
        """In the order of the ids."""
        sql = f"SELECT {expression.format('x')} FROM {qualified(table)} ORDER BY id"
        return [row[0] for row in self.connection.execute(sql.encode())]

    def fill(self, type_: str, literals: Sequence[str | None]) -> None:
        """Ids from 1 on, in that order on disk; skips what is only in a newer PostgreSQL."""
        self.connection.execute(f"DROP TABLE IF EXISTS {self.schema}.t")
        try:
            self.connection.execute(f"CREATE TABLE {self.schema}.t (id int PRIMARY KEY, x {type_})")
            with (
                self.connection.cursor() as cursor,
                cursor.copy(f"COPY {self.schema}.t FROM STDIN") as copy,
            ):
                for number, literal in enumerate(literals, start=1):
                    copy.write_row((number, literal))
        except (
            psycopg.errors.InvalidParameterValue,
            psycopg.errors.IntervalFieldOverflow,
        ) as error:
            if self.connection.info.server_version >= 150000:
                raise
            pytest.skip(f"not before PostgreSQL 15: {error}")

    def close(self) -> None:
        """Drop all that was made."""
        self.connection.execute(f"DROP SCHEMA {self.schema} CASCADE")
        self.connection.close()


class SqlServerEnd:
    """A table `(id, x)` of its own, as source and as target."""

    def __init__(self, url: str) -> None:
        self.resource = SqlServerResource(url=url)
        self.second_digits = looking.second_digits(url)
        self.table = TableRef("sqlserver", "dbo", f"typed_{uuid.uuid4().hex[:8]}")

    @cached_property
    def seventh_digit(self) -> bool:
        """Whether times have seven decimals; on Babelfish they have six."""
        return bool(
            self.resource.query("SELECT DATEPART(nanosecond, CAST('00:00:00.0000001' AS time(7)))")[
                0
            ][0]
        )

    def held(self, type_: str, value: Any) -> Any:
        """The value as far as a column can hold it here."""
        if isinstance(value, str) and type_.endswith("(7)") and not self.seventh_digit:
            return re.sub(r"(\.\d{6})\d$", r"\g<1>0", value)
        return value

    def into(self, wire: str) -> TableRef:
        """What a wire format fills."""
        return replace(self.table, name=f"{self.table.name}_{wire}")

    def fill(self, type_: str, literals: Sequence[str | None]) -> None:
        """Ids from 1 on; the literals are T-SQL."""
        statements = [
            f"DROP TABLE IF EXISTS {qualified(self.table)}",
            f"CREATE TABLE {qualified(self.table)} (id int NOT NULL PRIMARY KEY, x {type_} NULL)",
        ]
        for start in range(0, len(literals), 100):
            rows = ", ".join(
                f"({number}, {'NULL' if literal is None else literal})"
                for number, literal in enumerate(literals[start : start + 100], start=start + 1)
            )
            statements.append(f"INSERT INTO {qualified(self.table)} (id, x) VALUES {rows}")
        with self.resource.pooled_connection() as connection:
            for statement in statements:
                connection.execute(statement)

    def load(self, plan: CopyPlan, batches: list[pa.RecordBatch]) -> None:
        """A new table of the plan's target, bulk copied into."""
        with self.resource.pooled_connection() as connection:
            self._stage(connection, plan)
            receipt = bulk_copy(self.resource, connection, plan, plan.target, batches)
            assert receipt.rows == sum(batch.num_rows for batch in batches)

    def _stage(self, connection: SqlServerConnection, plan: CopyPlan) -> None:
        connection.execute(STATEMENTS.drop_staging(plan.target))
        for statement in STATEMENTS.create_staging(plan, plan.target):
            connection.execute(statement)

    def load_text(self, plan: CopyPlan, source: PostgresEnd) -> None:
        """A new table of the plan's target, filled by bcp."""
        framing = Framing.fresh()
        folder = artifact_folder()
        with self.resource.pooled_connection() as connection, workspace(folder) as files:
            self._stage(connection, plan)
            sql = framing.in_query(plan.select(EVERYTHING, "text"))
            with source.resource.read_arrow(sql) as batches:
                rows = framed_rows(batches, framing, len(plan.columns))
                load_files(self.resource, connection, plan, plan.target, rows, framing, files)

    def read(self, table: TableRef, expression: str) -> list[Any]:
        """By ODBC, in the order of the ids."""
        sql = f"SELECT {expression.format('x')} FROM {qualified(table)} ORDER BY id"
        return [row[0] for row in self.resource.query(sql)]

    def drop(self, table: TableRef) -> None:
        """Drop what `load` has made."""
        self.resource.execute(STATEMENTS.drop_staging(table))

    def close(self) -> None:
        """Drop all that was made."""
        self.resource.execute(f"DROP TABLE IF EXISTS {qualified(self.table)}")
        for staged in (self.into("arrow"), self.into("text")):
            self.drop(staged)


MADE = re.compile(r"^((?:CREATE|DROP) TABLE (?:IF EXISTS )?\S+)")
ON_ALL_REPLICAS = {"select_sequential_consistency": "1", "alter_sync": "2"}


class ClickHouseEnd:
    """A target, filled by the product's resource and read over plain HTTP."""

    def __init__(self, url: str) -> None:
        self.resource = ClickHouseResource(url=url)
        parts = urllib.parse.urlsplit(url)
        self.database = parts.path.strip("/") or "default"
        self.name = f"typed_{uuid.uuid4().hex[:8]}"
        self.cluster = dict(urllib.parse.parse_qsl(parts.query)).get("cluster", "")
        self.http = f"http://{parts.hostname}:{parts.port}/"
        self.login = {
            "X-ClickHouse-User": parts.username or "default",
            "X-ClickHouse-Key": urllib.parse.unquote(parts.password or ""),
        }
        if self.cluster:
            count = f"SELECT count() FROM system.clusters WHERE cluster = '{self.cluster}'"
            settings = {**ON_ALL_REPLICAS, "insert_quorum": self.query(count).strip()}
            self.http += f"?{urllib.parse.urlencode(settings)}"

    def into(self, wire: str) -> TableRef:
        """What a wire format fills."""
        return TableRef("clickhouse", self.database, f"{self.name}_{wire}")

    @property
    def table(self) -> TableRef:
        """The source."""
        return self.into("source")

    def fill(self, type_: str, literals: Sequence[str | None]) -> None:
        """Ids from 1 on; the literals are ClickHouse's SQL."""
        table = qualified(self.table)
        self.query(f"DROP TABLE IF EXISTS {table}")
        self.query(f"CREATE TABLE {table} (id Int32, x {type_}) ENGINE = MergeTree ORDER BY id")
        rows = ", ".join(
            f"({number}, {'NULL' if literal is None else literal})"
            for number, literal in enumerate(literals, start=1)
        )
        if rows:
            self.query(f"INSERT INTO {table} VALUES {rows}")

    def query(self, sql: str) -> str:
        """Without any driver; on a cluster, tables are made on all replicas."""
        if self.cluster and sql.startswith(("CREATE TABLE", "DROP TABLE")):
            sql = MADE.sub(rf"\1 ON CLUSTER {self.cluster}", sql, count=1)
            sql = sql.replace("ENGINE = ", "ENGINE = Replicated", 1)
        request = urllib.request.Request(self.http, sql.encode(), self.login)
        try:
            with urllib.request.urlopen(request) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def create(self, plan: CopyPlan) -> None:
        """A new table of the plan's target columns."""
        columns = ", ".join(
            f"{system('clickhouse').quote(column.name)} {declared_type(column)}"
            for column in plan.target_columns
        )
        self.query(f"DROP TABLE IF EXISTS {qualified(plan.target)}")
        self.query(
            f"CREATE TABLE {qualified(plan.target)} ({columns}) ENGINE = MergeTree ORDER BY tuple()"
        )

    def load(self, plan: CopyPlan, batches: list[pa.RecordBatch]) -> None:
        """Into a new table."""
        self.create(plan)
        names = [column.name for column in plan.target_columns]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema(plan)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.resource.insert(plan.target, names, [sink.getvalue().to_pybytes()], "ArrowStream")

    def read(self, table: TableRef, expression: str) -> list[str | None]:
        """As text, in the order of the ids."""
        answer = self.query(
            f"SELECT isNull(x), {expression.format('x')} FROM {qualified(table)} "
            "ORDER BY id FORMAT TSVRaw"
        )
        rows = [line.split("\t", 1) for line in answer.split("\n")[:-1]]
        return [None if null == "1" else value for null, value in rows]

    def drop(self, table: TableRef) -> None:
        """Drop what `load` has made."""
        self.query(f"DROP TABLE IF EXISTS {qualified(table)}")

    def close(self) -> None:
        """Drop all that was made."""
        for wire in ("arrow", "text", "source"):
            self.drop(self.into(wire))


Source = PostgresEnd | SqlServerEnd | ClickHouseEnd
Target = SqlServerEnd | ClickHouseEnd | PostgresEnd


def end(kind: type[Source], url: str) -> Callable[..., Any]:
    """Make the fixture of a module's source or target.

    Args:
        kind: the end's class.
        url: the fixture of its server's URL.
    """

    @pytest.fixture(scope="module")
    def made(request: pytest.FixtureRequest) -> Iterator[Source]:
        made = kind(request.getfixturevalue(url))
        yield made
        made.close()

    return made


def move(source: Source, target: Target, case: Case, wire: str) -> list[Any]:
    """Plan, export, convert and load; what the target shows then."""
    table = target.into(wire)
    plan = plan_copy(
        source.table,
        source.resource.columns(source.table),
        table,
        key="id",
        overrides={"x": ColumnOverride(**dict(case.override))},  # type: ignore[arg-type]
        target_version=target.resource.ping() if case.long_calendar else SHORT_CALENDAR,
    )
    if wire == "text":
        assert all(column.text_sql for column in plan.columns)
        if isinstance(target, SqlServerEnd):
            assert isinstance(source, PostgresEnd)
            target.load_text(plan, source)
            return target.read(table, case.read_back)
        assert isinstance(target, ClickHouseEnd)
        target.create(plan)
        names = [column.name for column in plan.target_columns]
        if isinstance(source, SqlServerEnd):
            stream = read_tab_separated(source.resource, plan, plan.select(EVERYTHING, "text"))
        else:
            assert isinstance(source, PostgresEnd)
            stream = source.resource.read_text(plan.select(EVERYTHING, "text"))
        with stream as chunks:
            target.resource.insert(table, names, chunks, "TabSeparated")
    else:
        with source.resource.read_arrow(plan.select(EVERYTHING, "arrow")) as batches:
            conformed = [conform(batch, plan, {}) for batch in batches]
        target.load(plan, conformed)
    return target.read(table, case.read_back)


def check(source: Source, target: Target, case: Case, values: Sequence[Any]) -> None:
    """Every value of a table arrives exactly, or the first that cannot is refused."""
    if isinstance(source, SqlServerEnd):
        values = [source.held(case.type, value) for value in values]
    literals = [None if value is None else case.literal(value) for value in values]
    expected = [None if value is None else case.expected(value) for value in values]
    refused = [number for number, value in enumerate(expected, start=1) if value is REFUSED]
    source.fill(case.type, literals)
    for wire in case.wires:
        raises = pytest.raises(ValueRefused) if refused else contextlib.nullcontext()
        with raises as caught:
            got = move(source, target, case, wire)
        if caught is not None:
            error = caught.value
            assert (error.table, error.column) == (str(source.table), "x")
            assert int(str(error.key)) == refused[0]
        else:
            assert [None if value is None else case.normal(value) for value in got] == expected


def offered(case: Case, digits: int) -> Case:
    """The case for a SQL Server that keeps so many digits of a second."""
    if "(7)" not in case.type or digits == 7:
        return case

    def cut(value: str) -> str:
        return value[: digits - 7]

    examples = tuple(cut(value) for value in case.examples)
    return replace(case, values=case.values.map(cut), examples=examples)


def check_all(source: Source, target: Target, case: Case, max_examples: int = 6) -> None:
    """The case's named examples, then generated tables."""
    if isinstance(source, SqlServerEnd):
        case = offered(case, source.second_digits)
    taken = [value for value in case.examples if case.expected(value) is not REFUSED]
    check(source, target, case, [*taken, None])
    for value in case.examples:
        if case.expected(value) is REFUSED:
            check(source, target, case, [None, value])

    @settings(
        max_examples=max_examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.none() | case.values, max_size=50))
    def generated(values: list[Any]) -> None:
        check(source, target, case, values)

    generated()
