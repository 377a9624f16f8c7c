"""PostgreSQL read by unmodified drivers: catalog, streams, snapshots, and errors in one line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import psycopg
import pytest

from tableferry.resources.connecting.pool import TRUSTED_SECONDS
from tableferry.resources.connecting.retry import is_transient
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.errors import (
    ConnectionFailed,
    SetLost,
    SnapshotLost,
    StatementFailed,
    TableMissing,
)
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.servers import Servers, own

SCHEMA = own("postgres_resource")


@pytest.fixture(scope="module")
def pg_url(pg_url: str) -> Iterator[str]:
    """A database of its own: nobody else's snapshots are in it."""
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {SCHEMA}")
        yield urlsplit(pg_url)._replace(path=f"/{SCHEMA}").geturl()
        connection.execute(f"DROP DATABASE {SCHEMA} WITH (FORCE)")


@pytest.fixture(scope="module")
def source(pg_url: str) -> Iterator[PostgresResource]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(
            f"CREATE TABLE {SCHEMA}.numbers AS SELECT generate_series(1, 100000) AS n"
        )
        yield PostgresResource(url=pg_url)


def table(name: str) -> TableRef:
    return TableRef("postgres", SCHEMA, name)


def count(source: PostgresResource, name: str, snapshot: str | None = None) -> int:
    sql = f"SELECT n FROM {SCHEMA}.{name}"
    with source.read_arrow(sql, snapshot=snapshot) as reader:
        return sum(batch.num_rows for batch in reader)


def test_ping_tells_the_version(source: PostgresResource) -> None:
    assert int(source.ping().split(".")[0]) >= 14


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("integer", Column("c", "integer")),
        ("bigint NOT NULL", Column("c", "bigint", nullable=False)),
        ("numeric(38,10)", Column("c", "numeric(38,10)")),
        ("varchar(20)", Column("c", "character varying(20)")),
        ("timestamp(3)", Column("c", "timestamp(3) without time zone")),
        ("timestamptz", Column("c", "timestamp with time zone")),
        ("interval day to second(3)", Column("c", "interval day to second(3)")),
        ("varchar(3)[]", Column("c", "character varying(3)[]")),
        ("mood", Column("c", "enum")),
        ("mood[]", Column("c", "enum[]")),
        ("pair", Column("c", "composite")),
        ("amount", Column("c", "numeric(10,2)")),
        ("positive_amount", Column("c", "numeric(10,2)")),
        ("int PRIMARY KEY", Column("c", "integer", nullable=False, primary_key=1)),
        (
            "bigint GENERATED ALWAYS AS IDENTITY",
            Column("c", "bigint", nullable=False, identity=True),
        ),
        ("int GENERATED ALWAYS AS (1 + 1) STORED", Column("c", "integer", generated=True)),
    ],
)
def test_columns_are_told_as_declared(
    source: PostgresResource, declared: str, expected: Column
) -> None:
    source.execute(
        f"""SET search_path = {SCHEMA};
        DROP TABLE IF EXISTS typed;
        DROP TYPE IF EXISTS mood, pair;
        DROP DOMAIN IF EXISTS positive_amount, amount;
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TYPE pair AS (a int, b int);
        CREATE DOMAIN amount AS numeric(10,2) NOT NULL;
        CREATE DOMAIN positive_amount AS amount CHECK (VALUE > 0);
        CREATE TABLE typed (c {declared})"""
    )
    assert source.columns(table("typed")) == [expected]


def test_names_and_key_order_survive(source: PostgresResource) -> None:
    source.execute(
        f"""CREATE TABLE {SCHEMA}."Weird ""Name"".x" (
            b int, gone int, "select" text, "Größe 😀" date, a int, PRIMARY KEY (a, b));
        ALTER TABLE {SCHEMA}."Weird ""Name"".x" DROP COLUMN gone"""
    )
    columns = source.columns(table('Weird "Name".x'))
    assert [(c.name, c.primary_key) for c in columns] == [
        ("b", 2),
        ("select", None),
        ("Größe 😀", None),
        ("a", 1),
    ]


