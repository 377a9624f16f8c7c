"""What each fingerprint sees, and what its documentation says that it misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableferry.assets.planning.ranges.boundaries import KeyStatistics, key_statistics
from tableferry.assets.planning.ranges.cutting import plan_ranges
from tableferry.resources import registry
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.digest.fingerprinting import METHODS, SourceReading, fingerprints
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.support import looking
from tests.integration.support.planning import plan_of
from tests.servers import own

SCHEMA = own("fingerprints")
TABLE = TableRef("postgres", SCHEMA, "t")
T = f"{SCHEMA}.t"

# Values that are equal to PostgreSQL, or easily taken for each other, but differ in what is copied.
CASES = {
    "-0.0 and 0.0": ("float8", "'-0.0'", "'0.0'"),
    "last bit of a double": ("float8", "0.1", "0.10000000000000002"),
    "-0.0 and 0.0, real": ("float4", "'-0.0'", "'0.0'"),
    "last digit of a numeric": ("numeric(38,10)", "1234567890.0000000001", "1234567890.0000000002"),
    "1 day and 24 hours": ("interval", "'1 day'", "'24 hours'"),
    "1 month and 30 days": ("interval", "'1 month'", "'30 days'"),
    "order of json keys": ("json", """'{"a":1,"b":2}'""", """'{"b":2,"a":1}'"""),
    "blanks in json": ("json", """'{"a":1}'""", """'{"a": 1}'"""),
    "scale in jsonb": ("jsonb", "'[1.0]'", "'[1.00]'"),
    "xml": ("xml", "'<a/>'", "'<a></a>'"),
    "NULL and ''": ("text", "NULL", "''"),
    "'' and ' '": ("text", "''", "' '"),
    "trailing blank": ("varchar", "'a'", "'a '"),
    "case": ("text", "'a'", "'A'"),
    "case under a collation that ignores it": (f"text COLLATE {SCHEMA}.nocase", "'a'", "'A'"),
    "one code point": ("text", "'\U0001f600'", "'\U0001f601'"),
    "composed and decomposed": ("text", "U&'\\00e9'", "U&'e\\0301'"),
    "bytes": ("bytea", r"'\x00'", r"'\x0000'"),
    "empty bytes and NULL": ("bytea", "NULL", r"'\x'"),
    "one microsecond": ("timestamp", "'2024-01-01'", "'2024-01-01 00:00:00.000001'"),
    "infinity": ("timestamptz", "'infinity'", "'9999-12-31'"),
    "time zone of a timetz": ("timetz", "'12:00+00'", "'13:00+01'"),
    "-0.0 in an array": ("float8[]", "'{-0.0}'", "'{0.0}'"),
    "scale in an array": ("numeric[]", "'{1.0}'", "'{1.00}'"),
    "NULL and no element": ("int[]", "'{}'", "'{NULL}'"),
    "NULL as text in an array": ("text[]", "'{NULL}'", """'{"NULL"}'"""),
    "bounds of a range": ("numrange", "'[1,2)'", "'[1,2]'"),
    "scale in a range": ("numrange", "'[1.0,2)'", "'[1.00,2)'"),
    "days": ("daterange", "'[2024-01-01,2024-01-02)'", "'[2024-01-01,2024-01-03)'"),
    "mask of an address": ("inet", "'10.0.0.1/32'", "'10.0.0.1/31'"),
    "leading zero of bits": ("varbit", "B'01'", "B'1'"),
    "labels": (f"{SCHEMA}.mood", "'sad'", "'ok'"),
    "money": ("money", "'1.00'", "'1.01'"),
    "uuid": (
        "uuid",
        "'00000000-0000-0000-0000-000000000000'",
        "'00000000-0000-0000-0000-000000000001'",
    ),
    "bool": ("bool", "true", "false"),
    "char": ('"char"', "'a'", "'b'"),
    "row": (f"{SCHEMA}.pair", "'(1,)'", "'(1,\"\")'"),
    "domain": (f"{SCHEMA}.amount", "1.0", "1.01"),
}


NOT_COPIED = {
    "scale of a numeric": ("numeric", "1.0", "1.00"),
    "trailing blank of an unbounded char": ("bpchar", "'a'", "'a '"),
}
"""What differs in the source, but not in what is copied of it."""


@pytest.fixture(scope="module")
def source(pg_url: str) -> Iterator[PostgresResource]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(
            f"""DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;
            CREATE SCHEMA {SCHEMA};
            CREATE TYPE {SCHEMA}.mood AS ENUM ('sad', 'ok');
            CREATE TYPE {SCHEMA}.pair AS (a int, b text);
            CREATE DOMAIN {SCHEMA}.amount AS numeric"""
        )
        yield PostgresResource(url=pg_url)
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def integer_ranges(*cuts: int) -> list[KeyRange]:
    return [
        *plan_ranges(KeyStatistics(0), {"bounds": list(cuts)}, "integer"),
        KeyRange("integer", null=True),
    ]


RANGES = integer_ranges(100, 200)


def read(
    source: PostgresResource,
    method: str = "content",
    ranges: Sequence[KeyRange] = RANGES,
    watermark: str | None = None,
    snapshot: str | None = None,
) -> dict[str, SourceFingerprint]:
    return fingerprints(
        SourceReading(source, plan_of(source, TABLE), snapshot=snapshot, watermark=watermark),
        ranges,
        method,
    )


def changed(before: dict[str, SourceFingerprint], after: dict[str, SourceFingerprint]) -> list[str]:
    assert before.keys() == after.keys()
    return [name for name in before if before[name].value != after[name].value]


def make(source: PostgresResource) -> None:
    looking.execute(
        source,
        f"""DROP TABLE IF EXISTS {T};
        CREATE TABLE {T} (id int, a text, b numeric, at timestamp);
        INSERT INTO {T} SELECT g, 'text ' || g, g / 7.0, '2024-01-01'
        FROM generate_series(1, 300) g;
        INSERT INTO {T} VALUES (NULL, 'null', 0, '2024-01-01')""",
    )


FIRST, SECOND, THIRD, NULL = (key_range.name for key_range in RANGES)

EVENTS = {
    "insert": ("INSERT INTO {t} VALUES (150, 'x', 1, '2024-01-02')", [SECOND]),
    "insert a copy of a row": ("INSERT INTO {t} SELECT * FROM {t} WHERE id = 150", [SECOND]),
    "delete": ("DELETE FROM {t} WHERE id = 150", [SECOND]),
    "delete a NULL key": ("DELETE FROM {t} WHERE id IS NULL", [NULL]),
    "delete a whole range": ("DELETE FROM {t} WHERE id >= 200", [THIRD]),
    "update": ("UPDATE {t} SET a = 'x' WHERE id = 99", [FIRST]),
    "move a key to another range": ("UPDATE {t} SET id = 500 WHERE id = 1", [FIRST, THIRD]),
    "exchange values of two rows": (
        "UPDATE {t} x SET a = y.a FROM {t} y WHERE x.id IN (3, 4) AND y.id = 7 - x.id",
        [FIRST],
    ),
    "exchange keys of two rows": ("UPDATE {t} SET id = 301 - id WHERE id IN (150, 151)", [SECOND]),
    "exchange two columns of a row": ("UPDATE {t} SET a = b, b = 1 WHERE id = 150", [SECOND]),
}


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("sql", "ranges"), EVENTS.values(), ids=EVENTS)
@pytest.mark.parametrize("method", ["content", "row_version"])
def test_a_change_is_seen_in_its_range_only(
    source: PostgresResource, method: str, sql: str, ranges: list[str]
) -> None:
    make(source)
    before = read(source, method)
    assert read(source, method) == before
    looking.execute(source, sql.format(t=T))
    assert changed(before, read(source, method)) == ranges


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("type_", "one", "other"), CASES.values(), ids=CASES)
def test_content_tells_values_apart(
    source: PostgresResource, type_: str, one: str, other: str
) -> None:
    looking.execute(source, f"DROP TABLE IF EXISTS {T}; DROP COLLATION IF EXISTS {SCHEMA}.nocase")
    try:
        if "nocase" in type_:
            looking.execute(
                source,
                f"CREATE COLLATION {SCHEMA}.nocase"
                " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            )
        looking.execute(
            source, f"CREATE TABLE {T} (id int, v {type_}); INSERT INTO {T} VALUES (1, {one})"
        )
    except psycopg.errors.FeatureNotSupported as error:
        pytest.skip(f"this server was built without it: {error}")
    before = read(source)
    looking.execute(source, f"UPDATE {T} SET v = {one}")
    assert read(source) == before, "the same value again is no change"
    looking.execute(source, f"UPDATE {T} SET v = {other}")
    after = read(source)
    assert changed(before, after) == [FIRST]
    looking.execute(source, f"UPDATE {T} SET v = {one}")
    assert read(source) == before


@pytest.mark.parametrize(("type_", "one", "other"), NOT_COPIED.values(), ids=NOT_COPIED)
def test_content_does_not_see_what_is_not_copied(
    source: PostgresResource, type_: str, one: str, other: str
) -> None:
    looking.execute(source, f"DROP TABLE IF EXISTS {T}; CREATE TABLE {T} (id int, v {type_})")
    looking.execute(source, f"INSERT INTO {T} VALUES (1, {one})")
    before = read(source)
    looking.execute(source, f"UPDATE {T} SET v = {other}")
    assert read(source) == before


def test_content_sees_only_what_is_copied(source: PostgresResource) -> None:
    make(source)
    plan = plan_of(source, TABLE, exclude=["b"])
    before = fingerprints(SourceReading(source, plan), RANGES)
    looking.execute(source, f"UPDATE {T} SET b = b + 1")
    assert fingerprints(SourceReading(source, plan), RANGES) == before


def test_content_does_not_mind_where_the_rows_lie(source: PostgresResource) -> None:
    make(source)
    content, version = read(source), read(source, "row_version")
    looking.execute(source, f"CREATE INDEX by_a ON {T} (a)")
    with looking.postgres(source.url or "") as connection:
        connection.execute(f"CLUSTER {T} USING by_a")
    assert read(source) == content
    assert changed(version, read(source, "row_version")), "as documented"


def test_row_version_takes_an_update_without_a_change_for_one(source: PostgresResource) -> None:
    make(source)
    before = read(source, "row_version")
    looking.execute(source, f"UPDATE {T} SET a = a WHERE id = 1")
    assert changed(before, read(source, "row_version")) == [FIRST]


def test_row_version_tells_partitions_apart(source: PostgresResource) -> None:
    looking.execute(
        source,
        f"""DROP TABLE IF EXISTS {T};
        CREATE TABLE {T} (id int, v int) PARTITION BY LIST (v);
        CREATE TABLE {SCHEMA}.t1 PARTITION OF {T} FOR VALUES IN (1);
        CREATE TABLE {SCHEMA}.t2 PARTITION OF {T} FOR VALUES IN (2);
        INSERT INTO {T} VALUES (1, 1), (2, 2)""",
    )
    before = read(source, "row_version")
    looking.execute(source, f"DELETE FROM {T} WHERE id = 2; INSERT INTO {T} VALUES (2, 2)")
    assert changed(before, read(source, "row_version")) == [FIRST]


def test_watermark_sees_inserts_deletes_and_marked_updates(source: PostgresResource) -> None:
    make(source)
    for sql in (
        f"DELETE FROM {T} WHERE id = 151",
        f"INSERT INTO {T} VALUES (151, 'x', 1, '2000-01-01')",
        f"UPDATE {T} SET a = 'y', at = '2024-01-03' WHERE id = 152",
    ):
        before = read(source, "watermark", watermark="at")
        looking.execute(source, sql)
        assert changed(before, read(source, "watermark", watermark="at")) == [SECOND]
    before = read(source, "watermark", watermark="at")
    looking.execute(source, f"UPDATE {T} SET a = 'unmarked' WHERE id = 152")
    assert changed(before, read(source, "watermark", watermark="at")) == [], "as documented"


def test_none_only_counts(source: PostgresResource) -> None:
    make(source)
    before = read(source, "none")
    assert [found.rows for found in before.values()] == [99, 100, 101, 1]
    looking.execute(source, f"DELETE FROM {T} WHERE id < 50")
    after = read(source, "none")
    assert changed(before, after) == []
    assert after[FIRST].rows == 50


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("auto", "none")])
def test_a_method_is_part_of_the_value(source: PostgresResource, method: str) -> None:
    make(source)
    found = read(source, method, watermark="at")
    assert all(fingerprint.value.startswith(f"{method}:") for fingerprint in found.values())


def test_a_snapshot_is_read_as_it_was(source: PostgresResource) -> None:
    make(source)
    with source.snapshot() as snapshot:
        before = read(source)
        looking.execute(source, f"DELETE FROM {T} WHERE id = 1")
        assert read(source, snapshot=snapshot) == before
    assert changed(before, read(source)) == [FIRST]


def test_hundreds_of_ranges_take_one_query_and_agree_with_few(source: PostgresResource) -> None:
    make(source)
    many = integer_ranges(*range(-100, 900))
    found = read(source, ranges=many)
    assert len(found) == 1002
    for key in (1, 150, 300):
        single = KeyRange("integer", key, key + 1)
        assert read(source, ranges=[single])[single.name] == found[single.name]
    assert sum(fingerprint.rows for fingerprint in found.values()) == 301


@pytest.mark.parametrize(
    ("type_", "rows"),
    [
        ("date", "date '2020-01-01' + g"),
        ("timestamp", "timestamp '2020-01-01' + g * interval '1 hour'"),
        ("timestamptz", "timestamptz '2020-01-01 00:00+00' + g * interval '1 hour'"),
        ("uuid", "gen_random_uuid()"),
        ("bigint", "g * 1000000007::bigint"),
    ],
)
def test_every_kind_of_key(source: PostgresResource, type_: str, rows: str) -> None:
    looking.execute(
        source,
        f"""DROP TABLE IF EXISTS {T};
        CREATE TABLE {T} AS SELECT CASE WHEN g % 10 > 0 THEN {rows} END AS k, g AS v
        FROM generate_series(1, 1000) g""",
    )
    columns = source.columns(TABLE)
    kind, digits = key_kind(columns[0], registry.system("postgres"))
    stats = key_statistics(source, TABLE, columns[0])
    ranges = plan_ranges(stats, {"count": 5}, kind, digits)
    for method in ("content", "row_version"):
        found = read(source, method, ranges)
        assert sum(fingerprint.rows for fingerprint in found.values()) == 1000
        assert found["null"].rows == 100


MADE = f"""DROP TABLE IF EXISTS {T} CASCADE; DROP TYPE IF EXISTS {SCHEMA}.lamp, {SCHEMA}.two;
    CREATE TYPE {SCHEMA}.lamp AS ENUM ('on', 'off');
    CREATE TYPE {SCHEMA}.two AS (a int, b {SCHEMA}.lamp);
    CREATE TABLE {T} (id int PRIMARY KEY, c text, lamp {SCHEMA}.lamp, lamps {SCHEMA}.lamp[],
        two {SCHEMA}.two, twice int GENERATED ALWAYS AS (id * 2) {{kind}}, left_out text)
        PARTITION BY RANGE (id);
    CREATE TABLE {SCHEMA}.t1 PARTITION OF {T} FOR VALUES FROM (0) TO (150);
    CREATE TABLE {SCHEMA}.t2 PARTITION OF {T} FOR VALUES FROM (150) TO (1000);
    INSERT INTO {T} SELECT g, NULL, 'on', '{{{{on}}}}', '(1,on)' FROM generate_series(1, 300) g"""

READ_OTHERWISE = {
    "a column that is recreated": "ALTER TABLE {t} DROP c; ALTER TABLE {t} ADD c text",
    "a default for the rows that are there": (
        "ALTER TABLE {t} DROP c; ALTER TABLE {t} ADD c text DEFAULT 'x'"
    ),
    "columns that exchange names": (
        "ALTER TABLE {t} RENAME c TO x; ALTER TABLE {t} RENAME left_out TO c; "
        "ALTER TABLE {t} RENAME x TO left_out"
    ),
    "a label": "ALTER TYPE {s}.lamp RENAME VALUE 'on' TO 'lit'",
    "a part of a row type": "ALTER TYPE {s}.two RENAME ATTRIBUTE a TO z CASCADE",
    "a new part of a row type": "ALTER TYPE {s}.two ADD ATTRIBUTE y int CASCADE",
    "a virtual column": "ALTER TABLE {t} ALTER twice SET EXPRESSION AS (id * 3)",
}
READ_ALIKE = (
    "CREATE TABLE {s}.t3 PARTITION OF {t} FOR VALUES FROM (1000) TO (2000)",
    "ALTER TABLE {t} ALTER left_out SET DEFAULT 'y'",
    "ALTER TABLE {t} ADD more text DEFAULT 'z'",
    "CREATE INDEX ON {t} (c)",
    "ANALYZE {t}",
)


def test_row_version_sees_rows_that_read_otherwise(source: PostgresResource) -> None:
    virtual = int(source.query("SHOW server_version_num")[0][0]) >= 180000
    looking.execute(source, MADE.format(kind="VIRTUAL" if virtual else "STORED"))
    plan = plan_of(source, TABLE, exclude=["left_out"])

    def read() -> set[str]:
        found = fingerprints(SourceReading(source, plan), RANGES, "row_version")
        return {found[name].value for name in (FIRST, SECOND, THIRD)}

    for statements in READ_ALIKE:
        before = read()
        looking.execute(source, statements.format(t=T, s=SCHEMA))
        assert read() == before, statements
    for statements in READ_OTHERWISE.values():
        before = read()
        looking.execute(source, statements.format(t=T, s=SCHEMA))
        assert not read() & before, statements
    with source.snapshot() as snapshot:
        as_of = fingerprints(
            SourceReading(source, plan, snapshot=str(snapshot)), RANGES, "row_version"
        )
        looking.execute(source, f"ALTER TYPE {SCHEMA}.lamp RENAME VALUE 'lit' TO 'bright'")
        again = fingerprints(
            SourceReading(source, plan, snapshot=str(snapshot)), RANGES, "row_version"
        )
        assert again == as_of, "it is of the snapshot's state"
    looking.execute(source, f"DROP TABLE {T}; DROP TYPE {SCHEMA}.two, {SCHEMA}.lamp")


def test_watermark_tells_rows_apart_by_their_primary_key(source: PostgresResource) -> None:
    """A row gives way to another one with the same range key and watermark."""
    make(source)
    looking.execute(source, f"ALTER TABLE {T} ADD day int NOT NULL DEFAULT 150, ADD own int")
    looking.execute(source, f"UPDATE {T} SET own = coalesce(id, 0)")
    plan = plan_of(source, TABLE)
    plan = replace(plan, key=next(one for one in plan.columns if one.source.name == "day"))

    def read() -> SourceFingerprint:
        return fingerprints(SourceReading(source, plan, watermark="at"), RANGES, "watermark")[
            SECOND
        ]

    with pytest.raises(InputError, match=r"no primary key.*301 rows have 1 different.*'day'"):
        read()
    looking.execute(source, f"ALTER TABLE {T} ADD PRIMARY KEY (own)")
    before = read()
    row = "(5, 'new', 1, '2024-01-01', 150, 9999)"
    looking.execute(source, f"DELETE FROM {T} WHERE own = 5; INSERT INTO {T} VALUES {row}")
    assert read().value != before.value


@pytest.mark.parametrize("system", ["sqlserver", "clickhouse"])
def test_watermark_tells_rows_apart_elsewhere(system: str, mssql_url: str, ch_url: str) -> None:
    """ClickHouse has no primary key that would: no key may be there twice."""
    server: SqlServerResource | ClickHouseResource = SqlServerResource(url=mssql_url)
    schema, types = "dbo", "own int NOT NULL PRIMARY KEY, day int NOT NULL, at int NOT NULL"
    if system == "clickhouse":
        server = ClickHouseResource(url=ch_url)
        schema, types = "warehouse", "own Int32, day Int32, at Int32"
    table = TableRef(system, schema, own("marked"))
    name, engine = f"{schema}.{table.name}", " ENGINE = MergeTree ORDER BY own"
    server.execute(f"CREATE TABLE {name} ({types}){engine if system == 'clickhouse' else ''}")
    try:
        server.execute(f"INSERT INTO {name} VALUES (1, 101, 1), (2, 102, 1)")
        columns = server.columns(table)
        plan = plan_copy(table, columns, TableRef("postgres", "public", "t"), key="day")

        def read() -> str:
            return fingerprints(SourceReading(server, plan, watermark="at"), RANGES, "watermark")[
                SECOND
            ].value

        before = read()
        server.execute(f"DELETE FROM {name} WHERE own = 2")
        server.execute(f"INSERT INTO {name} VALUES (3, 102, 1)")
        assert (read() != before) is (system == "sqlserver")
        server.execute(f"INSERT INTO {name} VALUES (4, 102, 1)")
        if system == "sqlserver":
            assert read().startswith("watermark:md5-2:3:")
        else:
            with pytest.raises(InputError, match=r"no primary key.*3 rows have 2 different"):
                read()
    finally:
        server.execute(f"DROP TABLE {name}")


def test_row_version_refuses_a_view(source: PostgresResource) -> None:
    looking.execute(source, f"CREATE OR REPLACE VIEW {SCHEMA}.v AS SELECT 1 AS id")
    view = TableRef("postgres", SCHEMA, "v")
    plan = plan_of(source, view)
    assert fingerprints(SourceReading(source, plan), RANGES)[FIRST].rows == 1
    with pytest.raises(InputError, match="this is a view; use content"):
        fingerprints(SourceReading(source, plan), RANGES, "row_version")


def test_the_greatest_watermark_is_one_that_can_be_gone_on_from(source: PostgresResource) -> None:
    make(source)
    looking.execute(
        source,
        f"UPDATE {T} SET at = '2024-02-03 04:05:06.789' WHERE id = 150;"
        f"UPDATE {T} SET at = 'infinity' WHERE id = 250;"
        f"UPDATE {T} SET at = NULL WHERE id IS NULL",
    )
    plan = plan_of(source, TABLE)
    found = fingerprints(
        SourceReading(source, plan, watermark="at", greatest=True), RANGES, "watermark"
    )
    assert {name: one.greatest for name, one in found.items()} == {
        FIRST: "2024-01-01T00:00:00",
        SECOND: "2024-02-03T04:05:06.789000",
        THIRD: None,
        NULL: None,
    }
    assert found == read(source, "watermark", watermark="at"), "it is no part of the fingerprint"


def test_a_missing_watermark_and_an_unknown_method_are_refused(source: PostgresResource) -> None:
    make(source)
    with pytest.raises(InputError, match="the watermark column 'nope' does not exist"):
        read(source, "watermark", watermark="nope")
    with pytest.raises(InputError, match="should be one of auto, content, row_version"):
        read(source, "xmin")


ROWS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"])),
        st.one_of(st.none(), st.sampled_from(["0.0", "-0.0", "1"])),
    ),
    max_size=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ROWS, ROWS)
def test_equal_content_is_equal_rows_whatever_their_order(
    source: PostgresResource,
    one: list[tuple[int, str | None, str | None]],
    other: list[tuple[int, str | None, str | None]],
) -> None:
    found = []
    for rows in (one, other, one[::-1]):
        with looking.postgres(source.url or "") as connection:
            connection.execute(
                f"DROP TABLE IF EXISTS {T}; CREATE TABLE {T} (id int, a text, b float8)"
            )
            connection.cursor().executemany(f"INSERT INTO {T} VALUES (%s, %s, %s)", rows)
        found.append(read(source)[FIRST])
    assert found[2] == found[0]
    assert (found[0] == found[1]) is (Counter(one) == Counter(other))
