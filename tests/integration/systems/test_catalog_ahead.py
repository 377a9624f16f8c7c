"""What a catalog says about many tables at once is what it says about each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tableferry.assets.planning.servers import Servers as Endpoints
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.catalog import inspection_of
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.looking_ahead import LookAhead
from tableferry.resources.contract.markers import MARKERS, Publication
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import TableferryError, TableMissing
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry_local.postgres import SQLSERVER_DATABASE
from tests.integration.support import looking
from tests.servers import SQLSERVER as SQLSERVER_URL
from tests.servers import Servers, named, own

pytestmark = pytest.mark.integration

SCHEMA = own("catalog_ahead")
KEY = Column("id", "integer", nullable=False, primary_key=1)
NO_SUCH = "no_such"

POSTGRES = """
DROP SCHEMA IF EXISTS {s} CASCADE; CREATE SCHEMA {s};
CREATE TYPE {s}.mood AS ENUM ('sad', 'glad');
CREATE TYPE {s}.pair AS (a int, b {s}.mood);
CREATE DOMAIN {s}.amount AS numeric(9, 2) NOT NULL;
CREATE TABLE {s}.plain (id int PRIMARY KEY, name text COLLATE "C");
CREATE TABLE {s}.typed (id int, m {s}.mood, p {s}.pair[], a {s}.amount, b int, PRIMARY KEY (b, id));
CREATE TABLE {s}.by_name (id int PRIMARY KEY, r regclass);
CREATE TABLE {s}.parts (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE {s}.part (y int, x int, id int NOT NULL);
ALTER TABLE {s}.part DROP y;
ALTER TABLE {s}.parts ATTACH PARTITION {s}.part FOR VALUES FROM (0) TO (9);
CREATE TABLE {s}.base (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE {s}.heir (z text DEFAULT 'z') INHERITS ({s}.base);
CREATE TABLE {s}."Odd ""name's" (id int PRIMARY KEY, "a b" int);
CREATE FUNCTION {s}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER t BEFORE INSERT ON {s}.plain FOR EACH ROW EXECUTE FUNCTION {s}.f();
CREATE TRIGGER u AFTER UPDATE ON {s}.part FOR EACH ROW EXECUTE FUNCTION {s}.f();
CREATE RULE r AS ON INSERT TO {s}.typed DO INSTEAD NOTHING;
CREATE TABLE {s}.child (id int PRIMARY KEY, p int REFERENCES {s}.plain ON DELETE CASCADE,
    q int REFERENCES {s}.child ON UPDATE SET NULL);
CREATE VIEW {s}.seen AS SELECT plain.id FROM {s}.plain JOIN {s}.parts USING (id);
GRANT SELECT ON {s}.seen TO PUBLIC;
"""
SQLSERVER = (
    "CREATE TABLE {s}.plain (id int NOT NULL PRIMARY KEY, name nvarchar(20))",
    "CREATE TABLE {s}.typed (a int NOT NULL, id int IDENTITY NOT NULL, d decimal(12,3), "
    "twice AS a * 2, PRIMARY KEY (id, a))",
    "CREATE TABLE {s}.[Odd ' name] (id int NOT NULL, [a b] datetime2(3))",
    "CREATE TABLE {s}.child (id int NOT NULL PRIMARY KEY, p int)",
)
REFERS = "ALTER TABLE {s}.child ADD FOREIGN KEY (p) REFERENCES {s}.plain (id) ON DELETE CASCADE"
CLICKHOUSE = (
    "CREATE TABLE {s}.plain (id Int32, name Nullable(String)) ENGINE = MergeTree ORDER BY id",
    "CREATE TABLE {s}.cut (id Int32, twice Int32 ALIAS id * 2, _range UInt64 MATERIALIZED 0) "
    "ENGINE = MergeTree ORDER BY id PARTITION BY _range",
    "CREATE TABLE {s}.merged (id Int32, at DateTime DEFAULT now()) "
    "ENGINE = ReplacingMergeTree ORDER BY at TTL at + INTERVAL 9 YEAR",
    "CREATE TABLE {s}.`odd ' name` (id Int32) ENGINE = Log",
    "CREATE MATERIALIZED VIEW {s}.reads TO {s}.merged AS SELECT id FROM {s}.plain",
)


@pytest.fixture
def postgres(stack: Servers) -> Iterator[Endpoint]:
    looking.ask_postgres(stack.postgres_url, POSTGRES.format(s=SCHEMA))
    yield PostgresResource(url=stack.postgres_url)
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture
def sqlserver(stack: Servers) -> Iterator[Endpoint]:
    ask = looking.ask_sqlserver
    ask(stack.sqlserver_url, f"CREATE SCHEMA {SCHEMA}")
    for statement in SQLSERVER:
        ask(stack.sqlserver_url, statement.format(s=SCHEMA))
    if named(SQLSERVER_URL):
        ask(stack.sqlserver_url, REFERS.format(s=SCHEMA))
    else:  # behind the stand-in
        database = f"{stack.postgres_url.rpartition('/')[0]}/{SQLSERVER_DATABASE}"
        looking.ask_postgres(database, REFERS.format(s=f'"tableferry.{SCHEMA}"'))
    yield SqlServerResource(url=stack.sqlserver_url)
    for table in ("child", "plain", "typed", "[Odd ' name]", MARKERS):
        ask(stack.sqlserver_url, f"DROP TABLE IF EXISTS {SCHEMA}.{table}")
    ask(stack.sqlserver_url, f"DROP SCHEMA {SCHEMA}")


@pytest.fixture
def clickhouse(stack: Servers) -> Iterator[Endpoint]:
    server = ClickHouseResource(url=stack.clickhouse_url)
    server.execute(f"CREATE DATABASE {SCHEMA}")
    for statement in CLICKHOUSE:
        server.execute(statement.format(s=SCHEMA))
    yield server
    server.execute(f"DROP DATABASE {SCHEMA}")


def plan_of(target: TableRef) -> CopyPlan:
    return plan_copy(TableRef("postgres", "public", "t"), [KEY], target, key="id")


def publish(server: Endpoint, *names: str) -> None:
    """Publish a range of tables that have a column `id` alone, so that there are markers."""
    for name in names:
        table = TableRef(server.system_name, SCHEMA, name)
        plan, options = plan_of(table), TargetOptions()
        target = loader_of(server.system).open(server)
        target.prepare(plan, options)
        key_range = KeyRange("integer", 0, 10)
        with target.marking(Publication(plan, key_range, f"version of {name}", "me"), options):
            pass


def told(server: Endpoint, table: TableRef) -> dict[str, Any]:
    """All that decisions ask a catalog about a table."""
    plan, target = plan_of(table), loader_of(table.system).open(server)
    swap = TargetOptions(mode=WriteMode.SWAP)
    questions: dict[str, Callable[[], Any]] = {
        "columns": lambda: server.columns(table),
        "hidden": lambda: inspection_of(table.system).withheld_from(server, table)[0],
        "required": lambda: target.require(plan, TargetOptions()),
        "hazards": lambda: target.hazards(plan, TargetOptions(), ()),
        "hazards of a swap": lambda: target.hazards(plan, swap, ()),
        "markers": lambda: target.published(plan, TargetOptions()),
    }
    source = source_of(table.system)
    if table.name != NO_SUCH:
        for name, columns in (("all", server.columns(table)), ("id", [KEY])):
            copied = [column.name for column in columns]
            questions |= {
                f"row versions of {name}": lambda: source.row_version(server, table),
                f"reading of {name}": lambda c=copied: source.catalog_state(server, table, c),
                f"tie of {name}": lambda c=copied: source.version_scope(server, table, c),
            }
    return {name: _answer(question) for name, question in questions.items()}


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except TableferryError as error:
        return type(error), str(error)


def both(server: Endpoint, *names: str) -> Mapping[str, dict[str, Any]]:
    """What the catalog says about tables together, after the test that it says the same alone."""
    tables = [TableRef(server.system_name, SCHEMA, name) for name in (*names, NO_SUCH)]
    ahead = LookAhead(tables)
    looking_ahead = server.looking_ahead(ahead)
    together = {table.name: told(looking_ahead, table) for table in tables}
    for table in tables:
        assert told(server, table) == together[table.name]
    assert ahead.changed(looking_ahead) == set()
    assert together[NO_SUCH]["columns"][0] is TableMissing
    return together


def test_of_postgres(postgres: Endpoint) -> None:
    publish(postgres, "heir", "child")
    names = ("plain", "typed", "by_name", "parts", "base", "heir", "Odd \"name's", "child", "seen")
    answers = both(postgres, *names)
    kinds = {name: {each.kind for each in answers[name]["hazards"]} for name in names}
    assert kinds["plain"] == {"trigger", "foreign key"} and kinds["typed"] == {"rule"}
    assert kinds["base"] == {"table"} and not kinds["child"]
    assert not kinds["Odd \"name's"]
    assert "reading view" not in kinds["plain"]
    assert "view" in {each.kind for each in answers["plain"]["hazards of a swap"]}
    tied = {name for name in names if answers[name]["tie of all"] is not None}
    assert tied == {*names} - {"by_name", "seen"}
    assert answers["by_name"]["tie of id"] is not None
    assert len({answers[name]["reading of all"] for name in names}) == len(names)
    assert answers["seen"]["row versions of all"][0] is not None
    assert [*answers["child"]["markers"].of_target] == ["0000000000..0000000010"]
    assert not answers["plain"]["markers"].of_target


def test_of_sqlserver(sqlserver: Endpoint) -> None:
    publish(sqlserver, "plain")
    answers = both(sqlserver, "plain", "typed", "Odd ' name", "child", "PLAIN")
    primary_key = {each.name: each.primary_key for each in answers["typed"]["columns"]}
    assert (primary_key["id"], primary_key["a"], primary_key["d"]) == (1, 2, None)
    assert [each.name for each in answers["typed"]["columns"] if each.identity] == ["id"]
    assert [each.name for each in answers["typed"]["columns"] if each.generated] == ["twice"]
    assert [each.kind for each in answers["plain"]["hazards"]] == ["foreign key"]
    assert answers["typed"]["hazards"] == answers["child"]["hazards"] == []
    assert answers["plain"]["markers"].of_target and not answers["child"]["markers"].of_target


def test_of_clickhouse(clickhouse: Endpoint) -> None:
    publish(clickhouse, "plain", "merged")
    answers = both(clickhouse, "plain", "cut", "merged", "odd ' name")
    assert [each.name for each in answers["cut"]["columns"]] == ["id", "twice"]
    assert {each.kind for each in answers["merged"]["hazards"]} == {"engine", "TTL"}
    assert [each.kind for each in answers["plain"]["hazards"]] == ["materialized view"]
    assert answers["cut"]["markers"].cuts_matter and not answers["plain"]["markers"].cuts_matter
    versions = {marker.version for marker in answers["merged"]["markers"].of_target.values()}
    assert versions == {"version of merged"}


def test_another_database_changes_nothing(clickhouse: Endpoint) -> None:
    tables = [TableRef(clickhouse.system_name, SCHEMA, "plain")]
    ahead = LookAhead(tables)
    told(clickhouse.looking_ahead(ahead), tables[0])
    clickhouse.execute(f"CREATE DATABASE {SCHEMA}_other")
    try:
        assert ahead.changed(clickhouse) == set()
    finally:
        clickhouse.execute(f"DROP DATABASE {SCHEMA}_other")


def test_names_that_are_equal_to_the_server(sqlserver: Endpoint) -> None:
    tables = [TableRef("sqlserver", SCHEMA.upper(), name) for name in ("PLAIN", "typed", "Child")]
    looking_ahead = sqlserver.looking_ahead(LookAhead(tables))
    for table in tables:
        assert looking_ahead.columns(table) == sqlserver.columns(table)


def test_of_servers_one_connection_at_a_time(postgres: Endpoint, clickhouse: Endpoint) -> None:
    tables = [TableRef(name, SCHEMA, "plain") for name in ("postgres", "clickhouse")]
    servers = Endpoints({"postgres": postgres, "clickhouse": clickhouse})
    ahead = servers.looking_ahead(tables)
    assert [len(ahead.endpoint(table).columns(table)) for table in tables] == [2, 2]
    assert ahead.changed() == set()
    clickhouse.execute(f"ALTER TABLE {SCHEMA}.plain DROP COLUMN name")
    assert [len(ahead.endpoint(table).columns(table)) for table in tables] == [2, 2]
    assert ahead.changed() == {tables[1]}
    assert all(endpoint.ahead is None for endpoint in servers.endpoints.values())
    applies = ahead.endpoint(tables[0]).under_policies()
    assert applies.ahead is None, "under policies the catalog may look otherwise"