def test_views_and_partitioned_tables_have_columns(source: PostgresResource) -> None:
    source.execute(
        f"""CREATE VIEW {SCHEMA}.seen AS SELECT n, n::text AS t FROM {SCHEMA}.numbers;
        CREATE TABLE {SCHEMA}.parted (n int PRIMARY KEY) PARTITION BY RANGE (n);
        CREATE TABLE {SCHEMA}.part PARTITION OF {SCHEMA}.parted DEFAULT"""
    )
    assert [c.type for c in source.columns(table("seen"))] == ["integer", "text"]
    assert source.columns(table("parted"))[0].primary_key == 1


def test_not_null_is_what_no_row_can_break(pg_url: str, source: PostgresResource) -> None:
    """A declaration that rows may break would leave those without a key out of all ranges."""
    names = ["kept", "shown", "parent", "stored"]
    with psycopg.connect(pg_url, autocommit=True) as connection:
        execute = connection.execute
        execute(f"SET search_path = {SCHEMA}")
        execute("CREATE DOMAIN present AS int NOT NULL")
        execute("CREATE TABLE kept (k int NOT NULL, other int)")
        execute("CREATE TABLE stored (k present)")
        execute("INSERT INTO stored VALUES ((SELECT k FROM stored WHERE false))")
        execute("CREATE VIEW shown AS SELECT s.k FROM kept LEFT JOIN stored s USING (k)")
        execute("CREATE TABLE parent (k int)")
        execute("CREATE TABLE child () INHERITS (parent)")
        if connection.info.server_version >= 180000:
            execute("ALTER TABLE parent ADD CONSTRAINT here NOT NULL k NO INHERIT")
            execute("CREATE TABLE late (k int)")
            execute("INSERT INTO late VALUES (NULL)")
            execute("ALTER TABLE late ADD CONSTRAINT later NOT NULL k NOT VALID")
            names.append("late")
        else:
            execute("ALTER TABLE ONLY parent ALTER k SET NOT NULL")
        execute("INSERT INTO child VALUES (NULL)")
    nullable = {name: source.columns(table(name))[0].nullable for name in names}
    assert nullable.pop("kept") is False
    assert all(nullable.values()), nullable


def test_a_missing_table_is_named(source: PostgresResource) -> None:
    with pytest.raises(TableMissing) as caught:
        source.columns(TableRef.parse("postgres://public.nope"))
    database = source.settings().database
    assert f"public.nope does not exist in the database {database!r}, or" in str(caught.value)


def test_failed_connections_say_why_in_one_line(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    at = urlsplit(pg_url)
    where = f"cannot connect to postgres at {at.hostname}:{at.port}: "
    cases = {
        f'password authentication failed for user "{at.username}"': PostgresResource(
            url=pg_url, password="wrong-secret"
        ),
        'database "nope" does not exist': PostgresResource(url=pg_url, database="nope"),
    }
    for reason, resource in cases.items():
        for attempt in (resource.ping, lambda r=resource: r.read_arrow("SELECT 1").__enter__()):
            with pytest.raises(ConnectionFailed) as caught:
                attempt()
            assert str(caught.value) == where + reason
            assert not is_transient(caught.value)
    with pytest.raises(ConnectionFailed, match="Connection refused") as caught:
        PostgresResource(url=pg_url, port=1).ping()
    assert is_transient(caught.value)


def test_failed_statements_carry_the_servers_code(source: PostgresResource) -> None:
    with pytest.raises(StatementFailed, match=r"^postgres \(22012\): division by zero$"):
        source.query("SELECT 1/0")
    with pytest.raises(StatementFailed, match=r"^postgres \(42703\): column \"x\" does not exist$"):
        source.read_arrow("SELECT x").__enter__()


def test_a_script_takes_effect_as_a_whole_or_not_at_all(source: PostgresResource) -> None:
    with pytest.raises(StatementFailed):
        source.execute(f"CREATE TABLE {SCHEMA}.half (n int); SELECT 1/0")
    with pytest.raises(TableMissing):
        source.columns(table("half"))


def test_an_error_in_the_middle_of_a_stream_reaches_the_reader(source: PostgresResource) -> None:
    sql = f"SELECT 1 / (n - 99999) AS q, repeat('x', 500) AS t FROM {SCHEMA}.numbers ORDER BY n"
    with source.read_arrow(sql) as reader, pytest.raises(StatementFailed, match="division by zero"):
        for _ in reader:
            pass
    with source.read_text(sql) as chunks, pytest.raises(StatementFailed, match="division by zero"):
        for _ in chunks:
            pass


def test_batches_are_no_longer_than_asked(source: PostgresResource) -> None:
    with source.read_arrow(f"SELECT n FROM {SCHEMA}.numbers ORDER BY n", batch_rows=999) as reader:
        batches = list(reader)
    assert max(batch.num_rows for batch in batches) == 999
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(1, 100_001))


