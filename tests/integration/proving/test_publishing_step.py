"""What a target does to rows as they are published: found, named, and never shown unproven."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest
from click.testing import CliRunner

from tableferry.assets.running.progress import Progress
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one.dry_run import dry_run
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import ShownDiffers, require_publishable
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import Mark, TargetOptions, WriteMode, Written
from tableferry.resources.errors import InputError, ReceiptMismatch, RowsReferredTo, StatementFailed
from tableferry.resources.postgres.ddl import STATEMENTS as POSTGRES
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry_local import postgres as local_postgres
from tests.integration.conftest import Ferry, by_range
from tests.integration.support import looking
from tests.integration.support.target_bench import (
    AFTER,
    HIGH,
    LOW,
    NEW,
    OLD,
    REPLACE,
    TRANSACTIONAL,
    Bench,
)
from tests.servers import SQLSERVER, Servers, named, shared_stack

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.50 FROM generate_series(1, 300) g",
)
RANGES = "{bounds: [101, 201]}"
MODES = (WriteMode.APPEND, WriteMode.REPLACE, WriteMode.UPSERT)
SECOND = "0000000101..0000000201"
SELECT = "SELECT id, name, amount::text FROM {t} ORDER BY id"


class Behind:
    """Makes what a target does by itself: on the SQL Server stand-in, in the PostgreSQL behind it.

    Args:
        bench: whose table it is about.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.is_standin = bench.system == "sqlserver" and not named(SQLSERVER)
        self.table = f'"tableferry.dbo"."{bench.table.name}"' if self.is_standin else bench.named()
        self.child = f'{self.table[:-1]}_child"'

    def ask(self, *statements: str) -> None:
        if self.is_standin:
            url = shared_stack().postgres_url.rpartition("/")[0]
            looking.ask_postgres(f"{url}/{local_postgres.SQLSERVER_DATABASE}", *statements)
        else:
            for one in statements:
                self.bench.ask(one)

    @property
    def is_sqlserver(self) -> bool:
        return self.bench.system == "sqlserver" and not self.is_standin

    @property
    def named_child(self) -> str:
        return self.bench.named(f"{self.bench.table.name}_child")

    def trigger(self, name: str, statement: str) -> None:
        """Does something whenever rows are inserted; `{t}` is the table."""
        name, does = self.own(name), statement.format(t=self.table)
        if self.is_sqlserver:
            self.ask(f"CREATE TRIGGER dbo.{name} ON {self.table} AFTER INSERT AS {does}")
            return
        schema = self.table.rpartition(".")[0]
        self.ask(
            f"CREATE FUNCTION {schema}.{name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {does}; RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER INSERT ON {self.table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {schema}.{name}()",
        )

    def own(self, name: str) -> str:
        """A trigger's name that no other table of the schema has."""
        return f"{name}_{self.bench.table.name}"

    def drop_trigger(self, name: str) -> None:
        name = self.own(name)
        if self.is_sqlserver:
            self.ask(f"DROP TRIGGER dbo.{name}")
        else:
            self.ask(f"DROP FUNCTION {self.table.rpartition('.')[0]}.{name}() CASCADE")

    def child_of(self, action: str) -> str:
        """A table with a row that refers to row 2; the constraint's name."""
        self.bench.ask(f"CREATE TABLE {self.named_child} (ref bigint)")
        self.bench.ask(f"INSERT INTO {self.named_child} VALUES (2)")
        name = f"fk_{uuid.uuid4().hex[:8]}"
        self.ask(
            f"ALTER TABLE {self.child} ADD CONSTRAINT {name} FOREIGN KEY (ref) "
            f"REFERENCES {self.table} (id) {action}"
        )
        return name

    def children(self) -> list[tuple[object, ...]]:
        return self.bench.ask(f"SELECT ref FROM {self.named_child}")

    def drop_child(self) -> None:
        self.bench.ask(f"DROP TABLE {self.named_child}")


