"""`on_schema_drift: evolve` widens the columns of targets in place, hop after hop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.contract.source import source_of
from tableferry.resources.registry import system as system_of
from tableferry.resources.types.type_map import Column
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

SYSTEMS = ("sqlserver", "clickhouse", "postgres")
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, small smallint NOT NULL, code varchar(20),"
    " price numeric(10,2), needed int NOT NULL)",
    "INSERT INTO {t} SELECT i, i, 'c' || i, i * 1.25, i FROM generate_series(1, 30) i",
)
WIDER = (
    "ALTER TABLE {t} ALTER small TYPE integer, ALTER code TYPE varchar(50),"
    " ALTER price TYPE numeric(14,2)",
    "UPDATE {t} SET small = 70000, code = repeat('x', 45), price = 123456789012.25 WHERE id = 3",
)
NOW = {(3, 70000, "x" * 45, "123456789012.25")}


@pytest.fixture
def schema(schemas: dict[str, str], system: str) -> str:
    """Where the copy is in the system that a test is about."""
    return schemas[system]


@pytest.fixture
def hop(schema: str, system: str) -> str:
    """The only hop, into that system."""
    return f"['{system}://{schema}.{{t}}']"


def command(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    return result.stdout + result.stderr


def row(one: Ferry, system: str, schema: str) -> set[tuple[object, ...]]:
    """The row that was changed, as a target shows it."""
    server = one.session.servers.endpoints[system]
    sql = f"SELECT id, small, code, price FROM {schema}.{one.table} WHERE id = 3"
    return {(id_, small, code, str(price)) for id_, small, code, price in server.query(sql)}


@pytest.mark.parametrize("system", SYSTEMS)
def test_wider_types_are_taken_over_in_place(
    ferry: Callable[..., Ferry], hop: str, schema: str, system: str
) -> None:
    one = ferry(hop, *TABLE)
    assert one.run().good
    target = one.session.servers.target(one.session.transfer(one.table).hops[0].to)
    before = target.identity(one.session.transfer(one.table).hops[0].to)
    one.source(*WIDER)
    refused = one.run()
    assert "set on_schema_drift to evolve" in "".join(refused.errors)
    assert any("set on_schema_drift to evolve" in note for note in one.plan().notes)
    one.declare(hop, on_schema_drift="evolve")
    shown = command("run", one.table, "--dry-run")
    assert shown.count("ALTER TABLE") >= 3, shown
    planned = [note for note in one.plan().notes if "will alter" in note]
    # a String of ClickHouse has no length
    assert len(planned) == (2 if system == "clickhouse" else 3), planned
    evolved = one.run()
    assert evolved.good, evolved.errors
    assert sum("altered column" in note for note in evolved.notes) == len(planned)
    assert row(one, system, schema) == NOW
    assert target.identity(one.session.transfer(one.table).hops[0].to) == before
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_plan_and_a_dry_run_show_all_that_a_run_alters(
    ferry: Callable[..., Ferry], hop: str, system: str
) -> None:
    one = ferry(
        hop,
        "CREATE TABLE {t} (id int PRIMARY KEY, small smallint NOT NULL, code text, gone date)",
        "INSERT INTO {t} SELECT i, i, 'c' || i, '2026-01-02' FROM generate_series(1, 9) i",
    )
    assert one.run().good
    one.source(
        "ALTER TABLE {t} RENAME code TO label",
        "ALTER TABLE {t} ALTER small TYPE integer, DROP gone, ADD price numeric(10,2)",
        "UPDATE {t} SET small = 70000, price = 1.25 WHERE id = 3",
    )
    declared = {"on_schema_drift": "evolve", "columns": "{label: {was: code}}"}
    one.declare(hop, **declared, dropped_columns="drop")
    table = str(one.session.transfer(one.table).hops[0].to)
    notes = [note.partition(f"a run will alter {table}: ") for note in one.plan().notes]
    planned = [statement for _, told, statement in notes if told]
    assert len(planned) == 4, notes
    dry = json.loads(command("run", one.table, "--dry-run", "--json"))
    assert dry["hops"][0]["creation"][:4] == planned
    ran = one.run()
    assert ran.good, ran.errors
    done = ("renamed column 'code'", "altered column 'small'", "no longer has 'gone'", "'price'")
    told = [note for note in ran.notes if any(what in note for what in done)]
    assert len(told) == 4, ran.notes
    columns = one.session.servers.endpoints[system].columns(
        one.session.transfer(one.table).hops[0].to
    )
    assert {column.name for column in columns} == {"id", "small", "label", "price"}
    assert not any("a run will alter" in note for note in one.plan().notes)


def test_a_chain_evolves_hop_after_hop(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, *TABLE, on_schema_drift="evolve")
    assert one.run().good
    one.source(*WIDER)
    evolved = one.run()
    assert evolved.good, evolved.errors
    assert row(one, "sqlserver", "dbo") == row(one, "clickhouse", "warehouse") == NOW


def test_a_killed_evolution_is_finished_by_the_next_run(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry(CHAIN, *TABLE, on_schema_drift="evolve")
    assert one.run().good
    one.source(*WIDER)
    for nth in (1, 2):
        crash(Command(tmp_path), one.table, f"during_evolution:{nth}")
        reopen(one)
    evolved = one.run()
    assert evolved.good, evolved.errors
    assert row(one, "sqlserver", "dbo") == row(one, "clickhouse", "warehouse") == NOW
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


@pytest.mark.parametrize("system", ["clickhouse", "postgres"])
def test_a_column_that_may_be_null_now(
    ferry: Callable[..., Ferry], schema: str, system: str
) -> None:
    """SQL Server's statement for it is none of Babelfish's, where the run is refused."""
    one = ferry(f"['{system}://{schema}.{{t}}']", *TABLE, on_schema_drift="evolve")
    assert one.run().good
    one.source("ALTER TABLE {t} ALTER needed DROP NOT NULL", "UPDATE {t} SET needed = NULL")
    evolved = one.run()
    assert evolved.good, evolved.errors


def test_sqlserver_restates_what_a_column_would_lose() -> None:
    dialect = system_of("sqlserver").dialect
    before = Column("c", "nvarchar(20)", nullable=False, collation="Latin1_General_100_BIN2")
    after = Column("c", "nvarchar(50)", nullable=False)
    statement, without = dialect.alter_column("t", "c", before, after)
    assert statement.endswith("nvarchar(50) COLLATE Latin1_General_100_BIN2 NOT NULL")
    assert without == "ALTER TABLE t ALTER COLUMN c nvarchar(50)"


def test_nothing_is_narrowed(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *TABLE, on_schema_drift="evolve")
    assert one.run().good
    one.source("ALTER TABLE {t} ALTER code TYPE int USING id, ALTER price TYPE numeric(6,4)")
    refused = "".join(one.run().errors)
    assert "cannot hold every" in refused and "--recreate" in refused
    one.declare("['sqlserver://dbo.{t}']", on_schema_drift="evolve", exclude="[code, price]")
    one.source("ALTER TABLE {t} ALTER small TYPE int", "ALTER TABLE {t} ALTER small TYPE smallint")
    assert one.plan().ranges


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_empty_table_that_a_failed_run_made_is_made_anew(
    ferry: Callable[..., Ferry], hop: str, system: str
) -> None:
    narrow = {"sqlserver": "smallint", "clickhouse": "Int16", "postgres": "smallint"}[system]
    wide = {"sqlserver": "nvarchar(20)", "clickhouse": "String", "postgres": "text"}[system]
    one = ferry(
        hop,
        "CREATE TABLE {t} (id int PRIMARY KEY, big int)",
        "INSERT INTO {t} VALUES (1, 70000)",
        columns=f"{{big: {{type: {narrow}}}}}",
        ranges="{count: 1}",
    )
    assert not one.run().good
    one.declare(hop, columns=f"{{big: {{type: {wide}}}}}", ranges="{count: 1}")
    if (wide, system) == ("nvarchar(20)", "sqlserver"):
        assert any("a run will recreate it" in note for note in one.plan().notes)
    moved = one.run()
    assert moved.good, moved.errors
    assert any("is recreated" in note for note in moved.notes)


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_empty_table_that_is_made_anew_has_markers_of_its_own(
    ferry: Callable[..., Ferry], hop: str, schema: str, system: str
) -> None:
    one = ferry(hop, "CREATE TABLE {t} (id int PRIMARY KEY, v int)", ranges="{count: 1}")
    assert one.run().good
    one.session.servers.endpoints[system].execute(f"ALTER TABLE {schema}.{one.table} DROP COLUMN v")
    moved = one.run()
    assert moved.good and any("is recreated" in note for note in moved.notes), moved.notes
    assert {(range_.state, range_.reason) for range_ in one.plan().ranges} == {
        ("skip", "unchanged")
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_column_is_renamed_with_its_values(
    ferry: Callable[..., Ferry], hop: str, system: str
) -> None:
    one = ferry(hop, *TABLE)
    assert one.run().good
    one.source('ALTER TABLE {t} RENAME code TO "Order Code"')
    one.declare(hop, on_schema_drift="add_columns")
    assert "was: code" in "".join(one.run().errors)
    one.declare(hop, columns="{Order Code: {was: code}}")
    assert any("a run will alter" in note and "Order Code" in note for note in one.plan().notes)
    unready = CliRunner().invoke(main, ["check", one.table], catch_exceptions=False)
    assert unready.exit_code == 2 and "becomes 'Order Code' with the next run" in unready.stderr
    renamed = one.run()
    assert renamed.good, renamed.errors
    assert any("renamed column 'code' to 'Order Code'" in note for note in renamed.notes)
    columns = one.session.servers.endpoints[system].columns(
        one.session.transfer(one.table).hops[0].to
    )
    assert [column.name for column in columns] == ["id", "small", "Order Code", "price", "needed"]
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}
    assert one.run().good, "the line may stay in the file"


def test_a_key_is_not_renamed(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *TABLE)
    one.declare("['sqlserver://dbo.{t}']", columns="{id: {was: number}}")
    refused = CliRunner().invoke(main, ["validate"], catch_exceptions=False)
    assert refused.exit_code == 2 and "a key stays where it is" in refused.stderr


@pytest.mark.parametrize("policy", ["keep", "null", "drop"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_what_becomes_of_a_dropped_column(
    ferry: Callable[..., Ferry], copies: str, hop: str, schema: str, system: str, policy: str
) -> None:
    one = ferry(hop, *TABLE, ranges="{bounds: [1, 20]}")
    assert one.run().good
    one.source("ALTER TABLE {t} DROP price")
    assert "write dropped_columns: keep" in "".join(one.run().errors)
    one.declare(hop, ranges="{bounds: [1, 20]}", dropped_columns=policy)
    moved = one.run()
    assert moved.good, moved.errors
    server = one.session.servers.endpoints[system]
    columns = [each.name for each in server.columns(one.session.transfer(one.table).hops[0].to)]
    assert ("price" in columns) is (policy != "drop")
    if policy == "null":
        ((filled,),) = server.query(f"SELECT count(price) FROM {schema}.{one.table}")
        assert filled == 0
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


MISFIT = (
    "CREATE TABLE {t} (id int PRIMARY KEY, big int)",
    "INSERT INTO {t} VALUES (1, 70000)",
)
OWN = {
    "sqlserver": "CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, big smallint)",
    "clickhouse": "CREATE TABLE warehouse.{t} (id Int32, big Nullable(Int16)) "
    "ENGINE = MergeTree ORDER BY id",
    "postgres": "CREATE TABLE {copies}.{t} (id int PRIMARY KEY, big smallint)",
}
INSERTS = {
    "sqlserver": "INSERT INTO dbo.{t} VALUES (7, 7)",
    "clickhouse": "INSERT INTO warehouse.{t} SELECT 7, sleepEachRow(2.5) + 7",
    "postgres": "INSERT INTO {copies}.{t} VALUES (7, 7)",
}


def narrow_then_wide(system: str) -> tuple[str, str]:
    narrow = {"sqlserver": "smallint", "clickhouse": "Int16", "postgres": "smallint"}[system]
    wide = {"sqlserver": "nvarchar(20)", "clickhouse": "String", "postgres": "text"}[system]
    return f"{{big: {{type: {narrow}}}}}", f"{{big: {{type: {wide}}}}}"


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_empty_table_of_the_user_is_never_dropped(
    ferry: Callable[..., Ferry], copies: str, hop: str, system: str
) -> None:
    narrow, wide = narrow_then_wide(system)
    one = ferry(hop, *MISFIT, columns=narrow, ranges="{count: 1}")
    one.source(f"CREATE SCHEMA IF NOT EXISTS {copies}")
    looking.run(one.stack, system, OWN[system].format(t=one.table, copies=copies))
    table = one.session.transfer(one.table).hops[0].to
    before = one.session.servers.target(table).identity(table)
    assert not one.run().good, "a value does not fit"
    for policy in ("fail", "evolve"):
        one.declare(hop, columns=wide, ranges="{count: 1}", on_schema_drift=policy)
        notes = one.plan().notes
        assert not any("recreate it" in note for note in notes), notes
        assert any("--recreate" in note and "refused" in note for note in notes), notes
        assert "--recreate" in command("validate", one.table)
        refused = one.run()
        assert not refused.good and "--recreate" in "".join(refused.errors)
        assert one.session.servers.target(table).identity(table) == before


GIVEN = {
    "postgres": (
        "CREATE INDEX by_v ON {s}.{t} (v)",
        "GRANT SELECT ON {s}.{t} TO PUBLIC",
        "GRANT SELECT (v) ON {s}.{t} TO PUBLIC",
        "COMMENT ON COLUMN {s}.{t}.v IS 'theirs'",
        "ALTER TABLE {s}.{t} ADD theirs int",
        "CREATE TRIGGER given BEFORE UPDATE ON {s}.{t} EXECUTE FUNCTION "
        "suppress_redundant_updates_trigger()",
        "ALTER TABLE {s}.{t} ADD CONSTRAINT given CHECK (v > 0)",
        "CREATE PUBLICATION given_{t} FOR TABLE {s}.{t}",
    ),
    "sqlserver": (
        "CREATE INDEX by_v ON {s}.{t} (v)",
        "ALTER TABLE {s}.{t} ADD theirs int",
    ),
    "clickhouse": (
        "ALTER TABLE {s}.{t} ADD INDEX given v TYPE minmax",
        "ALTER TABLE {s}.{t} MODIFY COMMENT 'theirs'",
        "ALTER TABLE {s}.{t} COMMENT COLUMN v 'theirs'",
        "ALTER TABLE {s}.{t} ADD COLUMN theirs Int32",
        "ALTER TABLE {s}.{t} ADD CONSTRAINT given CHECK v > 0",
    ),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_others_gave_to_an_empty_table_stays(
    ferry: Callable[..., Ferry], hop: str, schema: str, system: str
) -> None:
    for statement in GIVEN[system]:
        one = ferry(hop, "CREATE TABLE {t} (id int PRIMARY KEY, v int)", ranges="{count: 1}")
        assert one.run().good
        looking.run(one.stack, system, statement.format(s=schema, t=one.table))
        table = one.session.transfer(one.table).hops[0].to
        target = one.session.servers.target(table)
        before = target.identity(table)
        one.source("ALTER TABLE {t} ADD more int")
        refused = one.run()
        assert not refused.good and "set on_schema_drift" in "".join(refused.errors), statement
        assert target.identity(table) == before, statement
        one.declare(hop, ranges="{count: 1}", on_schema_drift="add_columns")
        added = one.run()
        assert added.good, (statement, added.errors)
        assert target.identity(table) == before, statement


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_row_that_is_not_committed_yet_is_not_lost_with_its_empty_table(
    ferry: Callable[..., Ferry], copies: str, hop: str, schema: str, system: str
) -> None:
    """It is committed while the run waits for the lock."""
    narrow, wide = narrow_then_wide(system)
    one = ferry(hop, *MISFIT, columns=narrow, ranges="{count: 1}")
    assert not one.run().good
    one.declare(hop, columns=wide, ranges="{count: 1}")
    assert command("validate", one.table).count("cannot") == 0, "it says what a run does"
    insert = INSERTS[system].format(t=one.table, copies=copies)
    inserted = threading.Event()

    def write() -> None:
        if system == "clickhouse":
            inserted.set()
            looking.run(one.stack, system, insert)
        elif system == "sqlserver":
            connection = looking.sqlserver(one.stack.sqlserver_url)
            looking.rows(connection, f"BEGIN TRANSACTION; {insert}")
            inserted.set()
            time.sleep(4)
            looking.rows(connection, "COMMIT TRANSACTION")
            connection.close()
        else:
            with psycopg.connect(one.stack.postgres_url) as session:
                session.execute(insert)
                inserted.set()
                time.sleep(4)

    writer = threading.Thread(target=write)
    writer.start()
    assert inserted.wait(300)
    time.sleep(0.3)
    refused = one.run()
    writer.join()
    server = one.session.servers.endpoints[system]
    assert server.query(f"SELECT id FROM {schema}.{one.table}") == [(7,)]
    assert not refused.good
    told = "".join(refused.errors)
    assert "--recreate" in told or "has written" in told, told


def test_a_table_that_was_put_aside_with_rows_is_told(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    """ClickHouse has no lock: a run that is killed there leaves the table under another name."""
    narrow, wide = narrow_then_wide("clickhouse")
    hop = "['clickhouse://warehouse.{t}']"
    one = ferry(hop, *MISFIT, columns=narrow, ranges="{count: 1}")
    assert not one.run().good
    one.declare(hop, columns=wide, ranges="{count: 1}")
    crash(Command(tmp_path), one.table, "table_aside")
    reopen(one)
    aside = f"warehouse.{one.table}__ferry_aside"
    looking.run(one.stack, "clickhouse", f"INSERT INTO {aside} VALUES (7, 7)")
    refused = one.run()
    assert f"{one.table}__ferry_aside holds now" in "".join(refused.errors)
    looking.run(one.stack, "clickhouse", f"TRUNCATE TABLE {aside}")
    moved = one.run()
    assert moved.good, moved.errors


KEYED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, a text)",
    "INSERT INTO {t} SELECT i, 'a' || i FROM generate_series(1, 30) i",
)
OUTSIDE = (
    "CREATE TABLE {t} (n int NOT NULL, id int NOT NULL, a text, PRIMARY KEY (n))",
    "INSERT INTO {t} SELECT i, i, 'a' || i FROM generate_series(1, 30) i",
)
WIDER_KEY = (
    "ALTER TABLE {t} ALTER id TYPE bigint",
    "INSERT INTO {t} (id, a) VALUES (5000000000, 'far')",
)


@pytest.mark.parametrize("key", ["primary", "index", "composite"])
def test_a_widened_key_is_altered_with_its_index(ferry: Callable[..., Ferry], key: str) -> None:
    tables = {
        "primary": KEYED,
        "index": OUTSIDE,
        "composite": ("CREATE TABLE {t} (id int, n int DEFAULT 1, a text, PRIMARY KEY (id, n))",),
    }
    one = ferry("['sqlserver://dbo.{t}']", *tables[key], on_schema_drift="evolve")
    if key == "composite":
        one.source("INSERT INTO {t} SELECT i, i, 'a' || i FROM generate_series(1, 30) i")
    assert one.run().good
    table = one.session.transfer(one.table).hops[0].to
    source = source_of(system_of("sqlserver"))
    server = one.session.servers.endpoints["sqlserver"]
    before = source.structures(server, [table])[table]
    one.source(WIDER_KEY[0])
    if key == "index":
        one.source("INSERT INTO {t} VALUES (31, 5000000000, 'far')")
    else:
        one.source(WIDER_KEY[1])
    assert command("validate", one.table).count("cannot") == 0
    assert any("will alter" in note and "bigint" in note for note in one.plan().notes)
    evolved = one.run()
    assert evolved.good, evolved.errors
    assert source.structures(server, [table])[table] == before
    rows = server.query(f"SELECT id FROM dbo.{one.table} WHERE id > 100")
    assert rows == [(5000000000,)]
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


HOLDING = {
    "sqlserver": "CREATE INDEX mine ON dbo.{t} (small)",
    "clickhouse": "",
    "postgres": "CREATE VIEW {copies}.v_{t} AS SELECT small FROM {copies}.{t}",
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_cannot_be_altered_is_known_before_and_names_the_remedy(
    ferry: Callable[..., Ferry], copies: str, schema: str, system: str
) -> None:
    one = ferry(f"['{system}://{schema}.{{t}}']", *TABLE, on_schema_drift="evolve")
    assert one.run().good
    if statement := HOLDING[system]:
        looking.run(one.stack, system, statement.format(t=one.table, copies=copies))
    # a second column that could be altered stays as it is, too
    one.source("ALTER TABLE {t} ALTER small TYPE int, ALTER price TYPE numeric(14,2)")
    if system == "clickhouse":
        one.source("ALTER TABLE {t} ALTER id TYPE bigint")
    why = {
        "sqlserver": "the index 'mine' holds it",
        "clickhouse": "it is a column of the sorting key",
        "postgres": f"v_{one.table} needs its type",
    }[system]
    told = [note for note in one.plan().notes if "refused" in note]
    assert any(why in note and "--recreate" in note for note in told), told
    checked = command("validate", one.table)
    assert why in checked and "--recreate" in checked, checked
    refused = "".join(one.run().errors)
    assert why in refused and "--recreate" in refused, refused
    if system == "postgres":
        looking.run(one.stack, system, f"DROP VIEW {copies}.v_{one.table}")
    if system == "sqlserver":
        looking.run(one.stack, system, f"DROP INDEX mine ON dbo.{one.table}")
    if system == "clickhouse":
        columns = {
            c.name: c.type
            for c in one.session.servers.endpoints[system].columns(
                one.session.transfer(one.table).hops[0].to
            )
        }
        assert columns["price"] == "Decimal(10, 2)", "nothing was altered"
    else:
        assert one.run().good