def test_an_empty_result_still_has_its_schema(source: PostgresResource) -> None:
    with source.read_arrow(f"SELECT n FROM {SCHEMA}.numbers WHERE false") as reader:
        assert reader.schema.names == ["n"]
        assert reader.read_all().num_rows == 0
    with source.read_text(f"SELECT n FROM {SCHEMA}.numbers WHERE false") as chunks:
        assert list(chunks) == []


def test_text_is_copys_own_in_large_chunks_of_whole_rows(
    source: PostgresResource, pg_url: str
) -> None:
    sql = f"SELECT n, repeat('é\t', n % 50), nullif(n % 7, 0) FROM {SCHEMA}.numbers ORDER BY n"
    with source.read_text(sql + ";") as chunks:
        found = list(chunks)
    with (
        psycopg.connect(pg_url) as connection,
        connection.cursor().copy(f"COPY ({sql}) TO STDOUT") as copy,
    ):
        expected = b"".join(bytes(row) for row in copy)
    assert b"".join(found) == expected
    assert all(chunk.endswith(b"\n") for chunk in found)
    assert len(found) > 2 and all(1 << 20 <= len(chunk) < 1 << 21 for chunk in found[:-1])


@pytest.mark.parametrize("value", ["", " ", "\\N", "\t", "\n", "\r", "\\", "😀", "a\\tb"])
def test_text_escapes(source: PostgresResource, value: str) -> None:
    escapes = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
    literal = value.replace("'", "''")
    with source.read_text(f"SELECT '{literal}'::text, NULL::text") as chunks:
        expected = "".join(escapes.get(c, c) for c in value) + "\t\\N\n"
        assert b"".join(chunks).decode() == expected


def test_the_session_does_not_depend_on_defaults(pg_url: str) -> None:
    hostile = (
        "?options=-c%20datestyle%3DGerman%20-c%20timezone%3DAsia/Tokyo%20-c%20intervalstyle%3D"
        "sql_standard%20-c%20extra_float_digits%3D-15%20-c%20bytea_output%3Descape"
        "%20-c%20statement_timeout%3D1h"
    )
    source = PostgresResource(url=pg_url.partition("?")[0] + hostile)
    sql = (
        "SELECT '2024-01-31 12:00+00'::timestamptz::text, '1 day 02:00'::interval::text,"
        " (0.1::float8 + 0.2)::text, '\\x00ff'::bytea::text, current_setting('statement_timeout')"
    )
    expected = ["2024-01-31 12:00:00+00", "1 day 02:00:00", "0.30000000000000004", "\\x00ff", "0"]
    assert list(source.query(sql)[0]) == expected
    with source.read_arrow(sql) as reader:
        assert [column[0].as_py() for column in reader.read_all().columns] == expected
    with source.read_text(sql) as chunks:
        found = b"".join(chunks).decode().rstrip("\n").replace("\\\\", "\\")
        assert found.split("\t") == expected


def test_leaving_early_frees_the_server(source: PostgresResource) -> None:
    endless = f"SELECT a.n FROM {SCHEMA}.numbers a, {SCHEMA}.numbers b /* endless */"
    with source.read_arrow(endless) as reader:
        assert reader.read_next_batch().num_rows > 0
    with source.read_text(endless) as chunks:
        assert next(chunks)
    with pytest.raises(KeyError), source.read_text(f"{endless} ORDER BY a.n + b.n") as chunks:
        raise KeyError
    left = (
        "SELECT count(*) FROM pg_stat_activity"
        f" WHERE query LIKE '%{SCHEMA}%/* endless */%' AND pid <> pg_backend_pid()"
    )
    for _ in range(600):
        if source.query(left) == [(0,)]:
            break
        time.sleep(0.1)
    assert source.query(left) == [(0,)]


