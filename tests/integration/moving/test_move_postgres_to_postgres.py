"""PostgreSQL to PostgreSQL: what is handed over unparsed, and what has to be converted."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.errors import InsufficientPrivilege

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.proxy import Corrupts
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
ROOT = Path(__file__).resolve().parents[3]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.50 FROM generate_series(1, 1000) g",
)
SELECT = "SELECT id, name, amount::text FROM {t} ORDER BY id"


@pytest.fixture
def second(
    stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A second database, as the connection `second`."""
    name = own("copies_of_second")
    before, _, options = stack.postgres_url.partition("?")
    url = f"{before.rpartition('/')[0]}/{name}" + (f"?{options}" if options else "")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        monkeypatch.setenv("TABLEFERRY_CONNECTION_SECOND", url)
        with psycopg.connect(url, autocommit=True) as there:
            yield there
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def wires(ferry: Ferry, connection: str, schema: str) -> set[object]:
    """Which wire formats rows took, as the event log has it."""
    asset = dg.AssetKey([connection, schema, ferry.table])
    log = ferry.session.instance.fetch_materializations(asset, limit=100).records
    found = [record.asset_materialization.metadata for record in log]
    return {one["wire_format"].value for one in found if "wire_format" in one}


def hop(schema: str) -> str:
    return f"['postgres://{schema}.{{t}}']"


@pytest.mark.parametrize("wire", ["pgcopy", "text"])
def test_a_table_arrives_is_skipped_and_follows(ferry: Make, copies: str, wire: str) -> None:
    hops = f"[{{{{to: 'postgres://{copies}.{{t}}', wire: {wire}}}}}]"
    one = ferry(hops, *TABLE, ranges="{rows: 250}")
    first = one.run()
    assert first.good, first.errors
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    assert one.rows(there) == one.rows(SELECT), "with all their zeros behind the point"
    assert sum(view.rows or 0 for view in first.ranges) == 1000
    assert one.moved(one.run()) == []

    one.source("UPDATE {t} SET name = E'\\\\N\\t' WHERE id = 300", "DELETE FROM {t} WHERE id = 7")
    changed = one.run()
    assert changed.good, changed.errors
    assert one.moved(changed) == ["..0000000251", "0000000251..0000000501"]
    assert one.rows(there) == one.rows(SELECT)


def test_damage_is_found_and_mended(ferry: Make, copies: str) -> None:
    one = ferry(hop(copies), *TABLE, ranges="{rows: 250}")
    assert one.run().good
    one.source(f"UPDATE {copies}.{{t}} SET amount = amount + 0.0001 WHERE id = 600")
    checked = runner.check(one.session, one.table)
    assert not checked.good
    damaged = [one.range for one in checked.checks if one.failed and one.range]
    assert damaged == ["0000000501..0000000751"]
    again = one.run()
    assert again.good and one.moved(again) == damaged
    assert one.rows(SELECT.replace("{t}", f"{copies}.{{t}}")) == one.rows(SELECT)


