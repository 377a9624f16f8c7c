"""What a table that is recreated has of the one that it replaces, and what it is refused for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tableferry_local import postgres as local_postgres
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import SQLSERVER, named, own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
SCHEMAS = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": ""}
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, code int NOT NULL, name text)",
    "INSERT INTO {t} SELECT i, i, 'n' || i FROM generate_series(1, 30) i",
)
RETYPED = "ALTER TABLE {t} ALTER code TYPE text USING 'c' || code"


@pytest.fixture(autouse=True)
def postgres_schema(monkeypatch: pytest.MonkeyPatch, copies: str) -> None:
    monkeypatch.setitem(SCHEMAS, "postgres", copies)


def moved(ferry: Make, system: str, **settings: str) -> Ferry:
    """A transfer that has run once."""
    one = ferry(f"['{system}://{SCHEMAS[system]}.{{t}}']", *TABLE, **settings)
    view = one.run()
    assert view.good, view.errors
    return one


def do(one: Ferry, system: str, *statements: str) -> None:
    """Run statements on the target's server; `{t}` is the target."""
    server = one.session.servers.endpoints[system]
    for statement in statements:
        server.execute(statement.format(t=f"{SCHEMAS[system]}.{one.table}", name=one.table))


def ask(one: Ferry, system: str, query: str) -> list[looking.Row]:
    server = one.session.servers.endpoints[system]
    return server.query(query.format(t=f"{SCHEMAS[system]}.{one.table}", name=one.table))


def staging_tables(one: Ferry, system: str) -> list[str]:
    """What runs have left beside the target."""
    beside = f"FROM information_schema.tables WHERE table_schema = '{SCHEMAS[system]}'"
    names = [str(name) for (name,) in ask(one, system, f"SELECT table_name {beside}")]
    return [name for name in names if name.startswith(f"{one.table}__ferry")]


def refusal(one: Ferry) -> str:
    """Why a run that recreates the table is refused."""
    try:
        view = one.run(recreate=True)
    except Exception as error:
        return str(error)
    assert not view.good
    return "; ".join(view.errors)


@pytest.mark.parametrize("system", SCHEMAS)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_the_mode_keeps_are_not_lost(ferry: Make, system: str, mode: str) -> None:
    one = moved(ferry, system, write=mode)
    one.source("DELETE FROM {t} WHERE id <= 10", RETYPED)
    why = refusal(one)
    assert f"'write: {mode}' keeps" in why and one.table in why, why
    assert ask(one, system, "SELECT COUNT(*) FROM {t}") == [(30,)]
    assert staging_tables(one, system) == []
    one.declare(f"['{system}://{SCHEMAS[system]}.{{t}}']", write="replace")
    view = one.run(recreate=True)
    assert view.good, view.errors
    assert ask(one, system, "SELECT COUNT(*) FROM {t}") == [(20,)]


@pytest.mark.parametrize("system", ["postgres", "clickhouse"])
def test_a_range_whose_values_are_quarantined_and_an_incremental_one(
    ferry: Make, system: str
) -> None:
    watermarked = {"fingerprint": "{watermark: code}", "incremental": "true"}
    one = moved(ferry, system, write="upsert", **watermarked)
    assert "'write: upsert' keeps" in refusal(one)
    do(one, system, "TRUNCATE TABLE {t}")
    view = one.run(recreate=True)
    assert view.good, view.errors
    one.declare(
        f"['{system}://{SCHEMAS[system]}.{{t}}']",
        columns="{code: {type: " + ("smallint" if system == "postgres" else "Int16") + "}}",
        on_reject="quarantine",
        max_rejected="5",
    )
    one.source("UPDATE {t} SET code = 40000 WHERE id = 7")
    view = one.run(recreate=True)
    assert view.good, view.errors
    assert ask(one, system, "SELECT COUNT(*) FROM {t}") == [(29,)]
    rejected = "SELECT COUNT(*) FROM {t}__rejected"
    assert ask(one, system, rejected) == [(1,)]
    assert one.run().good
    assert ask(one, system, rejected) == [(1,)]