@pytest.fixture(params=TRANSACTIONAL)
def bench(request: pytest.FixtureRequest, stack: Servers) -> Iterator[Bench]:
    url = getattr(stack, f"{request.param}_url")
    with TRANSACTIONAL[request.param](url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        yield bench


def planned(bench: Bench, mode: WriteMode = WriteMode.REPLACE) -> TargetOptions:
    """How a planned hop writes: it knows the hazards of its table."""
    options = TargetOptions(mode=mode)
    return replace(
        options, hazards=tuple(bench.target.hazards(bench.plan, options, bench.plan.target_columns))
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_trigger_that_changes_rows_has_nothing_published(bench: Bench, mode: WriteMode) -> None:
    behind = Behind(bench)
    assert not planned(bench, mode).audits_shown, "a table of its own costs nothing"
    behind.trigger("mangle", "UPDATE {t} SET note = 'mangled' WHERE id = 4")
    options = planned(bench, mode)
    (hazard,) = options.hazards
    assert hazard.effect == "changes" and "mangle" in hazard.name and hazard.remedy
    with pytest.raises(ShownDiffers, match=r"mangle") as raised:
        bench.load(NEW, options=options)
    assert "rolled back" in str(raised.value)
    assert mode == "upsert" or "in column 'note'" in str(raised.value)
    assert bench.rows() == OLD
    behind.drop_trigger("mangle")

    behind.trigger("harmless", "UPDATE {t} SET note = note WHERE id = 4")
    bench.load(NEW, options=planned(bench, mode))
    assert bench.rows() == AFTER[mode]
    behind.drop_trigger("harmless")
    bench.load(NEW, options=TargetOptions(mode=mode, publish_audit="visible"))
    assert bench.rows() == AFTER[mode]
    assert not bench.left_over()


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_a_trigger_newer_than_the_plan_deletes_are_missed(
    bench: Bench, mode: WriteMode
) -> None:
    behind, options = Behind(bench), planned(bench, mode)
    behind.trigger("newer", "DELETE FROM {t} WHERE id = 4")
    # PostgreSQL is asked for triggers at each range
    with pytest.raises((ReceiptMismatch, ShownDiffers)):
        bench.load(NEW, options=options)
    if mode == "replace":
        assert bench.rows() == OLD
    behind.drop_trigger("newer")


def test_what_a_newer_trigger_defers_to_the_commit_is_rolled_back(stack: Servers) -> None:
    with TRANSACTIONAL["postgres"](stack.postgres_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        options, own = planned(bench), f"public.late_{bench.table.name}"
        bench.ask(
            f"CREATE FUNCTION {own}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN DELETE FROM {bench.named()} WHERE id = 4; RETURN NULL; END $$"
        )
        bench.ask(
            f"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {bench.named()} "
            f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {own}()"
        )
        with pytest.raises(ShownDiffers, match="late"):
            bench.load(NEW, options=options)
        assert bench.rows() == OLD
        bench.ask(f"DROP FUNCTION {own}() CASCADE")


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL"])
def test_rows_that_refer_to_a_range_are_not_changed_by_replacing_it(
    bench: Bench, action: str
) -> None:
    behind = Behind(bench)
    constraint = behind.child_of(action)
    try:
        with pytest.raises(
            InputError, match=rf"(?s){constraint}.*{action}.*write: upsert"
        ) as found:
            bench.load(NEW, options=planned(bench))
        assert f"{bench.table.name}_child" in str(found.value)
        assert behind.children() == [(2,)] and bench.rows() == OLD
        bench.load(NEW, options=planned(bench, WriteMode.UPSERT))
        assert behind.children() == [(2,)] and bench.rows() == AFTER[WriteMode.UPSERT]
        with pytest.raises(InputError, match=constraint):
            bench.target.retire(bench.plan, [LOW], [], planned(bench))
        with pytest.raises(InputError, match=rf"{constraint}.*a swap drops"):
            require_publishable(bench.table, planned(bench, WriteMode.SWAP).hazards)
        bench.ask(f"DELETE FROM {behind.named_child}")
        bench.ask(f"DELETE FROM {bench.named()}")
        bench.load(NEW, options=planned(bench))
        assert bench.rows() == NEW, "a range without rows has none to replace"
    finally:
        behind.drop_child()


class Unproven(Delta):
    """A delta that nobody compares."""

    def prove(self, reader: Endpoint, table: TableRef) -> int:
        return 0


def delete(bench: Bench, *conditions: str, rows: int = 1, mark: Mark | None = None) -> None:
    """Publish a delta of rows to delete, some per condition."""
    delta = Unproven(deleted=rows * len(conditions), delete=conditions)
    options = replace(planned(bench), single_rows=Written.of(delta, mark), mark=mark)
    publication = Publication(bench.plan, LOW, "v1", "run-1", delta=delta)
    with bench.target.attempt(publication, options) as load:
        load.finalise()


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL"])
def test_only_a_row_that_others_refer_to_is_not_deleted_by_itself(
    bench: Bench, action: str
) -> None:
    behind = Behind(bench)
    constraint = behind.child_of(action)
    try:
        delete(bench, "id = 1")
        assert bench.rows() == OLD[1:] and behind.children() == [(2,)]
        told = rf"the row with id '2' .*{bench.table.name}_child that refer to it by {constraint}"
        with pytest.raises(RowsReferredTo, match=rf"{told}.*write: upsert"):
            delete(bench, "id = 3", "id = 2")
        assert bench.rows() == OLD[1:] and behind.children() == [(2,)]
    finally:
        behind.drop_child()


def test_a_row_that_others_refer_to_may_be_marked(bench: Bench) -> None:
    behind = Behind(bench)
    behind.child_of("ON DELETE CASCADE")
    try:
        bench.ask(f"ALTER TABLE {bench.named()} ADD gone int")
        mark = Mark(Column("gone", "integer"), flag=True)
        delete(bench, "id = 2", mark=mark)
        assert bench.ask(f"SELECT id FROM {bench.named()} WHERE gone = 1") == [(2,)]
        assert behind.children() == [(2,)]
    finally:
        behind.drop_child()


def test_rows_refer_by_several_columns_or_to_each_other(bench: Bench) -> None:
    """SQL Server has no cascade from a table to itself."""
    behind, child = Behind(bench), f"{bench.table.name}_child"
    bench.ask(f"CREATE TABLE {behind.named_child} (ref bigint, note {bench.text})")
    bench.ask(f"INSERT INTO {behind.named_child} VALUES (2, 'old'), (3, NULL)")
    behind.ask(
        f"ALTER TABLE {behind.table} ADD UNIQUE (id, note)",
        f"ALTER TABLE {behind.child} ADD FOREIGN KEY (ref, note) "
        f"REFERENCES {behind.table} (id, note) ON DELETE CASCADE",
    )
    try:
        with pytest.raises(RowsReferredTo, match=rf"the row with id '2' .*{child}"):
            delete(bench, "id = 2")
        if bench.system == "postgres":
            behind.ask(
                f"ALTER TABLE {behind.table} ADD above bigint "
                f"REFERENCES {behind.table} (id) ON DELETE CASCADE",
                f"UPDATE {behind.table} SET above = 1 WHERE id IN (1, 3)",
            )
            with pytest.raises(RowsReferredTo, match=r"the row with id '1' .*above"):
                delete(bench, "id = 1")
        delete(bench, "id IN (1, 3)", rows=2)
        assert [row[0] for row in bench.rows()] == [2]
        assert sorted(behind.children()) == [(2,), (3,)]
    finally:
        behind.drop_child()


def test_what_comes_to_refer_to_a_row_is_waited_for(stack: Servers) -> None:
    with TRANSACTIONAL["postgres"](stack.postgres_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        bench.target.prepare(bench.plan, REPLACE)
        bench.load(OLD)
        behind = Behind(bench)
        constraint = behind.child_of("ON DELETE CASCADE")
        try:
            with psycopg.connect(bench.url) as other, ThreadPoolExecutor(1) as pool:
                other.execute(f"INSERT INTO {behind.child} VALUES (1)".encode())
                deleted = pool.submit(delete, bench, "id = 1")
                waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
                for _ in range(200):
                    if bench.ask(waiting):
                        break
                    time.sleep(0.1)
                other.commit()
                with pytest.raises(RowsReferredTo, match=constraint):
                    deleted.result()
            assert sorted(behind.children()) == [(1,), (2,)] and bench.rows() == OLD
        finally:
            behind.drop_child()


def test_the_server_says_what_keeps_rows_from_being_replaced(bench: Bench) -> None:
    behind = Behind(bench)
    constraint = behind.child_of("")
    try:
        options = planned(bench)
        assert not options.hazards
        with pytest.raises(StatementFailed, match=constraint):
            bench.load([(4, "new")], options=options)
        assert bench.rows() == OLD
        bench.load(NEW, options=planned(bench, WriteMode.UPSERT))
        assert bench.rows() == AFTER[WriteMode.UPSERT]
    finally:
        behind.drop_child()


ELSEWHERE = {
    "updates": ("UPDATE {t} SET note = 'mangled' WHERE id = 12", "rows of other ranges"),
    "deletes": ("DELETE FROM {t} WHERE id = 12", "rows"),
    "updates in a subtransaction": (
        "BEGIN UPDATE {t} SET note = 'mangled' WHERE id = 12; "
        "EXCEPTION WHEN division_by_zero THEN NULL; END",
        "rows of other ranges",
    ),
}


@pytest.mark.parametrize("does", ELSEWHERE)
def test_a_trigger_that_writes_to_other_ranges_has_nothing_published(
    bench: Bench, does: str
) -> None:
    behind, (statement, says) = Behind(bench), ELSEWHERE[does]
    if "EXCEPTION" in statement and behind.is_sqlserver:
        pytest.skip("T-SQL has savepoints instead")
    bench.load([(12, "other")], HIGH)
    behind.trigger("elsewhere", statement)
    try:
        for mode in MODES[1:]:
            with pytest.raises(ShownDiffers, match=rf"{says}.*elsewhere"):
                bench.load(NEW, options=planned(bench, mode))
        assert bench.rows() == [*OLD, (12, "other")]
    finally:
        behind.drop_trigger("elsewhere")


def test_rows_are_told_from_those_of_transactions_that_began_later(stack: Servers) -> None:
    """A snapshot shows those that have ended, and its own transaction is not in its list."""
    table = TableRef("postgres", "public", f"made_{uuid.uuid4().hex[:8]}")
    mangle = f"UPDATE {table.name} SET note = 'mangled' WHERE id = "
    elsewhere = POSTGRES.count_new_elsewhere(table, "id < 10")
    with (
        psycopg.connect(stack.postgres_url, autocommit=True) as other,
        psycopg.connect(stack.postgres_url) as own,
    ):
        other.execute(f"CREATE TABLE {table.name} (id int, note text)".encode())
        try:
            other.execute(f"INSERT INTO {table.name} SELECT generate_series(1, 20)".encode())
            own.execute(f"{mangle} 1".encode())
            own.execute(f"{mangle} 12".encode())
            with own.transaction():
                own.execute(f"{mangle} 13".encode())
            for _ in range(3):
                other.execute(f"{mangle} 14".encode())
            assert own.execute(elsewhere.encode()).fetchall() == [(2,)]
            with own.transaction():
                own.execute(f"{mangle} 15".encode())
            assert own.execute(elsewhere.encode()).fetchall() == [(3,)]
        finally:
            own.rollback()
            other.execute(f"DROP TABLE {table.name}".encode())


KINDS = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, note varchar(40)) PARTITION BY RANGE (id)",
    "CREATE TABLE {t}_p PARTITION OF {t} FOR VALUES FROM (0) TO (1000)",
    "CREATE FUNCTION {t}_f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
    "CREATE TRIGGER cloned BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "CREATE TRIGGER of_partition BEFORE INSERT ON {t}_p FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "CREATE TRIGGER on_update BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON {t}_p DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "CREATE TRIGGER replica BEFORE INSERT ON {t}_p FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "ALTER TABLE {t}_p ENABLE REPLICA TRIGGER replica",
    "CREATE TRIGGER always BEFORE INSERT ON {t}_p FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "ALTER TABLE {t}_p ENABLE ALWAYS TRIGGER always",
    "CREATE TRIGGER disabled BEFORE INSERT ON {t}_p FOR EACH ROW EXECUTE FUNCTION {t}_f()",
    "ALTER TABLE {t}_p DISABLE TRIGGER disabled",
    "CREATE RULE instead AS ON DELETE TO {t} DO INSTEAD NOTHING",
    "CREATE RULE also AS ON INSERT TO {t} DO ALSO SELECT 1",
    "CREATE TABLE {t}_c (ref bigint CONSTRAINT cascades REFERENCES {t} (id) ON DELETE CASCADE, "
    "other bigint CONSTRAINT keeps REFERENCES {t} (id))",
    "CREATE VIEW {t}_v AS SELECT id FROM {t}",
)


def test_what_a_postgres_table_has_is_found_by_one_query(stack: Servers) -> None:
    with TRANSACTIONAL["postgres"](stack.postgres_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        t = bench.named()
        for statement in KINDS:
            bench.ask(statement.replace("{t}", t.replace('"', "")))

        def found(mode: str = "replace", table: str = "") -> set[tuple[str, str, str]]:
            at = replace(bench.plan, target=replace(bench.table, name=bench.table.name + table))
            with asking() as asked:
                hazards = bench.target.hazards(at, TargetOptions(mode=WriteMode(mode)), ())
            assert len(asked) == 1
            return {(one.kind, one.name.partition(" ")[0], one.effect) for one in hazards}

        triggers = {
            ("trigger", "cloned", "changes"),
            ("trigger", "of_partition", "changes"),
            ("deferred constraint trigger", "waits", "changes"),
            ("trigger", "always", "changes"),
        }
        rules = {("rule", "instead", "refused"), ("rule", "also", "changes")}
        keys = {("foreign key", "cascades", "destroys")}
        updates = ("trigger", "on_update", "changes")
        try:
            assert found() == triggers | rules | keys
            assert found("upsert") == triggers | {updates, ("rule", "also", "changes")}
            assert found("append") == triggers | {("rule", "also", "changes")}
            assert found(table="_p") == triggers | keys, "of a partition, what its table has"
            refused = {("foreign key", "cascades", "refused"), ("foreign key", "keeps", "refused")}
            refused.add(("table", f"public.{bench.table.name}", "refused"))  # for its partitions
            assert refused <= found("swap") and len(found("swap")) == len(triggers) + 7
            assert found(table="_v") == {("view", f"public.{bench.table.name}_v", "changes")}
            bench.ask(
                f"CREATE TABLE {bench.named(bench.table.name + '_i')} () INHERITS ({t}_c)".replace(
                    '"', ""
                )
            )
            assert {one[0] for one in found(table="_c")} == {"table"}
        finally:
            bench.ask(f"DROP TABLE {t}, {t}_c CASCADE".replace('"', ""))
            bench.ask(f"DROP FUNCTION {t}_f".replace('"', ""))


@contextmanager
def asking() -> Iterator[list[str]]:
    """What PostgreSQL is asked meanwhile, by any session."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind, method in (
            (PostgresServer, "query"),
            (PostgresSession, "query"),
            (PostgresSession, "execute"),
        ):
            patch.setattr(kind, method, noting(found, getattr(kind, method)))
        yield found


def noting(found: list[str], ask: Callable[..., object]) -> Callable[..., object]:
    def noted(self: object, sql: str, *arguments: object, **options: object) -> object:
        found.append(str(sql))
        return ask(self, sql, *arguments, **options)

    return noted


MANGLE = (
    "CREATE FUNCTION {s}.mangle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "UPDATE {s}.{t} SET name = 'mangled' WHERE id = NEW.id; RETURN NULL; END $$"
)
AT_COMMIT = (
    MANGLE,
    "CREATE CONSTRAINT TRIGGER mangle AFTER INSERT ON {s}.{t} DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW WHEN (NEW.id = 150) EXECUTE FUNCTION {s}.mangle()",
)
AT_ONCE = (
    "CREATE FUNCTION {s}.mangle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "NEW.name = 'mangled'; RETURN NEW; END $$",
    "CREATE TRIGGER mangle BEFORE INSERT ON {s}.{t} FOR EACH ROW WHEN (NEW.id = 150) "
    "EXECUTE FUNCTION {s}.mangle()",
)


def make(one: Ferry, schema: str, statements: tuple[str, ...]) -> None:
    for statement in statements:
        one.source(statement.replace("{s}", schema))


@pytest.mark.invariant("I2")
@pytest.mark.parametrize("trigger", [AT_COMMIT, AT_ONCE])
def test_rows_that_a_trigger_changes_are_not_shown(
    ferry: Make, copies: str, trigger: tuple[str, ...]
) -> None:
    """However little is compared."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=RANGES, reconcile="count")
    with asking() as asked:
        assert one.run().good
    assert not [sql for sql in asked if "ferry__s" in sql]
    make(one, copies, trigger)
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    before = one.rows(there)
    one.source("UPDATE {t} SET name = 'new' WHERE id IN (150, 250)")
    with asking() as asked:
        failed = one.run()
    looks = sum("pg_trigger" in sql for sql in asked)
    assert looks == 4, "planned once; at each of two ranges; and why one failed"
    error = str(by_range(failed)[SECOND].error)
    assert not failed.good and "trigger mangle" in error and "rolled back" in error
    assert "'name'" in error and "DISABLE TRIGGER" in error and " INSERT, for each row" in error
    assert one.rows(there)[:200] == before[:200] and one.rows(there)[249][1] == "new"
    one.source(f"DROP FUNCTION {copies}.mangle CASCADE")
    assert one.run(failed=True).good
    assert one.rows(there) == one.rows(SELECT)


@pytest.mark.invariant("I2")
def test_a_conversion_that_changes_values_has_nothing_published(ferry: Make) -> None:
    """What is staged as character(3) loses its blanks in another type of text."""
    table = ("CREATE TABLE {t} (id integer PRIMARY KEY, code char(3))", *TABLE[1:1])
    one = ferry("['postgres://public.{t}_w']", *table, ranges=RANGES)
    there = "id bigint PRIMARY KEY, code varchar(5)"
    one.source("INSERT INTO {t} VALUES (1, 'abc')", f"CREATE TABLE {{t}}_w ({there})")
    try:
        assert one.run().good, "a value that is not changed"
        one.source("INSERT INTO {t} VALUES (2, 'ab')")
        failed = one.run()
        (error,) = failed.errors
        assert "in column 'code'" in error and 'code: {type: "character varying(5)"}' in error
        assert one.rows("SELECT id FROM {t}_w") == [(1,)]
        one.declare(
            "['postgres://public.{t}_w']", ranges=RANGES, columns="{code: {type: varchar(5)}}"
        )
        assert one.run().good
        assert one.rows("SELECT id, code FROM {t}_w ORDER BY id") == [(1, "abc"), (2, "ab ")]
    finally:
        one.source("DROP TABLE {t}_w")


TYPES = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a smallint, b bigint, c numeric(38,10), d real, "
    "e double precision, f boolean, g text, h varchar(20), i char(5), j bytea, k date, l time, "
    "m timestamp, n timestamptz, o uuid, p jsonb, q interval, r integer[], u numeric(5,0))",
    "INSERT INTO {t} VALUES (1, 1, 2, 3.5, 1.5, 0.1, true, 'ä€😀~,:', 'x ', 'ab', '\\x00ff10', "
    "'2024-02-29', '23:59:59.999999', '2024-01-01 00:00:00.000001', '1970-01-01 01:00+02', "
    "'0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0', '[1, null]', '1 day 02:03:04.5', '{{1,NULL}}', 12345)",
    "INSERT INTO {t} (id, r) VALUES (2, '{{}}')",
    "INSERT INTO {t} SELECT 3, -1, -2, -3.5, 'NaN', '-0.0', false, '', '', '', '', '1970-01-01', "
    "'00:00', '1969-12-31 23:59:59.999999', '2038-01-19', o, 'null', '-1 mon', '{{}}', -1 FROM {t} "
    "WHERE id = 1",
)


@pytest.mark.parametrize(
    ("hop", "more"),
    [
        ("clickhouse://warehouse.{t}", {}),
        ("postgres://{copies}.{t}", {}),
        ("sqlserver://dbo.{t}", {"exclude": "[r]", "columns": "{d: {type: nvarchar(40)}}"}),
    ],
)
def test_values_of_any_type_are_shown_as_they_were_staged(
    ferry: Make, copies: str, hop: str, more: dict[str, str]
) -> None:
    hops = f"['{hop.replace('{copies}', copies)}']"
    settings = {"ranges": "{bounds: [2, 3]}", "publish_audit": "visible", **more}
    one = ferry(hops, *TYPES, **settings)
    assert one.run().good
    one.declare(hops, write="upsert", **settings)
    again = one.run(force=True)
    assert again.good, again.errors


def test_a_trigger_that_appears_during_a_run_is_not_staged_around(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *TABLE, ranges=RANGES)
    assert one.run().good
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    before = one.rows(there)
    one.source("UPDATE {t} SET name = 'new' WHERE id = 150")

    def listen(event: Progress) -> None:
        if event.phase == "planned":
            make(one, copies, AT_ONCE)

    failed = one.run(on_progress=listen)
    error = str(by_range(failed)[SECOND].error)
    assert not failed.good and "trigger mangle" in error and "'name'" in error
    assert one.rows(there) == before


def test_a_chain_stops_where_a_target_changes_rows(
    ferry: Make, copies: str, stack: Servers
) -> None:
    hops = f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}']"
    one = ferry(hops, *TABLE, ranges=RANGES)
    assert one.run().good
    make(one, copies, AT_COMMIT)
    one.source("UPDATE {t} SET name = 'new' WHERE id IN (150, 250)")
    plan = one.plan()
    (found,) = plan.json()["hazards"]
    assert found["kind"] == "deferred constraint trigger" and found["effect"] == "changes"
    assert found["name"] == f"mangle on {copies}.{one.table}"
    assert any("is compared as it is published: deferred constraint" in one for one in plan.notes)
    statements = list(dry_run(one.session, one.table).lines())
    assert "SET CONSTRAINTS ALL IMMEDIATE;" in statements
    failed = one.run()
    names = f"SELECT name FROM warehouse.{one.table} WHERE id IN (150, 250) ORDER BY id"
    assert looking.ask_clickhouse(stack.clickhouse_url, names) == [("name 150",), ("new",)]
    assert [view.range for view in failed.ranges if view.error] == [SECOND]

    one.source(
        f"CREATE TABLE {copies}.child (ref integer CONSTRAINT refers "
        f"REFERENCES {copies}.{{t}} (id) ON DELETE CASCADE)",
        f"INSERT INTO {copies}.child VALUES (150)",
        "DELETE FROM {t} WHERE id = 150",
    )
    failed = one.run(failed=True)
    assert "refers on" in str(by_range(failed)[SECOND].error)
    assert one.rows(f"SELECT count(*) FROM {copies}.child") == [(1,)]
    shown = CliRunner().invoke(main, ["doctor", "--json"])
    says = [f for s in json.loads(shown.stdout)["servers"] for f in s["findings"]]
    states = {f["state"] for f in says if f["subject"] == "publishing"}
    assert states == {"note", "warning"}, says

    one.declare(f"['postgres://{copies}.{{t}}']", ranges=RANGES, write="swap")
    refusing = [note for note in one.plan().notes if "a run will be refused" in note]
    assert len(refusing) == 1 and "foreign key refers" in refusing[0]
    with pytest.raises(InputError, match=r"refers on .*a swap drops"):
        one.run()
    with pytest.raises(InputError, match=r"refers on .*a swap drops"):
        dry_run(one.session, one.table)
    one.source(f"DROP TABLE {copies}.child")


def test_what_clickhouse_shows_is_compared_and_put_back(
    stack: Servers, monkeypatch: pytest.MonkeyPatch, ferry: Make
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        *TABLE,
        ranges=RANGES,
        publish_audit="visible",
        parallel="{export: 1, load: 1}",
    )
    assert one.run().good
    names = f"SELECT name FROM warehouse.{one.table} WHERE id IN (150, 250) ORDER BY id"
    one.source("UPDATE {t} SET name = 'new' WHERE id IN (150, 250)")
    execute, replaced = ClickHouseServer.execute, list[str]()

    def raced(self: ClickHouseServer, sql: str, *arguments: object) -> None:
        execute(self, sql, *arguments)
        if "REPLACE PARTITION" in sql and not replaced:
            replaced.append(sql)
            execute(
                self,
                f"ALTER TABLE warehouse.{one.table} UPDATE name = 'mangled' WHERE id = 150 "
                "SETTINGS mutations_sync = 2",
            )

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseServer, "execute", raced)
        failed = one.run()
    error = str(by_range(failed)[SECOND].error)
    assert "in column 'name'; it has its rows of before again" in error
    assert looking.ask_clickhouse(stack.clickhouse_url, names) == [("name 150",), ("new",)]
    left = "SELECT count() FROM system.tables WHERE name LIKE '%_before'"
    assert looking.ask_clickhouse(stack.clickhouse_url, left) == [(0,)]
    assert one.run(failed=True).good
    assert looking.ask_clickhouse(stack.clickhouse_url, names) == [("new",), ("new",)]