def test_what_the_wire_changed_is_never_seen(
    ferry: Make, stack: Servers, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(hop(copies), *TABLE, ranges="{rows: 250}")
    assert one.run().good
    before = one.rows(SELECT.replace("{t}", f"{copies}.{{t}}"))
    one.source("UPDATE {t} SET name = 'marker 300' WHERE id = 300")
    with Corrupts(stack.postgres_url, b"marker 300", b"marker 3oo") as proxy:
        monkeypatch.setenv("TABLEFERRY_CONNECTION_PROXY", proxy.url)
        one.declare(f"['proxy://{copies}.{{t}}']", ranges="{rows: 250}")
        # the target is known by the name of another connection
        assert CliRunner().invoke(main, ["clean", one.table, "--markers"]).exit_code == 0
        view = one.run()
        assert proxy.changed
    assert not view.good
    (error,) = view.errors
    assert "checksum" in error
    assert one.rows(SELECT.replace("{t}", f"{copies}.{{t}}")) == before


@pytest.mark.parametrize("mode", ["append", "upsert", "swap"])
def test_write_modes(ferry: Make, copies: str, mode: str) -> None:
    one = ferry(hop(copies), *TABLE, ranges="{rows: 500}", write=mode)
    assert one.run().good
    there = SELECT.replace("{t}", f"{copies}.{{t}}")
    one.source("UPDATE {t} SET name = 'new' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    second = one.run()
    if mode == "append":
        assert not second.good, "the row that is there already differs"
        return
    assert second.good, second.errors
    kept = [(2, "name 2", "3.00")] if mode == "upsert" else []
    assert one.rows(there) == sorted([*one.rows(SELECT), *kept])


def test_a_hop_onto_its_own_table_is_refused(
    ferry: Make, stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_ALIAS", stack.postgres_url)
    one = ferry("['alias://public.{t}']", *TABLE)
    with pytest.raises(InputError, match="are the same table"):
        one.run()
    one.declare("['postgres://public.{t}']")
    assert any("appears twice" in str(each) for each in one.session.declared.invalid)


def test_another_database_and_on_to_it(
    ferry: Make, copies: str, second: psycopg.Connection[tuple[object, ...]]
) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}', 'second://public.{{t}}']", *TABLE)
    view = one.run()
    assert view.good, view.errors
    assert wires(one, "postgres", copies) == wires(one, "second", "public") == {"pgcopy"}
    found = second.execute(SELECT.format(t=one.table).encode()).fetchall()
    assert found == one.rows(SELECT)


TYPES = [
    ("numeric", "'NaN'", "'-1.500'", "1e-300"),
    ("numeric(5,-2)", "12300"),
    ("timestamptz", "'infinity'", "'4713-01-01 00:00:00+00 BC'"),
    ("timestamp(3)", "'294276-12-31 23:59:59.999'"),
    ("date", "'-infinity'", "'5874897-12-31'"),
    ("time", "'24:00:00'"),
    ("timetz(2)", "'23:59:59.99+15:59'"),
    ("interval", "'1 year -2 mons 3 days -04:05:06.789'"),
    ("interval day to second(2)", "'3 days 04:05:06.79'"),
    ("bytea", "'\\x00ff'", "''"),
    ("money", "'-92233720368547758.08'"),
    ("double precision", "'-0'", "'NaN'", "5e-324"),
    ("real", "1e-45"),
    ("character(5)", "'ab'"),
    ("varchar(3)", "'äöü'"),
    ('"char"', "'x'"),
    ("name", "'n'"),
    ("oid", "4294967295"),
    ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'"),
    ("json", '\'{"b":  1, "b": 2}\''),
    ("jsonb", "'{\"b\": [1, null]}'"),
    ("inet", "'::ffff:1.2.3.4/96'", "'1.2.3.4'"),
    ("cidr", "'10.0.0.0/8'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    ("bit(3)", "B'101'"),
    ("bit varying", "B''"),
    ("int4range", "'[1,5)'", "'empty'"),
    ("tstzmultirange", "'{[2020-01-01,2020-02-01)}'"),
    ("point", "'(0.1,-0)'"),
    ("polygon", "'((0,0),(1,1),(1,0))'"),
    ("tsvector", "'a:1 fat:2A'"),
    ("pg_lsn", "'16/B374D848'"),
    ("integer[]", "'{{1,2},{3,NULL}}'", "'[0:1]={1,2}'", "'{}'"),
    ("text[]", "ARRAY['', NULL, 'a\"b,{}']"),
    ("numeric(10,2)[]", "'{1.50,NaN}'"),
]
PLACES = range(max(len(values) for _, *values in TYPES))


@pytest.mark.parametrize(
    ("wire", "cut"),
    [("pgcopy", {}), ("text", {}), ("pgcopy", {"key": "", "ranges": "{by: ctid, count: 2}"})],
)
def test_every_type_keeps_type_and_values(
    ferry: Make, copies: str, pg_url: str, wire: str, cut: dict[str, str]
) -> None:
    with looking.postgres(pg_url) as connection:
        before_15 = connection.info.server_version < 150000
    types = [given for given in TYPES if not (before_15 and given[0] == "numeric(5,-2)")]
    columns = ", ".join(f"c{number} {type_}" for number, (type_, *_) in enumerate(types))
    rows = [
        ", ".join(values[place] if place < len(values) else "NULL" for _, *values in types)
        for place in PLACES
    ]
    inserts = [f"INSERT INTO {{t}} VALUES ({number}, {row})" for number, row in enumerate(rows)]
    one = ferry(
        f"[{{{{to: 'postgres://{copies}.{{t}}', wire: {wire}}}}}]",
        f"CREATE TABLE {{t}} (id integer PRIMARY KEY, {columns})",
        *(
            insert.replace("{", "{{").replace("}", "}}").replace("{{t}}", "{t}")
            for insert in inserts
        ),
        reconcile="full_hash",
        **cut,
    )
    view = one.run()
    assert view.good, view.errors
    texts = ", ".join(f"c{number}::text" for number, _ in enumerate(types))
    assert one.rows(f"SELECT {texts} FROM {copies}.{{t}} ORDER BY id") == one.rows(
        f"SELECT {texts} FROM {{t}} ORDER BY id"
    )
    declared = (
        "SELECT format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
        "WHERE attrelid = '{t}'::regclass AND attnum > 0 AND attname <> '_ctid' ORDER BY attnum"
    )
    assert one.rows(declared.replace("{t}", f"{copies}.{{t}}")) == one.rows(declared)


def test_types_of_ones_own_have_to_be_there(
    ferry: Make, copies: str, second: psycopg.Connection[tuple[object, ...]]
) -> None:
    one = ferry(
        "['second://public.{t}']",
        "CREATE TYPE {t}_mood AS ENUM ('sad', 'so so')",
        "CREATE TYPE {t}_pair AS (a integer, b text)",
        "CREATE DOMAIN {t}_cents AS numeric(9,2) CHECK (value >= 0)",
        "CREATE TABLE {t} (id integer PRIMARY KEY, mood {t}_mood, moods {t}_mood[], "
        "pair {t}_pair, cents {t}_cents, twice numeric GENERATED ALWAYS AS (cents * 2) STORED)",
        "INSERT INTO {t} VALUES (1, 'so so', ARRAY['sad', NULL]::{t}_mood[], (7, 'x'), 1.5)",
    )
    (error,) = one.run().errors
    missing = f'type "public.{one.table}_mood" does not exist'
    assert error == f"second://public.{one.table}: postgres (42704): {missing}"
    second.execute(f"CREATE TYPE {one.table}_mood AS ENUM ('so so', 'sad')".encode())
    second.execute(f"CREATE TYPE {one.table}_pair AS (a integer, b text)".encode())
    view = one.run()
    assert view.good, view.errors
    assert wires(one, "second", "public") == {"text"}
    found = second.execute(
        f"SELECT mood::text, moods::text, pair::text, twice FROM {one.table}".encode()
    ).fetchall()
    assert found == one.rows("SELECT mood::text, moods::text, pair::text, twice FROM {t}")
    assert one.moved(one.run()) == []
    one.declare("['second://public.{t}_text']", columns="{mood: {type: text}}", exclude="[moods]")
    assert one.run().good
    one.source(
        "DROP TABLE {t}", "DROP TYPE {t}_mood", "DROP TYPE {t}_pair", "DROP DOMAIN {t}_cents"
    )


def test_declared_types_are_converted_and_guarded(ferry: Make, copies: str) -> None:
    one = ferry(
        hop(copies),
        *TABLE,
        columns='{amount: {type: "numeric(10,2)"}, name: {type: "varchar(9)"}}',
    )
    view = one.run()
    assert view.good, view.errors
    one.source("UPDATE {t} SET amount = 1.005 WHERE id = 5")
    view = one.run()
    assert not view.good
    assert "'amount'" in view.errors[0] and "without rounding" in view.errors[0]
    one.source("UPDATE {t} SET amount = 1, name = 'ten chars.' WHERE id = 5")
    view = one.run()
    assert not view.good
    assert "longer than the 9 characters" in view.errors[0]


def test_a_table_with_an_identity_column_takes_the_sources_numbers(
    ferry: Make, copies: str
) -> None:
    one = ferry(hop(copies), *TABLE)
    one.source(
        f"CREATE SCHEMA {copies}",
        f"CREATE TABLE {copies}.{{t}} (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "name text, amount numeric NOT NULL, noted timestamptz DEFAULT now())",
    )
    view = one.run()
    assert view.good, view.errors
    assert one.rows(SELECT.replace("{t}", f"{copies}.{{t}}")) == one.rows(SELECT)
    one.declare(hop(copies), write="swap")
    with pytest.raises(InputError, match="would lose the sequence of column 'id'"):
        one.run()


def test_drift(ferry: Make, copies: str) -> None:
    one = ferry(hop(copies), *TABLE, on_schema_drift="add_columns")
    assert one.run().good
    one.source("ALTER TABLE {t} ADD COLUMN doc jsonb DEFAULT '{{}}'")
    view = one.run()
    assert view.good, view.errors
    there = one.rows(f"SELECT count(*) FROM {copies}.{{t}} WHERE doc = '{{{{}}}}'")
    assert there == [(1000,)]


def test_the_roles_of_the_set_up_are_enough(
    ferry: Make, stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docker/setup's files, as an administrator runs them, twice."""
    one = ferry("['postgres://public.{t}']", *TABLE, ranges="{rows: 500}")
    reader, loader, schema = own("set_up_reader"), own("set_up_loader"), own("set_up")
    psql = runpy.run_path(str(ROOT / "docker" / "setup" / "run.py"))["psql"]
    place = urlsplit(stack.postgres_url)

    def url(user: str) -> str:
        return place._replace(netloc=f"{user}:it%27s@{place.netloc.rpartition('@')[2]}").geturl()

    with psycopg.connect(stack.postgres_url, autocommit=True) as admin:
        try:
            for _ in range(2):
                psql(admin, "postgres.sql", {"user": reader, "password": "it's"})
                values = {"user": loader, "password": "it's", "schema": schema}
                psql(admin, "postgres-target.sql", values)
            monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url(reader))
            monkeypatch.setenv("TABLEFERRY_CONNECTION_COPIES", url(loader))
            for mode in ("replace", "append", "upsert", "swap"):
                one.source(
                    "UPDATE {t} SET name = name || '.' WHERE id > 900"
                    if mode != "append"
                    else "SELECT"
                )
                one.declare(f"['copies://{schema}.{{t}}']", ranges="{rows: 500}", write=mode)
                view = one.run()
                assert view.good, view.errors
            copied = admin.execute(SELECT.format(t=f"{schema}.{one.table}").encode()).fetchall()
            assert copied == one.rows(SELECT)
            doctor = CliRunner().invoke(main, ["doctor"])
            assert "GRANT" not in doctor.output, doctor.output
            with psycopg.connect(url(loader)) as limited:
                for statement in (f"SELECT FROM {one.table}", "CREATE SCHEMA mine"):
                    with pytest.raises(InsufficientPrivilege), limited.transaction():
                        limited.execute(statement.encode())
        finally:
            for role in (reader, loader):
                admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
                admin.execute(f"DROP ROLE {role}".encode())