def read(source: PostgresResource, sql: str, snapshot: str | None = None) -> list[object]:
    with source.read_arrow(sql, snapshot=snapshot) as reader:
        return [row for (row,) in (column.to_pylist() for column in reader.read_all().columns)]


def test_arrow_sessions_are_kept_as_they_were_found(source: PostgresResource) -> None:
    backend = "SELECT pg_backend_pid() AS pid, current_setting('transaction_isolation') AS level"
    (first, _) = read(source, backend)
    with source.snapshot() as snapshot:
        assert read(source, backend, snapshot) == [first, "repeatable read"]
    assert read(source, backend) == [first, "read committed"], "no transaction is left open"
    with source.read_arrow(f"SELECT n FROM {SCHEMA}.numbers", batch_rows=10) as reader:
        reader.read_next_batch()
    (second, _) = read(source, backend)
    assert second != first, "a query may still run in the one that was left early"
    source.query(f"SELECT pg_terminate_backend({second}, 5000)")
    time.sleep(TRUSTED_SECONDS)
    assert read(source, backend)[0] not in (first, second)


HOLDERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'tableferry' AND state = 'idle in transaction'"
    " AND datname = current_database()"
)


def test_text_sessions_are_kept_as_they_were_found(source: PostgresResource) -> None:
    backend = "SELECT pg_backend_pid(), current_setting('transaction_isolation')"

    def text(snapshot: str | None = None) -> list[str]:
        with source.read_text(backend, snapshot=snapshot) as chunks:
            return b"".join(chunks).decode().strip().split("\t")

    (first, _) = text()
    with source.snapshot() as snapshot:
        assert text(snapshot) == [first, "repeatable read"]
    assert text() == [first, "read committed"], "no transaction is left open"
    with source.read_text(f"SELECT a.n FROM {SCHEMA}.numbers a, {SCHEMA}.numbers b") as chunks:
        next(chunks)
    assert text()[0] != first, "a query may still run in the one that was left early"
    with source.snapshot():
        holder = source.query(HOLDERS)
        assert len(holder) == 1
    assert source.query(HOLDERS) == []
    assert source.query("SELECT pg_backend_pid()") == holder, "and it holds no snapshot"


def test_types_that_are_newer_than_the_session_are_known(source: PostgresResource) -> None:
    read(source, "SELECT 1 AS a")
    source.execute(
        f"CREATE TYPE {SCHEMA}.weather AS ENUM ('good', 'bad');"
        f"CREATE TYPE {SCHEMA}.couple AS (a integer, b {SCHEMA}.weather)"
    )
    good = f"'good'::{SCHEMA}.weather"
    pair = f"SELECT (1, 'bad')::{SCHEMA}.couple AS p"
    assert read(source, f"SELECT {good} AS m, ARRAY[{good}] AS s") == ["good", ["good"]]
    assert read(source, pair) == [{"a": 1, "b": "bad"}]
    source.execute(f"ALTER TYPE {SCHEMA}.couple ADD ATTRIBUTE c text")
    assert read(source, pair.replace(")::", ", 'x')::")) == [{"a": 1, "b": "bad", "c": "x"}]


def test_readers_of_one_snapshot_see_one_state(source: PostgresResource) -> None:
    source.execute(f"CREATE TABLE {SCHEMA}.moving AS SELECT generate_series(1, 10) AS n")
    with source.snapshot() as snapshot, ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            source.execute(f"INSERT INTO {SCHEMA}.moving VALUES (0)")
            assert set(pool.map(lambda _: count(source, "moving", snapshot), range(4))) == {10}
        with source.read_text(f"SELECT n FROM {SCHEMA}.moving", snapshot=snapshot) as chunks:
            assert b"".join(chunks).count(b"\n") == 10
        counted = f"SELECT count(*) FROM {SCHEMA}.moving"
        assert source.query(counted, snapshot=snapshot) == [(10,)]
        assert source.query(counted) == [(13,)]
        snapshot.check()
    assert count(source, "moving") == 13


