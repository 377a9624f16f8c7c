"""`fingerprint: auto` reads contents only where row versions have changed, and misses nothing.

What each fingerprint sees is in `test_fingerprints.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tableferry.assets.planning.ranges.boundaries import KeyStatistics
from tableferry.assets.planning.ranges.cutting import plan_ranges
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.one.validation import validate
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.errors import InputError, StatementFailed, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.places import blocks
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry, by_range
from tests.integration.support import looking
from tests.integration.support.planning import plan_of
from tests.servers import own

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("digests_by_servers")]

SCHEMA = own("versions_first")
TABLE = TableRef("postgres", SCHEMA, "t")
RANGES: list[KeyRange] = [*plan_ranges(KeyStatistics(0), {"bounds": [100, 200]}, "integer")]
FIRST, SECOND, THIRD = (key_range.name for key_range in RANGES)
VERSIONS, CONTENT = "row versions", "content"

MADE = """
CREATE TABLE {t} (id int PRIMARY KEY, a text, b numeric) WITH (autovacuum_enabled = false);
INSERT INTO {t} SELECT g, 'text ' || g, g / 7.0 FROM generate_series(1, 300) g;
"""
COPIED = "CREATE TABLE {s}.new (LIKE {t} INCLUDING ALL); INSERT INTO {s}.new SELECT * FROM {t};"
SWAPPED = "DROP TABLE {t}; ALTER TABLE {s}.new RENAME TO t"

SAME_CONTENT = {
    "rows written as they are": ("UPDATE {t} SET a = a WHERE id = 150", [SECOND]),
    "a rewrite": ("DELETE FROM {t} WHERE id = 1; INSERT INTO {t} SELECT 1, 'text 1', 1 / 7.0; "
                  "ALTER TABLE {t} SET UNLOGGED", [FIRST, SECOND, THIRD]),
    "a restored dump": (COPIED + SWAPPED, [FIRST, SECOND, THIRD]),
    "truncated and filled again": (
        COPIED + "TRUNCATE {t}; INSERT INTO {t} SELECT * FROM {s}.new; DROP TABLE {s}.new",
        [FIRST, SECOND, THIRD],
    ),
}  # fmt: skip
OTHER_CONTENT = {
    "an update": "UPDATE {t} SET a = 'x' WHERE id = 150",
    "another table by its name": COPIED + "UPDATE {s}.new SET a = 'y' WHERE id = 150;" + SWAPPED,
    "a type without a rewrite": "ALTER TABLE {t} ADD c int DEFAULT 1; ALTER TABLE {t} DROP a; "
    "ALTER TABLE {t} RENAME c TO a",
}

NAMES = "ALTER TABLE {t} ALTER a TYPE regclass USING '{s}.named'::regclass;"
NOT_BY_VERSIONS = {
    "names of objects": (
        "CREATE TABLE {s}.named (); " + NAMES,
        "ALTER TABLE {s}.named RENAME TO x",
    ),
    "an output function": (
        "CREATE TYPE {s}.own; CREATE FUNCTION {s}.own_in(cstring) RETURNS {s}.own IMMUTABLE STRICT "
        "LANGUAGE internal AS 'textin'; CREATE FUNCTION {s}.own_out({s}.own) RETURNS cstring "
        "IMMUTABLE STRICT LANGUAGE internal AS 'textout'; CREATE TYPE {s}.own "
        "(INPUT = {s}.own_in, OUTPUT = {s}.own_out, LIKE = text); "
        "CREATE DOMAIN {s}.amount AS {s}.own; ALTER TABLE {t} ADD c {s}.amount[]",
        None,
    ),
    "a cast": (
        "CREATE TYPE {s}.mood AS ENUM ('sad'); CREATE FUNCTION {s}.shown({s}.mood) RETURNS text "
        "IMMUTABLE LANGUAGE sql AS $$ SELECT 'x'::text $$; "
        "CREATE CAST ({s}.mood AS text) WITH FUNCTION {s}.shown; ALTER TABLE {t} ADD c {s}.mood",
        None,
    ),
    "a cast of an item": (
        "CREATE TYPE {s}.pair AS (one int, two int); CREATE FUNCTION {s}.shown({s}.pair) "
        "RETURNS json IMMUTABLE LANGUAGE sql AS $$ SELECT '1'::json $$; "
        "CREATE CAST ({s}.pair AS json) WITH FUNCTION {s}.shown; ALTER TABLE {t} ADD c {s}.pair[]",
        None,
    ),
    "a cast of the server's own type": (
        "CREATE FUNCTION {s}.shown(jsonpath) RETURNS text IMMUTABLE LANGUAGE sql "
        "AS $$ SELECT 'x'::text $$; CREATE CAST (jsonpath AS text) WITH FUNCTION {s}.shown; "
        "ALTER TABLE {t} ADD c jsonpath",
        None,
    ),
    "an output function of items": (
        "CREATE EXTENSION citext SCHEMA {s}; ALTER TABLE {t} ADD c {s}.citext[]",
        None,
    ),
    "a view": ("ALTER TABLE {t} RENAME TO u; CREATE VIEW {t} AS SELECT id, a, b FROM {s}.u", None),
}  # fmt: skip

BY_VERSIONS = {
    "other casts": "CREATE EXTENSION citext SCHEMA {s}; CREATE EXTENSION hstore SCHEMA {s}",
    "a column of an extension": "CREATE EXTENSION citext SCHEMA {s}; "
    "CREATE DOMAIN {s}.mail AS {s}.citext; ALTER TABLE {t} ADD c {s}.citext, ADD d {s}.mail",
    "casts to other types": "CREATE TYPE {s}.geometry AS ENUM ('POINT'); "
    "CREATE FUNCTION {s}.parsed(text) RETURNS {s}.geometry IMMUTABLE LANGUAGE sql "
    "AS $$ SELECT 'POINT'::{s}.geometry $$; "
    "CREATE CAST (text AS {s}.geometry) WITH FUNCTION {s}.parsed AS IMPLICIT; "
    "CREATE CAST (text AS uuid) WITH INOUT",
}
"""What may be made without another reading of contents."""


@pytest.fixture
def source(pg_url: str) -> Iterator[PostgresResource]:
    # casts and extensions are a database's; connections to one that was dropped may be kept
    database = f"{SCHEMA}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
        resource = PostgresResource(url=urlsplit(pg_url)._replace(path=f"/{database}").geturl())
        execute(resource, f"CREATE SCHEMA {SCHEMA}; {MADE}")
        yield resource
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


def execute(source: PostgresResource, statements: str) -> None:
    looking.execute(source, statements.format(t=f"{SCHEMA}.t", s=SCHEMA))


def read(
    source: PostgresResource,
    recorded: dict[str, SourceFingerprint] | None = None,
    method: str = "auto",
    **plan: Any,
) -> dict[str, SourceFingerprint]:
    return fingerprints(
        SourceReading(source, plan_of(source, TABLE, **plan)), RANGES, method, recorded=recorded
    )


def by_content(found: dict[str, SourceFingerprint]) -> list[str]:
    assert {one.found_by for one in found.values()} <= {VERSIONS, CONTENT}
    return [name for name, one in found.items() if one.found_by == CONTENT]


@pytest.mark.invariant("I6")
def test_contents_are_read_where_row_versions_changed(source: PostgresResource) -> None:
    before = read(source)
    assert before == read(source, method="content"), "it is the content's fingerprint"
    assert by_content(before) == [FIRST, SECOND, THIRD]
    again = read(source, before)
    assert again == before and by_content(again) == []
    for what, (statements, changed) in SAME_CONTENT.items():
        execute(source, statements)
        found = read(source, before)
        assert sorted(by_content(found)) == sorted(changed), what
        assert found == before, what
        before = read(source, found)
        assert by_content(before) == [], what
    for what, statement in OTHER_CONTENT.items():
        execute(source, statement)
        found = read(source, before)
        assert found[SECOND].found_by == CONTENT and found[SECOND] != before[SECOND], what
        assert found == read(source, method="content"), what
        before = found


def test_versions_stand_for_the_columns_that_they_were_recorded_with(
    source: PostgresResource,
) -> None:
    whole = read(source, exclude=["b"])
    assert by_content(read(source, whole, exclude=["b"])) == []
    assert by_content(read(source, whole)) == [FIRST, SECOND, THIRD]


@pytest.mark.invariant("I6")
@pytest.mark.parametrize("what", NOT_BY_VERSIONS)
def test_values_that_are_no_part_of_the_row_are_read(source: PostgresResource, what: str) -> None:
    made, changed = NOT_BY_VERSIONS[what]
    execute(source, made)
    before = read(source)
    if changed:
        execute(source, changed)
    found = read(source, before)
    assert by_content(found) == [FIRST, SECOND, THIRD]
    assert (found != before) is bool(changed)


@pytest.mark.parametrize("what", BY_VERSIONS)
def test_casts_that_no_digest_uses_leave_the_row_versions(
    source: PostgresResource, what: str
) -> None:
    execute(source, BY_VERSIONS[what])
    assert by_content(read(source, read(source))) == []


def test_a_partition_that_was_altered_apart_is_read(source: PostgresResource) -> None:
    """Its column gets the number that another partition's has, and its rows keep their versions."""
    execute(
        source,
        """DROP TABLE {t};
        CREATE TABLE {t} (id int, a text, b numeric) PARTITION BY RANGE (id);
        CREATE TABLE {s}.t1 PARTITION OF {t} FOR VALUES FROM (0) TO (150);
        CREATE TABLE {s}.t2 (id int, old int, b numeric, a text);
        ALTER TABLE {s}.t2 DROP old;
        ALTER TABLE {t} ATTACH PARTITION {s}.t2 FOR VALUES FROM (150) TO (400);
        INSERT INTO {t} SELECT g, 'text ' || g, g / 7.0 FROM generate_series(1, 300) g""",
    )
    before = read(source)
    assert by_content(read(source, before)) == []
    execute(
        source,
        """ALTER TABLE {t} DETACH PARTITION {s}.t1;
        ALTER TABLE {s}.t1 DROP a;
        ALTER TABLE {s}.t1 ADD a text;
        ALTER TABLE {t} ATTACH PARTITION {s}.t1 FOR VALUES FROM (0) TO (150)""",
    )
    found = read(source, before)
    assert found == read(source, method="content")
    assert found[FIRST] != before[FIRST]


