"""The SQL Server target over the wire: what is visible when, and what a crash leaves."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pymssql
import pytest

from resources.crash_points import CRASH_AT
from resources.errors import (
    ConnectionFailed,
    InputError,
    RangeBusy,
    ReceiptMismatch,
    SchemaDrift,
    StatementFailed,
    TableMissing,
)
from resources.keys.range import KeyRange
from resources.plan import ColumnPlan, CopyPlan, WriteMode
from resources.sqlserver.resource import SqlServerResource
from resources.sqlserver.target import SqlServerTarget
from resources.tables import Column, TableRef, staging_prefix
from resources.target import MOST_REJECTED, TargetOptions, shadow_of
from tableferry_local.stack import Stack
from tests.integration import looking
from tests.integration.proxy import LosesAnswer

pytestmark = pytest.mark.integration

Row = tuple[int | None, str | None]
LOW = KeyRange("integer", None, 10)
HIGH = KeyRange("integer", 10, None)
REPLACE = TargetOptions()
MODES: Sequence[WriteMode] = ("replace", "append", "upsert", "swap")


class Bench:
    """A target with a plan for one small table, and a look at it past the product."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.target = SqlServerTarget(SqlServerResource(url=url))
        self.connect()
        self.table = TableRef("sqlserver", "dbo", name)
        self.plan = self.make_plan()

    def connect(self) -> None:
        self.client = looking.sqlserver(self.url)

    def make_plan(
        self, *, nullable_key: bool = False, primary_key: tuple[str, ...] = ("id",)
    ) -> CopyPlan:
        key = _column("id", "bigint", pa.int64(), nullable_key)
        text = _column("note", "nvarchar(40)", pa.string(), True)
        source = TableRef("postgres", "public", "numbers")
        return CopyPlan(source, self.table, (key, text), key, primary_key)

    def load(
        self,
        rows: Sequence[Row],
        key_range: KeyRange = LOW,
        options: TargetOptions = REPLACE,
        *,
        target: SqlServerTarget | None = None,
    ) -> None:
        with (target or self.target).attempt(
            self.plan, key_range, options, owner="run-1", data_version="v1"
        ) as load:
            receipt = load.load_arrow([_batch(rows[:1]), _batch(rows[1:])])
            assert receipt.rows == load.staged_rows() == len(rows)
            load.finalise()

    def ask(self, query: str) -> list[tuple[object, ...]]:
        return looking.rows(self.client, query)

    def run(self, statement: str) -> None:
        with closing(self.client.cursor()) as cursor:
            cursor.execute(statement)

    def rows(self, table: TableRef | None = None) -> list[tuple[object, ...]]:
        name = (table or self.table).name.replace('"', '""')
        rows = self.ask(f'SELECT * FROM dbo."{name}"')
        return sorted(rows, key=lambda row: (row[0] is None, row))

    def left_over(self) -> list[str]:
        """Tables of this target that should not be there after an attempt."""
        prefix = staging_prefix(self.table)
        return [name for name in self.tables() if name.startswith(prefix)]

    def tables(self) -> list[str]:
        rows = self.ask(
            "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = 'dbo'"
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


@pytest.fixture
def bench(mssql_url: str) -> Iterator[Bench]:
    yield from _bench(mssql_url, f"t_{uuid.uuid4().hex[:8]}")


def _bench(url: str, name: str) -> Iterator[Bench]:
    bench = Bench(url, name)
    yield bench
    prefix = staging_prefix(bench.table)
    left = [table for table in bench.tables() if name in table or table.startswith(prefix)]
    for table in left:
        quoted = table.replace('"', '""')
        bench.run(f'DROP TABLE dbo."{quoted}"')
    bench.client.close()


@pytest.fixture
def own_bench(own_stack: Stack) -> Iterator[Bench]:
    """On servers that may be killed."""
    yield from _bench(own_stack.sqlserver_url, f"t_{uuid.uuid4().hex[:8]}")


def _column(name: str, type_: str, arrow: pa.DataType, nullable: bool) -> ColumnPlan:
    return ColumnPlan(
        source=Column(name, type_, nullable=nullable),
        target=Column(name, type_, nullable=nullable),
        arrow_sql=name,
        arrow_type=arrow,
    )


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    ids, notes = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "note": pa.array(notes, pa.string())})