def end_snapshots(source: PostgresResource) -> None:
    source.query(f"SELECT pg_terminate_backend(pid, 5000) FROM ({HOLDERS}) holders")


def test_a_lost_snapshot_is_told_by_its_holder_and_its_readers(source: PostgresResource) -> None:
    with source.snapshot() as snapshot:
        end_snapshots(source)
        with pytest.raises(SnapshotLost):
            snapshot.check()
        with pytest.raises(SnapshotLost):
            count(source, "numbers", snapshot)
        with pytest.raises(SnapshotLost):
            source.read_text("SELECT 1", snapshot=snapshot).__enter__()
        with pytest.raises(SnapshotLost):
            source.query("SELECT 1", snapshot=snapshot)


def test_a_shared_snapshot_is_renewed_once_for_all_threads(source: PostgresResource) -> None:
    with source.shared_snapshot() as shared, ThreadPoolExecutor(4) as pool:
        first = shared.name()
        assert shared.name() == first and shared.losses == 0
        end_snapshots(source)
        names = set(pool.map(lambda _: str(shared.name()), range(8)))
        assert len(names) == 1 and names != {str(first)}
        assert shared.losses == 1
        assert count(source, "numbers", shared.name()) == 100_000


def test_a_snapshot_that_another_process_holds_is_joined(source: PostgresResource) -> None:
    source.query(f"CREATE TABLE {SCHEMA}.joined AS SELECT 1 AS n")
    with source.snapshot() as held:
        source.query(f"INSERT INTO {SCHEMA}.joined VALUES (2)")
        with source.shared_snapshot(joined=HeldSnapshot(str(held))) as shared:
            assert count(source, "joined", shared.name()) == 1
            end_snapshots(source)
            assert count(source, "joined", shared.name()) == 2, "lost: a later state, of its own"
            assert shared.losses == 1


def test_the_snapshot_of_a_set_is_joined_again_or_given_up(source: PostgresResource) -> None:
    source.query(f"CREATE TABLE {SCHEMA}.in_a_set AS SELECT 1 AS n")
    with source.set_snapshot() as held:
        source.query(f"INSERT INTO {SCHEMA}.in_a_set VALUES (2)")
        holders = {pid for (pid,) in source.query(HOLDERS)}
        with source.shared_snapshot(joined=held.held) as shared:
            first = shared.name()
            assert (shared.state, first.position) == (held.held.state, held.held.position)
            (joiner,) = {pid for (pid,) in source.query(HOLDERS)} - holders
            source.query(f"SELECT pg_terminate_backend({joiner}, 5000)")
            assert shared.name() is not first
            assert count(source, "in_a_set", shared.name()) == 1, "the same state"
            held.check()
            end_snapshots(source)
            with pytest.raises(SetLost, match="run the set again"):
                shared.name()
            with pytest.raises(SnapshotLost):
                held.check()


def test_a_bad_snapshot_name_cannot_inject_sql(source: PostgresResource) -> None:
    with pytest.raises((StatementFailed, SnapshotLost)):
        count(source, "numbers", f"x'; DROP TABLE {SCHEMA}.numbers; --")
    assert count(source, "numbers") == 100_000


PEAK = """
import resource, sys
from tableferry.resources.postgres.resource import PostgresResource
source = PostgresResource(url=sys.argv[1])
sql = f"SELECT g, md5(g::text) a, repeat('x', 60) b FROM generate_series(1, {sys.argv[3]}) g"
with getattr(source, sys.argv[2])(sql) as stream:
    size = sum(len(part) if isinstance(part, bytes) else part.nbytes for part in stream)
print(size >> 20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@pytest.mark.parametrize("method", ["read_arrow", "read_text"])
def test_memory_does_not_grow_with_the_result(stack: Servers, method: str) -> None:
    def peak(rows: int) -> tuple[int, int]:
        command = [sys.executable, "-c", PEAK, stack.postgres_url, method, str(rows)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        size, peak = done.stdout.split()
        return int(size), int(peak)

    (small, low), (large, high) = peak(100_000), peak(600_000)
    assert large - small > 45
    assert high - low < 30