def test_a_rewritten_table_is_digested_once_and_moves_nothing(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, a text)",
        "INSERT INTO {t} SELECT g, 'text ' || g FROM generate_series(1, 300) g",
        ranges="{bounds: [101, 201]}",
    )
    asked: list[str] = []
    query = PostgresServer.query

    def watched(server: PostgresServer, sql: str, *args: Any, **options: Any) -> Any:
        asked.append(sql)
        return query(server, sql, *args, **options)

    monkeypatch.setattr(PostgresServer, "query", watched)

    def digests(run: Callable[[], object]) -> int:
        """How many queries digest the table."""
        asked.clear()
        run()
        return sum("md5(" in sql and one.table in sql for sql in asked)

    def reasons() -> set[tuple[str, str | None]]:
        return {(range_.reason, range_.detail) for range_ in by_range(one.plan()).values()}

    view = one.run()
    assert view.good and len(one.moved(view)) == 3
    versions = {(range_.hop, range_.range): range_.data_version for range_ in view.ranges}
    assert digests(one.run) == 0
    assert digests(one.plan) == 0 and reasons() == {("unchanged", VERSIONS)}
    one.source(
        "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_new SELECT * FROM {t}",
        "DROP TABLE {t}",
        "ALTER TABLE {t}_new RENAME TO {t}",
    )
    assert reasons() == {("unchanged", CONTENT)}
    seen = one.materializations("sqlserver", "dbo")

    def restored() -> None:
        view = one.run()
        assert view.good and view.run_ids and one.moved(view) == []
        assert versions == {
            (range_.hop, range_.range): range_.data_version for range_ in view.ranges
        }
        assert {range_.unchanged_by for range_ in by_range(view).values()} == {CONTENT}

    assert digests(restored) == 1
    assert one.materializations("sqlserver", "dbo") == seen
    assert digests(one.plan) == 0 and reasons() == {("unchanged", VERSIONS)}
    assert one.run().run_ids == [], "the new row versions are recorded"
    one.source("UPDATE {t} SET a = 'x' WHERE id = 150")
    view = one.run()
    assert one.moved(view) == ["0000000101..0000000201"]
    one.declare(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
        ranges="{bounds: [101, 201]}",
        fingerprint="content",
    )
    assert reasons() == {("unchanged", None)}, "the data version is that of the content"