OLD: list[Row] = [(1, "old"), (2, "old"), (3, "old")]
NEW: list[Row] = [(2, "new"), (4, "new\t\n\\ '' 😀"), (5, ""), (6, None)]
AFTER: dict[WriteMode, list[Row]] = {
    "replace": NEW,
    "append": [*OLD, *NEW[1:]],
    "upsert": [OLD[0], NEW[0], OLD[2], *NEW[1:]],
    "swap": NEW,
}
"""What a target with the rows OLD shows after NEW was loaded into it."""
ELSEWHERE: list[Row] = [(10, "other range")]


@pytest.mark.parametrize("mode", MODES)
def test_load_and_load_again(bench: Bench, mode: WriteMode) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.load(ELSEWHERE, HIGH)
    bench.target.prepare(bench.plan, options)
    for _ in range(2):
        bench.load(NEW, options=options)
        if mode == "swap":
            assert bench.rows() == [*OLD, *ELSEWHERE]
            assert bench.rows(shadow_of(bench.table)) == [*NEW, *ELSEWHERE]
    for _ in range(2):
        bench.target.promote(bench.plan, options)
    assert bench.rows() == [*AFTER[mode], *ELSEWHERE]
    assert bench.target.range_rows(bench.plan, LOW, REPLACE) == len(AFTER[mode])
    assert not bench.left_over()


@pytest.mark.parametrize("mode", MODES)
def test_killed_inside_finalise(bench: Bench, mode: WriteMode) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.target.prepare(bench.plan, options)
    bench.in_process_that_dies("inside_finalise", lambda: bench.load(NEW, options=options))
    assert bench.rows() == OLD
    assert len(bench.left_over()) == 1

    bench.load(NEW, options=options)
    bench.target.promote(bench.plan, options)
    assert bench.rows() == AFTER[mode]
    assert not bench.left_over()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_lost_acknowledgement(bench: Bench, mode: WriteMode, committed: bool) -> None:
    options = TargetOptions(mode=mode)
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.target.prepare(bench.plan, options)
    marker = "COMMIT TRANSACTION".encode("utf-16-le")
    plain = looking.unencrypted(bench.url)
    with LosesAnswer(plain, marker, deliver=committed) as proxy:
        target = SqlServerTarget(SqlServerResource(url=proxy.url))
        bench.load(NEW, options=options, target=target)
        assert proxy.lost == 1
    bench.target.promote(bench.plan, options)
    assert bench.rows() == AFTER[mode]
    assert not bench.left_over()


def test_server_killed_before_finalise(own_stack: Stack, own_bench: Bench) -> None:
    own_bench.target.prepare(own_bench.plan, REPLACE)
    own_bench.load(OLD)
    try:
        with (
            pytest.raises((ConnectionFailed, StatementFailed)) as caught,
            own_bench.target.attempt(
                own_bench.plan, LOW, REPLACE, owner="run-1", data_version="v"
            ) as load,
        ):
            load.load_arrow([_batch(NEW)])
            own_stack.kill("sqlserver")
            load.finalise()
        assert getattr(caught.value, "transient", False)
    finally:
        own_stack.restart("sqlserver")
    own_bench.connect()
    assert own_bench.rows() == OLD
    own_bench.load(NEW)
    assert own_bench.rows() == NEW
    assert not own_bench.left_over()