def test_what_a_clickhouse_table_does_to_its_rows_is_told(stack: Servers) -> None:
    resource = ClickHouseResource(url=stack.clickhouse_url)
    target, name = ClickHouseTarget(resource), f"t_{uuid.uuid4().hex[:8]}"
    bench = TRANSACTIONAL["postgres"](stack.postgres_url, name)
    plan = replace(bench.plan, target=TableRef("clickhouse", "warehouse", name))

    def found(engine: str, order: str = "id", more: str = "") -> list[str]:
        columns = "(id Int64, day Date, note String)"
        resource.execute(f"DROP TABLE IF EXISTS warehouse.{name}")
        resource.execute(
            f"CREATE TABLE warehouse.{name} {columns} ENGINE = {engine} ORDER BY {order} {more}"
        )
        return [f"{one.kind} {one.effect}" for one in target.hazards(plan, REPLACE, ())]

    try:
        assert found("MergeTree") == found("ReplacingMergeTree", "(id, day)") == []
        assert found("MergeTree", "id", "TTL day + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD)") == []
        assert found("ReplacingMergeTree", "intDiv(id, 10)") == ["engine changes"]
        assert found("SummingMergeTree") == ["engine changes"]
        assert found("MergeTree", "id", "TTL day + INTERVAL 1 DAY") == ["TTL changes"]
        resource.execute(
            f"CREATE MATERIALIZED VIEW warehouse.{name}_v ENGINE = MergeTree ORDER BY id "
            f"AS SELECT id FROM warehouse.{name}"
        )
        assert "materialized view noted" in [
            f"{one.kind} {one.effect}" for one in target.hazards(plan, REPLACE, ())
        ]
    finally:
        resource.execute(f"DROP TABLE IF EXISTS warehouse.{name}_v")
        resource.execute(f"DROP TABLE IF EXISTS warehouse.{name}")