IN_SQL_SERVER = {
    "an update": "UPDATE {t} SET a = N'x' WHERE id = 150",
    "a column recreated": "ALTER TABLE {t} DROP COLUMN a; "
    "ALTER TABLE {t} ADD a nvarchar(20) NOT NULL CONSTRAINT {c} DEFAULT N'y'",
    "a computed column": "ALTER TABLE {t} DROP CONSTRAINT {c}; ALTER TABLE {t} DROP COLUMN a; "
    "ALTER TABLE {t} ADD a AS id * 2",
}


def test_rowversion_columns_of_sql_server_are_asked_first(mssql_url: str) -> None:
    resource = SqlServerResource(url=mssql_url)
    table = TableRef("sqlserver", "dbo", SCHEMA)

    def execute(statements: str) -> None:
        for statement in statements.format(t=f"dbo.{SCHEMA}", c=f"{SCHEMA}_a").split("; "):
            resource.execute(statement)

    def read(recorded: dict[str, SourceFingerprint]) -> dict[str, SourceFingerprint]:
        plan = plan_of(resource, table, exclude=["v"])
        return fingerprints(SourceReading(resource, plan), RANGES, "auto", recorded=recorded)

    try:
        execute("CREATE TABLE {t} (id int PRIMARY KEY, a nvarchar(20), v rowversion)")
    except StatementFailed as error:
        pytest.skip(f"Babelfish has no rowversion columns: {error}")
    try:
        execute("; ".join(f"INSERT {{t}} (id, a) VALUES ({id}, N'text')" for id in (50, 150, 250)))
        before = read({})
        assert by_content(before) == [FIRST, SECOND, THIRD]
        again = read(before)
        assert again == before and by_content(again) == []
        for what, statements in IN_SQL_SERVER.items():
            execute(statements)
            found = read(before)
            assert found[SECOND].found_by == CONTENT and found[SECOND] != before[SECOND], what
            changed = {SECOND} if what == "an update" else {FIRST, SECOND, THIRD}
            assert set(by_content(found)) == changed, what
            before = found
        assert by_content(read(before)) == [FIRST, SECOND, THIRD], "it is computed"
    finally:
        execute("DROP TABLE {t}")