@pytest.mark.parametrize("system", SCHEMAS)
def test_columns_of_others_are_not_lost(ferry: Make, system: str) -> None:
    one = moved(ferry, system)
    type_ = {"clickhouse": "String", "postgres": "text", "sqlserver": "nvarchar(20)"}[system]
    column = "" if system == "sqlserver" else "COLUMN "
    do(one, system, f"ALTER TABLE {{t}} ADD {column}own_note {type_}")
    update = "UPDATE {t} SET own_note = 'mine' WHERE id = 3"
    if system == "clickhouse":
        update = "ALTER TABLE {t} UPDATE own_note = 'mine' WHERE id = 3 SETTINGS mutations_sync = 2"
    do(one, system, update)
    one.source(RETYPED)
    assert "'own_note'" in refusal(one)
    assert ask(one, system, "SELECT own_note FROM {t} WHERE id = 3") == [("mine",)]
    assert staging_tables(one, system) == []


@pytest.fixture
def roles(ferry: Make) -> Iterator[Callable[[Ferry], tuple[str, str]]]:
    """Makes an owner and a reader, who go with the test."""
    made: list[tuple[Ferry, str]] = []

    def make(one: Ferry) -> tuple[str, str]:
        names = own("table_owner"), own("table_reader")
        for name in names:
            one.source(f"CREATE ROLE {name}")
            made.append((one, name))
        return names

    yield make
    for one, name in made:
        one.source(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


GIVEN = """
SELECT pg_get_userbyid(relowner), obj_description(c.oid, 'pg_class'),
    (SELECT array_agg(g::text ORDER BY g::text) FROM unnest(relacl) g),
    (SELECT array_agg(a.attname || a.attacl::text ORDER BY attnum)
        FROM pg_attribute a
        WHERE a.attrelid = c.oid AND attacl IS NOT NULL),
    (SELECT array_agg(d ORDER BY d) FROM pg_index i CROSS JOIN LATERAL regexp_replace(
        pg_get_indexdef(i.indexrelid), 'INDEX .* ON', 'INDEX ON') d WHERE i.indrelid = c.oid)
FROM pg_class c WHERE c.oid = '{t}'::regclass
"""


@pytest.mark.parametrize("mode", ["replace", "swap"])
def test_what_a_new_postgres_table_takes_over(
    ferry: Make, roles: Callable[[Ferry], tuple[str, str]], mode: str
) -> None:
    one = moved(ferry, "postgres", write=mode)
    owner, reader = roles(one)
    schema = SCHEMAS["postgres"]
    do(
        one,
        "postgres",
        f"GRANT CREATE, USAGE ON SCHEMA {schema} TO {owner}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT DELETE ON TABLES TO {reader}",
        f"ALTER TABLE {{t}} OWNER TO {owner}",
        f"GRANT SELECT ON {{t}} TO {reader} WITH GRANT OPTION",
        "GRANT SELECT ON {t} TO PUBLIC",
        f"GRANT UPDATE (name), SELECT (name) ON {{t}} TO {reader}",
        "COMMENT ON TABLE {t} IS 'the team''s own'",
        "COMMENT ON COLUMN {t}.name IS 'a name'",
        'CREATE INDEX "{name} by Name" ON {t} (lower(name)) WHERE id > 3',
        "CREATE UNIQUE INDEX {name}_twice ON {t} (id, name) INCLUDE (code)",
    )
    before = ask(one, "postgres", GIVEN)
    assert owner in before[0] and len(before[0][4]) == 3
    one.source("UPDATE {t} SET name = 'changed' WHERE id = 5")
    for _ in range(2):
        view = one.run(recreate=mode == "replace", force=True)
        assert view.good, view.errors
        assert ask(one, "postgres", GIVEN) == before
        comment = ask(one, "postgres", "SELECT col_description('{t}'::regclass, 3)")
        assert comment == [("a name" if mode == "swap" else None,)]
    assert staging_tables(one, "postgres") == []


POSTGRES = {
    "trigger tr_own": (
        "CREATE FUNCTION {s}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER tr_own BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION {s}.f()",
        "DROP FUNCTION {s}.f() CASCADE",
    ),
    "rule ru_own": (
        "CREATE RULE ru_own AS ON DELETE TO {t} DO ALSO NOTHING",
        "DROP RULE ru_own ON {t}",
    ),
    "check ck_own": (
        "ALTER TABLE {t} ADD CONSTRAINT ck_own CHECK (id > 0)",
        "ALTER TABLE {t} DROP CONSTRAINT ck_own",
    ),
    "unique un_own": (
        "ALTER TABLE {t} ADD CONSTRAINT un_own UNIQUE (name)",
        "ALTER TABLE {t} DROP CONSTRAINT un_own",
    ),
    "foreign key fk_own": (
        "CREATE TABLE {s}.other (id int PRIMARY KEY)",
        "INSERT INTO {s}.other SELECT id FROM {t}",
        "ALTER TABLE {t} ADD CONSTRAINT fk_own FOREIGN KEY (id) REFERENCES {s}.other",
        "DROP TABLE {s}.other CASCADE",
    ),
    "foreign key fk_to": (
        "CREATE TABLE {s}.other (id int CONSTRAINT fk_to REFERENCES {t})",
        "DROP TABLE {s}.other",
    ),
    "view": ("CREATE VIEW {s}.v AS SELECT id FROM {t}", "DROP VIEW {s}.v"),
    "default of column name": (
        "ALTER TABLE {t} ALTER name SET DEFAULT 'x'",
        "ALTER TABLE {t} ALTER name DROP DEFAULT",
    ),
    "identity of column nr": (
        "ALTER TABLE {t} ADD nr int GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE {t} DROP nr",
    ),
    "expression of column upp": (
        "ALTER TABLE {t} ADD upp text GENERATED ALWAYS AS (upper(name)) STORED",
        "ALTER TABLE {t} DROP upp",
    ),
    "row security pol": ("CREATE POLICY pol ON {t} USING (true)", "DROP POLICY pol ON {t}"),
    "publication {p}": ("CREATE PUBLICATION {p} FOR TABLE {t}", "DROP PUBLICATION {p}"),
    "replica identity": (
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        "ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
    ),
    "extended statistics st": (
        "CREATE STATISTICS {s}.st ON id, name FROM {t}",
        "DROP STATISTICS {s}.st",
    ),
    "storage parameters fillfactor=70": (
        "ALTER TABLE {t} SET (fillfactor = 70)",
        "ALTER TABLE {t} RESET (fillfactor)",
    ),
    "setting of column name": (
        "ALTER TABLE {t} ALTER name SET STATISTICS 500",
        "ALTER TABLE {t} ALTER name SET STATISTICS -1",
    ),
    "inheritance": ("CREATE TABLE {s}.child () INHERITS ({t})", "DROP TABLE {s}.child"),
    "dependent function": (
        "CREATE FUNCTION {s}.g() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM {t}; END",
        "DROP FUNCTION {s}.g()",
    ),
    "persistence UNLOGGED": ("ALTER TABLE {t} SET UNLOGGED", "ALTER TABLE {t} SET LOGGED"),
    "clustering": (
        "ALTER TABLE {t} CLUSTER ON {name}_pkey",
        "ALTER TABLE {t} SET WITHOUT CLUSTER",
    ),
}


def test_what_a_new_postgres_table_would_lack_is_refused_by_name(ferry: Make) -> None:
    one = moved(ferry, "postgres")
    schema, publication = SCHEMAS["postgres"], own("recreated")
    for what, (*statements, undone) in POSTGRES.items():
        filled = [each.replace("{s}", schema).replace("{p}", publication) for each in statements]
        do(one, "postgres", *filled)
        why = refusal(one)
        assert what.replace("{p}", publication) in why, (what, why)
        assert staging_tables(one, "postgres") == []
        do(one, "postgres", undone.replace("{s}", schema).replace("{p}", publication))
    one.source(RETYPED)
    do(one, "postgres", "CREATE INDEX by_number ON {t} ((code + 1))")
    assert '__ferry_shadow: index "by_number": postgres (42883): operator' in refusal(one)
    assert staging_tables(one, "postgres") == []
    do(one, "postgres", f"DROP INDEX {schema}.by_number")
    view = one.run(recreate=True)
    assert view.good, view.errors


CLICKHOUSE = {
    "skipping index ix": (
        "ALTER TABLE {t} ADD INDEX ix code TYPE minmax",
        "ALTER TABLE {t} DROP INDEX ix",
    ),
    "projection pr": (
        "ALTER TABLE {t} ADD PROJECTION pr (SELECT code, count() GROUP BY code)",
        "ALTER TABLE {t} DROP PROJECTION pr",
    ),
    "constraint ck": (
        "ALTER TABLE {t} ADD CONSTRAINT ck CHECK id > 0",
        "ALTER TABLE {t} DROP CONSTRAINT ck",
    ),
    "default of column name": (
        "ALTER TABLE {t} MODIFY COLUMN name DEFAULT 'x'",
        "ALTER TABLE {t} MODIFY COLUMN name REMOVE DEFAULT",
    ),
    "materialized of column upp": (
        "ALTER TABLE {t} ADD COLUMN upp Int32 MATERIALIZED code + 1",
        "ALTER TABLE {t} DROP COLUMN upp",
    ),
    "codec of column code": (
        "ALTER TABLE {t} MODIFY COLUMN code CODEC(ZSTD(3))",
        "ALTER TABLE {t} MODIFY COLUMN code REMOVE CODEC",
    ),
    "TTL of the table": (
        "ALTER TABLE {t} MODIFY TTL toDate('2100-01-01') + toIntervalDay(id)",
        "ALTER TABLE {t} REMOVE TTL",
    ),
    "setting merge_with_ttl_timeout": (
        "ALTER TABLE {t} MODIFY SETTING merge_with_ttl_timeout = 86400",
        "ALTER TABLE {t} RESET SETTING merge_with_ttl_timeout",
    ),
    "materialized view": (
        "CREATE MATERIALIZED VIEW {t}_mv ENGINE = MergeTree ORDER BY id AS SELECT id FROM {t}",
        "DROP TABLE {t}_mv",
    ),
}


def test_what_a_new_clickhouse_table_would_lack_is_refused_by_name(ferry: Make) -> None:
    one = moved(ferry, "clickhouse")
    for what, (statement, undone) in CLICKHOUSE.items():
        do(one, "clickhouse", statement)
        why = refusal(one)
        assert what in why, (what, why)
        assert staging_tables(one, "clickhouse") == []
        do(one, "clickhouse", undone)
    do(
        one,
        "clickhouse",
        "ALTER TABLE {t} MODIFY COMMENT 'the team''s own'",
        "ALTER TABLE {t} COMMENT COLUMN name 'a name'",
    )
    one.source(RETYPED)
    for mode in ("replace", "swap"):
        one.declare("['clickhouse://warehouse.{t}']", write=mode)
        view = one.run(recreate=mode == "replace", force=True)
        assert view.good, view.errors
        comments = (
            "SELECT comment FROM system.tables WHERE database = 'warehouse' AND name = '{name}' "
            "UNION ALL SELECT comment FROM system.columns "
            "WHERE database = 'warehouse' AND table = '{name}' AND comment != ''"
        )
        assert ask(one, "clickhouse", comments) == [("the team's own",)]


def through_sqlserver(one: Ferry, *statements: str) -> None:
    """Run statements on the SQL Server; on the stand-in, whose T-SQL lacks them, behind it."""
    if named(SQLSERVER):
        return do(one, "sqlserver", *statements)
    behind = one.stack.postgres_url.rpartition("/")[0]
    table = f'"tableferry.dbo"."{one.table}'
    looking.ask_postgres(
        f"{behind}/{local_postgres.SQLSERVER_DATABASE}",
        *(
            each.format(t=f'{table}"', name=one.table, child=f'{table}_child"')
            for each in statements
        ),
    )


def test_what_a_new_sqlserver_table_would_lack_is_refused_by_name(ferry: Make) -> None:
    one = moved(ferry, "sqlserver")
    do(one, "sqlserver", "CREATE TABLE {t}_child (id int NOT NULL PRIMARY KEY)")
    do(one, "sqlserver", "INSERT INTO {t}_child SELECT id FROM {t}")
    child = "dbo.{name}_child" if named(SQLSERVER) else "{child}"
    for named_key, of, to in (
        ("foreign key of another table fk_to", child, "{t}"),
        ("foreign key fk_own", "{t}", child),
    ):
        name = named_key.rpartition(" ")[2]
        key = f"ADD CONSTRAINT {name} FOREIGN KEY (id) REFERENCES {to} (id)"
        through_sqlserver(one, f"ALTER TABLE {of} {key}")
        why = refusal(one)
        assert named_key in why, why
        through_sqlserver(one, f"ALTER TABLE {of} DROP CONSTRAINT {name}")
    assert staging_tables(one, "sqlserver") == []
    one.source(RETYPED)
    for _ in range(2):
        view = one.run(recreate=True, force=True)
        assert view.good, view.errors
    do(one, "sqlserver", "CREATE INDEX ix_own ON {t} (id)")
    assert "index ix_own" in refusal(one)
    do(one, "sqlserver", "DROP TABLE {t}_child")
