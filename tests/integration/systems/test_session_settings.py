"""What a role, a database or a schema has by default changes nothing of what PostgreSQL does."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

import pytest

from tableferry.resources.errors import ConnectionFailed
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.settings import SESSION
from tableferry.resources.registry import system
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

ADVERSE = {
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "xmlbinary": "hex",
    "xmloption": "document",
    "row_security": "on",
    "gin_fuzzy_search_limit": "1",
    "client_encoding": "LATIN1",
    "TimeZone": "Asia/Tokyo",
    "timezone_abbreviations": "India",
    "DateStyle": "German",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_monetary": "POSIX",
    "lc_numeric": "POSIX",
    "lc_time": "POSIX",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "exit_on_error": "on",
    "statement_timeout": "100ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "100ms",
    "idle_session_timeout": "100ms",
    "transaction_timeout": "100ms",
    "tcp_keepalives_idle": "7200",
    "tcp_keepalives_interval": "75",
    "tcp_keepalives_count": "9",
}
FOR_ADMINISTRATORS = {"zero_damaged_pages": "on", "ignore_checksum_failure": "on"}

HIJACKS = (
    # better matches than those of pg_catalog, for the types that a call has
    "FUNCTION {s}.octet_length(varchar) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "FUNCTION {s}.md5(varchar) RETURNS text LANGUAGE sql AS 'SELECT ''x'''",
    "FUNCTION {s}.count() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
    "FUNCTION {s}.set_config(text, text, bool) RETURNS text LANGUAGE sql AS 'SELECT $2'",
    "FUNCTION {s}.never(varchar, varchar) RETURNS bool LANGUAGE sql AS 'SELECT false'",
    "OPERATOR {s}.= (FUNCTION = {s}.never, LEFTARG = varchar, RIGHTARG = varchar)",
    "TABLE {s}.pg_class (oid oid, relname name)",
)

ROWS = (
    "(E'a\\\\', 'x', '1 day', 1.5, '\\x00ff', '{{1,NULL}}', '2024-01-31 12:00+00', 'a', NULL),"
    "(E'b\\\\', '', '-1 day +02:00', 0.1, '', '{{}}', '1970-01-01 00:00+00', 'A', 12.5),"
    "(E'x''; DROP TABLE app.kept; --\\\\', 'NULL', '0', 'NaN', NULL, '{{2}}',"
    " '2100-01-01 00:00+00', 'ß', 0)"
)


@dataclasses.dataclass
class Adverse:
    """A database of its own, and a login for which every setting is adverse."""

    admin: str
    url: str
    role: str

    def make_adverse(self, settings: dict[str, str]) -> None:
        """Set for role and database, and for the role in the database, which wins."""
        database = urlsplit(self.url).path[1:]
        for name, value in settings.items():
            wheres = (f"ROLE {self.role}", f"DATABASE {database}")
            for where in (*wheres, f"ROLE {self.role} IN DATABASE {database}"):
                looking.ask_postgres(self.admin, f"ALTER {where} SET {name} = '{value}'")


@pytest.fixture
def adverse(stack: Servers) -> Iterator[Adverse]:
    # a name of its own in each test: connections to one that was dropped may still be kept
    database = role = f"{own('adverse')}_{uuid.uuid4().hex[:8]}"
    admin = urlsplit(stack.postgres_url)
    looking.ask_postgres(
        stack.postgres_url,
        f"CREATE DATABASE {database}",
        f"CREATE ROLE {role} LOGIN PASSWORD 'Adv3rse-pw'",
        f"GRANT CREATE ON DATABASE {database} TO {role}",
    )
    there = admin._replace(path=f"/{database}")
    login = there._replace(netloc=f"{role}:Adv3rse-pw@{admin.hostname}:{admin.port}")
    yield Adverse(there.geturl(), login.geturl(), role)
    looking.ask_postgres(
        stack.postgres_url,
        f"DROP DATABASE {database} WITH (FORCE)",
        f"DROP ROLE {role}",
    )


def test_every_setting_is_pinned_or_known_to_be_harmless(stack: Servers) -> None:
    assert {*ADVERSE, *FOR_ADMINISTRATORS} == {*SESSION}
    wanted = ", ".join(f"'{name}'" for name in SESSION)
    sql = f"SELECT count(*) FROM pg_settings WHERE name IN ({wanted})"
    (there,) = looking.ask_postgres(stack.postgres_url, sql)[0]
    assert there >= len(SESSION) - 1, "transaction_timeout is there from version 17 on"


def test_an_adverse_login_reads_and_writes_the_same(
    ferry: Callable[..., Ferry], adverse: Adverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", adverse.admin)
    hops = "['clickhouse://warehouse.{t}']"
    one = ferry(hops)
    looking.ask_postgres(
        adverse.admin,
        "CREATE SCHEMA app",
        "CREATE TYPE app.mood AS ENUM ('a', 'A', 'ß')",
        "CREATE TABLE app.kept (id int)",
        f"CREATE TABLE app.{one.table} (id varchar PRIMARY KEY, note varchar, span interval,"
        " n numeric, raw bytea, list int[], at timestamptz, mood app.mood, money numeric(9,2))",
        f"INSERT INTO app.{one.table} VALUES {ROWS}".replace("{{", "{").replace("}}", "}"),
        f"GRANT USAGE, CREATE ON SCHEMA app TO {adverse.role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA app TO {adverse.role}",
        f"ALTER SCHEMA public OWNER TO {adverse.role}",
    )
    declared = {
        "source": f"there://app.{one.table}",
        "where": "note IS NOT NULL",
        "ranges": '{bounds: ["a\\\\", "b\\\\"]}',
    }
    columns = "{n: {type: {clickhouse: String}}}"
    one.declare(hops, **declared, columns=columns)
    view = one.run()
    assert view.good, view.errors
    sql = f"SELECT * FROM warehouse.{one.table} ORDER BY id"
    before = one.session.servers.endpoints["clickhouse"].query(sql)
    back = "['there://app.{t}_copy']"
    looking.ask_postgres(
        adverse.admin,
        *(f"CREATE {what.format(s='public')}" for what in HIJACKS),
        f"ALTER TABLE app.{one.table} SET (autovacuum_enabled = off)",
    )
    adverse.make_adverse({**ADVERSE, "search_path": "public, pg_catalog"})
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", adverse.url)
    one.declare(hops, **declared, columns=columns)
    assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}
    view = one.run(force=True)
    assert view.good, view.errors
    assert one.session.servers.endpoints["clickhouse"].query(sql) == before
    one.declare(back, **declared, reconcile="full_hash")
    view = one.run()
    assert view.good, view.errors
    own_rows = f"SELECT id, t::text FROM app.{one.table} t ORDER BY 1"
    copied = own_rows.replace(one.table, f"{one.table}_copy")
    assert looking.ask_postgres(adverse.admin, copied) == looking.ask_postgres(
        adverse.admin, own_rows
    )
    assert looking.ask_postgres(adverse.admin, "SELECT count(*) FROM app.kept") == [(0,)]


@pytest.mark.parametrize("name", FOR_ADMINISTRATORS)
def test_what_a_login_may_not_set_is_refused(adverse: Adverse, name: str) -> None:
    adverse.make_adverse({name: FOR_ADMINISTRATORS[name]})
    with pytest.raises(ConnectionFailed, match=name):
        PostgresResource(url=adverse.url).ping()


def test_a_stronger_setting_is_left_alone(stack: Servers) -> None:
    url = stack.postgres_url.partition("?")[0]
    for asked, kept in (("remote_apply", "remote_apply"), ("local", "on"), ("off", "on")):
        options = quote(f"-c synchronous_commit={asked}", safe="")
        source = PostgresResource(url=f"{url}?options={options}")
        assert source.query("SHOW synchronous_commit") == [(kept,)]


@pytest.mark.parametrize(
    ("limit", "of_role", "kept"),
    [("", 4, "1"), ("10", 4, "4"), ("2", 10, "2"), ("0", 2, "0"), ("", 0, "0"), ("none", 4, "4")],
)
def test_a_source_bounds_parallel_workers_and_never_adds_any(
    stack: Servers, monkeypatch: pytest.MonkeyPatch, limit: str, of_role: int, kept: str
) -> None:
    url = stack.postgres_url.partition("?")[0]
    server = PostgresResource(
        url=f"{url}?options={quote(f'-c max_parallel_workers_per_gather={of_role}', safe='')}"
    )
    asked = "SHOW max_parallel_workers_per_gather"
    if limit:
        monkeypatch.setenv("TABLEFERRY_POSTGRES_SOURCE_LIMITS", f"parallel_workers={limit}")
    source = server.within_budget("postgres")
    assert source.query(asked) == [(kept,)]
    assert server.query(asked) == [(str(of_role),)], "a target is not bounded"
    with source.read_arrow("SELECT current_setting('max_parallel_workers_per_gather') s") as reader:
        assert reader.read_all().column("s").to_pylist() == [kept]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_a_literal_means_the_same_under_either_setting(stack: Servers, conforming: str) -> None:
    texts = ["\\", "a\\", "\\'", "\\\\''", "x'; SELECT 1; --\\", "\\047", "\n\\\t"]
    listed = ", ".join(system("postgres").dialect.literal(text) for text in texts)
    with looking.postgres(stack.postgres_url) as connection, connection.transaction():
        connection.execute(f"SET LOCAL standard_conforming_strings = {conforming}".encode())
        found = connection.execute(f"SELECT ARRAY[{listed}]".encode()).fetchall()
    assert found == [(texts,)]


def test_types_of_extensions_are_found_in_any_schema(
    ferry: Callable[..., Ferry], adverse: Adverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", adverse.admin)
    hops = "['there://app.{t}_copy']"
    one = ferry(hops)
    looking.ask_postgres(
        adverse.admin,
        "CREATE SCHEMA app",
        'CREATE SCHEMA "Ext. 1"',
        'CREATE EXTENSION citext SCHEMA "Ext. 1"',
        'CREATE EXTENSION hstore SCHEMA "Ext. 1"',
        f'CREATE TABLE app.{one.table} (id "Ext. 1".citext PRIMARY KEY, h "Ext. 1".hstore)',
        f"INSERT INTO app.{one.table} VALUES ('a', 'x=>1'), ('B', NULL), ('c', NULL)",
    )
    declared = {
        "source": f"there://app.{one.table}",
        "where": '"id OPERATOR(\\"Ext. 1\\".<>) \'C\'"',
        "write": "upsert",
    }
    one.declare(hops, **declared)
    view = one.run()
    assert view.good, view.errors
    looking.ask_postgres(
        adverse.admin,
        f"UPDATE app.{one.table}_copy SET id = 'A' WHERE id = 'a'",
        f"UPDATE app.{one.table} SET h = 'y=>2'",
    )
    view = one.run()
    rows = f"SELECT id::text, h::text FROM app.{one.table}_copy ORDER BY 1"
    found = looking.ask_postgres(adverse.admin, rows)
    assert found == [("A", '"y"=>"2"'), ("B", '"y"=>"2"')], view.errors