def test_where_only_columns_are_granted_the_content_counts_and_a_note_says_why(
    ferry: Callable[..., Ferry], pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops, role = "['clickhouse://warehouse.{t}']", own("columns_only")
    one = ferry(
        hops,
        "CREATE TABLE {t} (id int PRIMARY KEY, open text, secret text)",
        "INSERT INTO {t} SELECT g, 'open', 'secret' FROM generate_series(1, 300) g",
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT SELECT (id, open) ON {{t}} TO {role}",
    )
    parts = urlsplit(pg_url)
    there = parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}").geturl()
    monkeypatch.setenv("TABLEFERRY_CONNECTION_THERE", there)
    declared = {"source": f"there://public.{one.table}", "exclude": "[secret]"}
    try:
        one.declare(hops, **declared)
        assert validate(one.session) == {one.table: []}
        plan = one.plan()
        why = [note for note in plan.notes if "fingerprint auto reads the content" in note]
        assert len(why) == 1 and "permission denied" in why[0] and one.table in why[0]
        view = one.run()
        assert view.good, view.errors
        assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}
        one.source("UPDATE {t} SET secret = 'other' WHERE id = 7")
        assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}
        one.source("UPDATE {t} SET open = 'other' WHERE id = 7")
        assert "source_changed" in {planned.reason for planned in one.plan().ranges}
        assert one.run().good and runner.check(one.session, one.table).good

        one.declare(hops, **declared, fingerprint="row_version")
        with pytest.raises(TableferryError, match=r"fingerprint row_version.*permission denied"):
            one.plan()
        with pytest.raises(InputError, match="may not SELECT from as a whole"):
            blocks(PostgresResource(url=there), TableRef("postgres", "public", one.table))
    finally:
        one.source("DROP TABLE {t}", f"DROP ROLE {role}")