def test_range_taken_over_while_the_connection_was_lost(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    plain = looking.unencrypted(bench.url)
    marker = "COMMIT TRANSACTION".encode("utf-16-le")
    with LosesAnswer(plain, marker, deliver=False) as proxy:
        slow = SqlServerTarget(SqlServerResource(url=proxy.url))
        with (
            pytest.raises(RangeBusy, match="taken over"),
            slow.attempt(bench.plan, LOW, REPLACE, owner="slow", data_version="v") as load,
        ):
            load.load_arrow([_batch(OLD)])
            reconnect = load._reconnect

            def late() -> object:
                bench.load(NEW)
                return reconnect()

            load._reconnect = late  # type: ignore[method-assign,assignment]
            load.finalise()
    assert bench.rows() == NEW


def test_failed_attempt_leaves_nothing(bench: Bench) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield _batch(NEW)
        raise ValueError("the source went away")

    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    with (
        pytest.raises(ValueError, match="the source went away"),
        bench.target.attempt(bench.plan, LOW, REPLACE, owner="run-1", data_version="v") as load,
    ):
        load.load_arrow(broken())
    assert bench.rows() == OLD
    assert not bench.left_over()


def test_too_long_text_is_refused(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    with pytest.raises(StatementFailed) as caught:
        bench.load([(1, "x" * 41)])
    assert not caught.value.transient
    assert bench.rows() == OLD
    assert not bench.left_over()


def test_null_into_not_null_is_refused(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    with pytest.raises(StatementFailed, match=r"(?i)null"):
        bench.load([(None, "no key")])


def test_live_run_keeps_its_range(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.sqlserver.target.LOCK_SECONDS", 0)
    bench.target.prepare(bench.plan, REPLACE)
    with bench.target.attempt(bench.plan, LOW, REPLACE, owner="run-1", data_version="v") as load:
        load.load_arrow([_batch(OLD)])
        with (
            pytest.raises(RangeBusy, match="another run"),
            bench.target.attempt(bench.plan, LOW, REPLACE, owner="run-2", data_version="v"),
        ):
            pytest.fail("two runs hold one range")
        bench.load(ELSEWHERE, HIGH)
        load.finalise()
    assert bench.rows() == [*OLD, *ELSEWHERE]


def test_ranges_are_loaded_side_by_side(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    ranges = [KeyRange("integer", low, low + 100) for low in range(0, 400, 100)]
    failures: list[BaseException] = []

    def load(key_range: KeyRange) -> None:
        try:
            low = int(str(key_range.lower))
            for _ in range(2):
                bench.load([(number, "x") for number in range(low, low + 100)], key_range)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, args=(key_range,)) for key_range in ranges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert bench.rows() == [(number, "x") for number in range(400)]


def test_rows_that_nobody_sent_are_noticed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    with (
        pytest.raises(ReceiptMismatch, match="3 rows were sent, but 4 arrived"),
        bench.target.attempt(bench.plan, LOW, REPLACE, owner="run-1", data_version="v") as load,
    ):
        load.load_arrow([_batch(OLD)])
        bench.run(f"INSERT INTO dbo.{load.staging.name} (id) VALUES (7)")
        load.finalise()
    assert bench.rows() == []


def test_rows_of_another_range_are_noticed(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(ELSEWHERE, HIGH)
    with pytest.raises(ReceiptMismatch, match="rolled back"):
        bench.load([(1, "mine"), (11, "not mine")])
    assert bench.rows() == ELSEWHERE


def test_empty_range_empties_itself_only(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    bench.load(ELSEWHERE, HIGH)
    bench.load([])
    assert bench.rows() == ELSEWHERE


def test_null_keys_are_a_range_of_their_own(bench: Bench) -> None:
    bench.plan = bench.make_plan(nullable_key=True, primary_key=())
    bench.target.prepare(bench.plan, REPLACE)
    null = KeyRange("integer", null=True)
    bench.load(OLD)
    bench.load([(None, "a"), (None, "b")], null)
    bench.load([(None, "c")], null)
    assert bench.rows() == [*OLD, (None, "c")]


def test_text_keys_differ_by_case_and_trailing_blanks(bench: Bench) -> None:
    bench.plan = bench.make_plan(primary_key=("id", "note"))
    upsert = TargetOptions(mode="upsert")
    bench.target.prepare(bench.plan, upsert)
    rows: list[Row] = [(1, "A"), (1, "a"), (1, "a ")]
    bench.load(rows[:2], options=upsert)
    bench.load(rows[1:], options=upsert)
    assert sorted(bench.rows()) == rows


def test_identity_column_of_an_existing_table(bench: Bench) -> None:
    bench.run(
        f"CREATE TABLE dbo.{bench.table.name} "
        "(id bigint IDENTITY(100, 1) NOT NULL PRIMARY KEY, note nvarchar(40) NULL)"
    )
    assert bench.target.prepare(bench.plan, REPLACE) == []
    bench.load(OLD)
    assert bench.rows() == OLD


def test_swap_interrupted_goes_on_with_its_shadow(bench: Bench) -> None:
    swap = TargetOptions(mode="swap")
    bench.target.prepare(bench.plan, swap)
    bench.load(OLD, options=swap)
    bench.target.prepare(bench.plan, swap)  # the next run
    assert bench.target.clean(bench.table) == []
    bench.load(ELSEWHERE, HIGH, swap)
    assert bench.rows() == []
    bench.target.promote(bench.plan, swap)
    assert bench.rows() == [*OLD, *ELSEWHERE]
    assert [name for name in bench.tables() if bench.table.name in name] == [bench.table.name]


def test_clean_spares_the_living(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.in_process_that_dies("inside_finalise", lambda: bench.load(OLD))
    with bench.target.attempt(bench.plan, HIGH, REPLACE, owner="living", data_version="v") as load:
        load.load_arrow([_batch(ELSEWHERE)])
        assert len(bench.target.clean(bench.table)) == 1
        load.finalise()
    assert bench.target.clean(bench.table) == []
    assert bench.rows() == ELSEWHERE


def test_existing_table_is_verified(bench: Bench) -> None:
    bench.run(f"CREATE TABLE dbo.{bench.table.name} (id int NOT NULL, more int NOT NULL)")
    with pytest.raises(SchemaDrift, match=r"'id'.*int.*'note' \(nvarchar\(40\)\) is missing"):
        bench.target.prepare(bench.plan, REPLACE)


def test_column_that_nobody_fills(bench: Bench) -> None:
    bench.run(
        f"CREATE TABLE dbo.{bench.table.name} "
        "(id bigint NOT NULL, note nvarchar(40) NULL, more int NOT NULL, less int NULL)"
    )
    with pytest.raises(SchemaDrift, match="must not be NULL: 'more'"):
        bench.target.prepare(bench.plan, REPLACE)
    bench.run(f"ALTER TABLE dbo.{bench.table.name} DROP COLUMN more")
    (note,) = bench.target.prepare(bench.plan, REPLACE)
    assert "'less'" in note
    with pytest.raises(InputError, match="swap would lose"):
        bench.target.prepare(bench.plan, TargetOptions(mode="swap"))


@pytest.mark.parametrize("name", ["select", "with space", "quote]'\"[", "Žluť.ý 😀"])
def test_any_name(mssql_url: str, name: str) -> None:
    name = f"{name} {uuid.uuid4().hex[:8]}"
    for bench in _bench(mssql_url, name):
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        bench.load(NEW)
        assert bench.rows() == NEW


def test_schema_is_created(bench: Bench) -> None:
    schema = f"s_{uuid.uuid4().hex[:8]}"
    bench.plan = replace(bench.plan, target=replace(bench.table, schema=schema))
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(OLD)
    assert bench.ask(f"SELECT COUNT_BIG(*) FROM {schema}.{bench.table.name}") == [(3,)]
    bench.run(f"DROP TABLE {schema}.{bench.table.name}")
    bench.run(f"DROP SCHEMA {schema}")


DECLARED = {
    "int": ("int", "int"),
    "n": ("nvarchar(17)", "nvarchar(17)"),
    "v": ("varchar(max)", "varchar(max)"),
    "c": ("nchar(3)", "nchar(3)"),
    "d": ("decimal(38,10)", "decimal(38,10)"),
    "m": ("money", "money"),
    "t": ("datetime2(3)", "datetime2(3)"),
    "o": ("datetimeoffset(7)", "datetimeoffset(7)"),
    "time": ("time(0)", "time(0)"),
    "u": ("uniqueidentifier", "uniqueidentifier"),
    "b": ("varbinary(8)", "varbinary(8)"),
    "f": ("float", "float"),
    "r": ("real", "real"),
    "x": ("xml", "xml"),
}


def test_columns_as_declared(bench: Bench, second_digits: int) -> None:
    lines = ", ".join(f"[{name}] {declared} NULL" for name, (declared, _) in DECLARED.items())
    bench.run(
        f"CREATE TABLE dbo.{bench.table.name} ({lines}, a int NOT NULL, z int IDENTITY NOT NULL, "
        "twice AS a * 2, PRIMARY KEY (z, a))"
    )
    columns = {column.name: column for column in bench.target.resource.columns(bench.table)}
    assert {name: columns[name].type for name in DECLARED} == {
        name: expected.replace("(7)", f"({second_digits})")
        for name, (_, expected) in DECLARED.items()
    }
    assert all(columns[name].nullable for name in DECLARED)
    assert (columns["z"].identity, columns["z"].primary_key, columns["z"].nullable) == (
        True,
        1,
        False,
    )
    assert (columns["a"].primary_key, columns["twice"].generated) == (2, True)
    assert not columns["a"].generated


def test_missing_table(bench: Bench) -> None:
    with pytest.raises(TableMissing, match="does not exist"):
        bench.target.resource.columns(bench.table)


def test_wrong_password(mssql_url: str) -> None:
    resource = SqlServerResource(url=mssql_url, password="wrong}; password")
    settings = resource.settings()
    with contextlib.suppress(pymssql.Error):
        pymssql.connect(
            settings.host, settings.user, "wrong", settings.database, port=settings.port
        ).close()
        pytest.skip("the server lets this user in with any password")
    user = re.escape(str(settings.user))
    with pytest.raises(ConnectionFailed, match=f"login of user '{user}' refused") as caught:
        resource.ping()
    assert "wrong" not in str(caught.value)


def test_nobody_listens() -> None:
    resource = SqlServerResource(url="mssql://reader:secret@127.0.0.1:1/db?encrypt=no")
    with pytest.raises(ConnectionFailed, match=r"sqlserver at 127\.0\.0\.1:1") as caught:
        resource.ping()
    assert "secret" not in str(caught.value)


def test_certificate_is_verified_unless_said_otherwise(mssql_url: str) -> None:
    resource = SqlServerResource(url=mssql_url, trust_server_certificate=False)
    with pytest.raises(ConnectionFailed, match="certificate"):
        resource.ping()


def test_read_arrow_streams_and_translates(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(NEW)
    resource = bench.target.resource
    query = f"SELECT id, note FROM dbo.{bench.table.name} ORDER BY id"
    with resource.read_arrow(query, batch_rows=3) as reader:
        batches = list(reader)
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert pa.Table.from_batches(batches).to_pydict() == {
        "id": [row[0] for row in NEW],
        "note": [row[1] for row in NEW],
    }
    with (
        pytest.raises(StatementFailed, match="nowhere"),
        resource.read_arrow("SELECT * FROM dbo.nowhere") as reader,
    ):
        reader.read_all()


def test_only_some_rejected_staging_tables_are_kept(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    ranges = [KeyRange("integer", low, low + 1) for low in range(MOST_REJECTED + 2)]
    for key_range in ranges:
        row = [(key_range.lower, "rejected")]
        with bench.target.attempt(
            bench.plan, key_range, REPLACE, owner="run-1", data_version="v1"
        ) as load:
            load.load_arrow([_batch(row)])
            load.audited_table()
            kept = load.keep_rejected()
        assert bench.rows(kept) == row, "the newest is there"
        assert bench.target.rejected_table(bench.plan, key_range) == kept
    assert len(bench.left_over()) == MOST_REJECTED
    assert bench.rows() == []

    assert bench.target.clean(bench.table, rejected=False) == []
    assert len(bench.target.clean(bench.table)) == MOST_REJECTED
    assert bench.left_over() == []
