"""Tables, schemas and columns of any name, through every command, on all three systems."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from tableferry.assets.asset_keys import asset_key, table_of
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.definitions import build
from tableferry.resources import registry
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.markers import Publication, markers_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import Target
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

TABLES = [
    "Order Details",
    "order-lines.2024",
    "Заказы",
    "select",
    'say "hi"',
    "it's",
    "a]b",
    "back`tick",
    "%",
    "😀",
]
NAMES = [
    *TABLES,
    "[red]a[/red]",
    "back\\slash",
    "%s %(a)s",
    "{}",
    "{table}",
    "?",
    ":x",
    "$1",
    "<b>&",
    "a|b",
    "x" * 60,
]
ALL_IN_ONE = 'Заказ "a]b" it\'s {}.[b]`\\ %s? 😀<i>'
RENAMED = 'it\'s "new" `now`'
SUFFIX = uuid.uuid4().hex[:6]
PARTS = [name for name in NAMES if name not in ("Order Details", "a]b", "it's")]
"""Columns besides those with a part of their own: the key, the primary key's second, a renamed."""


def sources(system: str = "postgres") -> TableRef:
    return TableRef(system, f's. "ab" it\'s 😀 {SUFFIX}', ALL_IN_ONE)


def columns() -> str:
    types = {"Order Details": "bigint NOT NULL", "a]b": "integer NOT NULL", "it's": "text"}
    types |= dict.fromkeys(PARTS, "text")
    listed = ", ".join(
        f"{registry.system('postgres').quote(name)} {type_}" for name, type_ in types.items()
    )
    return f'{listed}, PRIMARY KEY ("Order Details", "a]b")'


@pytest.fixture
def ferry(
    request: pytest.FixtureRequest, stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Runs a command on a transfer of a table with such names through both other systems."""
    wire = getattr(request, "param", "arrow")
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    source = sources()
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE SCHEMA {registry.system('postgres').quote(source.schema)}".encode()
        )
        connection.execute(f"CREATE TABLE {qualified(source)} ({columns()})".encode())
        values = ", ".join(f"'{number} ' || g" for number in range(len(PARTS)))
        connection.execute(
            f"INSERT INTO {qualified(source)} SELECT g, g % 7, 'x', {values} "
            "FROM generate_series(1, 40) g".encode()
        )
        database = registry.system("clickhouse").quote(source.schema)
        server = ClickHouseResource(url=stack.clickhouse_url)
        server.execute(f"CREATE DATABASE {database}")
        document = {
            "transfer": "awkward",
            "source": str(source),
            "hops": [
                {"to": str(sources("sqlserver")), "wire": wire},
                {"to": str(sources("clickhouse")), "wire": wire},
            ],
            "key": "Order Details",
            "ranges": {"rows": 20},
            "columns": {"it's": {"rename": RENAMED}, "%": {"type": "nvarchar(50)"}},
            "expectations": [
                {
                    "type": "expect_column_values_to_not_be_null",
                    "kwargs": {"column": RENAMED},
                },
                {
                    "type": "sql",
                    "kwargs": {"query": "SELECT 1 AS x FROM {table} WHERE {range} AND 1 = 0"},
                },
            ],
        }
        path = tmp_path / "awkward.yaml"
        path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")

        def run(*arguments: str, code: int = 0) -> str:
            found = CliRunner().invoke(main, list(arguments))
            assert found.exit_code == code, found.output
            return found.stdout

        yield run
        connection.execute(
            f"DROP SCHEMA {registry.system('postgres').quote(source.schema)} CASCADE".encode()
        )
        server.execute(f"DROP DATABASE {database}")
        SqlServerResource(url=stack.sqlserver_url).execute(
            f"DROP TABLE IF EXISTS {qualified(sources('sqlserver'))}"
        )


@pytest.mark.usefixtures("text_into_sqlserver")
@pytest.mark.parametrize("ferry", ["text"], indirect=True)
def test_rows_travel_as_text(ferry: Callable[..., str]) -> None:
    ferry("run", "awkward")
    assert_moved(open_session())
    ferry("check", "awkward", "--range", "7", "--level", "full_hash")


def assert_moved(session: Session) -> None:
    """Both targets have the rows, in columns of the right names."""
    expected = [(g, g % 7, "x", *(f"{i} {g}" for i in range(len(PARTS)))) for g in range(1, 41)]
    for table in (sources("sqlserver"), sources("clickhouse")):
        names = ["Order Details", "a]b", RENAMED, *PARTS]
        listed = ", ".join(f"{table.system.quote(name)} AS c{i}" for i, name in enumerate(names))
        found = session.servers.endpoints[table.system_name].query(
            f"SELECT {listed} FROM {qualified(table)} ORDER BY 1"
        )
        assert [tuple(row) for row in found] == expected


def test_every_command_works(ferry: Callable[..., str], tmp_path: Path) -> None:
    source, middle, last = sources(), sources("sqlserver"), sources("clickhouse")
    assert json.loads(ferry("validate", "--json"))["transfers"] == {"awkward": []}
    planned = json.loads(ferry("plan", "awkward", "--json"))
    assert {view["target"] for view in planned["ranges"]} == {str(middle), str(last)}
    ferry("run", "awkward")
    session = open_session()
    assert_moved(session)

    text = ferry("status", "awkward", "--wide")
    assert str(middle) in text and str(last) in text
    again = json.loads(ferry("plan", "awkward", "--json"))
    assert {view["state"] for view in again["ranges"]} == {"skip"}

    damaged = registry.system("clickhouse").quote("back`tick")
    session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE {qualified(last)} UPDATE {damaged} = 'damaged' WHERE `Order Details` = 7 "
        "SETTINGS mutations_sync = 2"
    )
    failed = ferry("check", "awkward", "--range", "7", code=1)
    assert "back`tick" in failed
    parquet = tmp_path / "rows.parquet"
    text = ferry("diff", "awkward", "--range", "7", "--parquet", str(parquet), code=1)
    assert "primary key (Order Details, a]b)" in text and "back`tick" in text
    (row,) = pq.read_table(parquet).to_pylist()
    assert (row["table"], row["column"]) == (str(last), "back`tick")
    assert dict(row["row"]) == {"Order Details": "7", "a]b": "0"}

    report = json.loads(ferry("report", "awkward", "--format", "json", code=1))
    assert [hop["target"] for hop in report["hops"]] == [str(middle), str(last)]
    shown = [
        difference
        for hop in report["hops"]
        for entry in hop["ranges"]
        for check in entry["checks"]
        for difference in check["differences"]
    ]
    assert shown[0]["row"] == {"Order Details": "7", "a]b": "0"}
    html = ferry("report", "awkward", "--format", "html", code=1)
    assert "&lt;i&gt;" in html and "<i>" not in html
    assert r"back\`tick" in ferry("report", "awkward", "--format", "md", code=1)

    ferry("run", "awkward")
    assert "nothing to drop" in ferry("clean", "awkward")
    stored = session.instance
    for table in (middle, last):
        event = stored.get_latest_materialization_event(asset_key(table))
        assert event is not None and event.asset_materialization is not None
        assert table_of(event.asset_materialization.asset_key) == table
    definitions = build()
    dg.Definitions.validate_loadable(definitions)
    spec = definitions.resolve_assets_def(asset_key(middle)).get_asset_spec(asset_key(middle))
    assert spec.metadata["dagster/table_name"] == f"{middle.schema}.{middle.name}"
    assert asset_key(source) in {dependency.asset_key for dependency in spec.deps}


@pytest.mark.parametrize("system", ["sqlserver", "clickhouse"])
def test_any_name_is_a_table_schema_and_column_of_a_target(system: str, stack: Servers) -> None:
    """Each by itself, written in place and by a swap, whose shadow has a name of its own."""
    resource: SqlServerResource | ClickHouseResource
    target: Target
    if system == "sqlserver":
        resource = SqlServerResource(url=stack.sqlserver_url)
        target = SqlServerTarget(resource)
    else:
        resource = ClickHouseResource(url=stack.clickhouse_url)
        target = ClickHouseTarget(resource)
    kind = "SCHEMA" if system == "sqlserver" else "DATABASE"
    everything = KeyRange("integer")
    for name in map(str.lower, (*TABLES, 'a"]b', "x" * 60)):
        columns = [Column(name, "integer", nullable=False, primary_key=1)]
        # Babelfish swaps no capitals beyond ASCII, see below, nor in schemas with both " and ]
        schema = name.replace("]", "") if '"' in name else name
        table = TableRef(system, f"{schema}{SUFFIX}", name)
        resource.execute(f"CREATE {kind} {registry.system(system).quote(table.schema)}")
        version = resource.ping() if system == "clickhouse" else None
        source = TableRef("postgres", "public", "x")
        plan = plan_copy(source, columns, table, key=name, target_version=version)
        batch = pa.record_batch({name: pa.array([1, 2], plan.columns[0].arrow_type)})
        modes = (WriteMode.REPLACE, WriteMode.SWAP)
        for mode in modes if name != "it's" else tuple(WriteMode):
            options = TargetOptions(mode=mode)
            target.prepare(plan, options)
            with target.attempt(Publication(plan, everything, mode, "me"), options) as load:
                load.load_arrow([batch])
                load.finalise()
            if mode == "swap":
                target.promote(plan, options)
            assert resource.query(f"SELECT COUNT(*) FROM {qualified(table)}") == [(2,)], name
            assert [column.name for column in resource.columns(table)] == [name]
        assert target.clean(table) == []
        for one in (table, markers_of(table)):
            resource.execute(f"DROP TABLE {qualified(one)}")
        resource.execute(f"DROP {kind} {registry.system(system).quote(table.schema)}")


def test_capitals_beyond_ascii_are_swapped_or_refused(stack: Servers) -> None:
    """Babelfish's sp_rename would make small letters of them, by which nobody finds the table."""
    resource = SqlServerResource(url=stack.sqlserver_url)
    target, swap = SqlServerTarget(resource), TargetOptions(mode=WriteMode.SWAP)
    table = TableRef("sqlserver", "dbo", own("Заказы É"))
    columns = [Column("id", "integer", nullable=False, primary_key=1)]
    plan = plan_copy(TableRef("postgres", "public", "x"), columns, table, key="id")
    batch = pa.record_batch({"id": pa.array([1, 2], plan.columns[0].arrow_type)})
    babelfish = resource.query("SELECT CAST(SERVERPROPERTY('babelfish') AS int)") == [(1,)]
    options = TargetOptions() if babelfish else swap
    if babelfish:
        with pytest.raises(InputError, match=r"no swap on Babelfish, .* small letters of ЗÉ;"):
            target.prepare(plan, swap)
    target.prepare(plan, options)
    with target.attempt(Publication(plan, KeyRange("integer"), "1", "me"), options) as load:
        load.load_arrow([batch])
        load.finalise()
    target.promote(plan, options)
    assert resource.query(f"SELECT COUNT(*) FROM {qualified(table)}") == [(2,)]
    resource.execute(f"DROP TABLE {qualified(table)}")


@pytest.mark.parametrize("odd", ["Заказы É", 'say "a]b"'])
def test_rejected_rows_are_kept_in_a_schema_of_any_name(odd: str, stack: Servers) -> None:
    """Also where Babelfish's sp_rename would not find them."""
    resource = SqlServerResource(url=stack.sqlserver_url)
    target, options = SqlServerTarget(resource), TargetOptions()
    table, key_range = TableRef("sqlserver", own(odd), odd), KeyRange("integer")
    columns = [Column("id", "integer", nullable=False, primary_key=1), Column("É", "text")]
    plan = plan_copy(TableRef("postgres", "public", "x"), columns, table, key="id")
    types = {one.target.name: one.arrow_type for one in plan.columns}
    batch = pa.record_batch(
        {"id": pa.array([1, 2], types["id"]), "É": pa.array(["a ", None], types["É"])}
    )
    resource.execute(f"CREATE SCHEMA {registry.system('sqlserver').quote(table.schema)}")
    target.prepare(plan, options)
    with target.attempt(Publication(plan, key_range, "1", "me"), options) as load:
        load.load_arrow([batch])
        kept = load.keep_rejected()
    assert target.rejected_table(plan, key_range) == kept
    with resource.read_arrow(f"SELECT * FROM {qualified(kept)} ORDER BY id") as reader:
        assert reader.read_all().to_pylist() == batch.to_pylist()
    assert target.clean(table, rejected=False) == []
    assert target.clean(table) == [kept.name]
    for one in (table, markers_of(table)):
        resource.execute(f"DROP TABLE {qualified(one)}")
    resource.execute(f"DROP SCHEMA {registry.system('sqlserver').quote(table.schema)}")


def test_a_sql_server_table_of_any_name_is_a_source(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a value that is refused is named by its table and column as they are."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    server = SqlServerResource(url=stack.sqlserver_url)
    clickhouse = ClickHouseResource(url=stack.clickhouse_url)
    source = TableRef("sqlserver", f"{ALL_IN_ONE}{SUFFIX}", ALL_IN_ONE)
    target = TableRef("clickhouse", f"{{table}} {SUFFIX}", "{range}")
    key, short = (
        registry.system("sqlserver").quote("%s {0}"),
        registry.system("sqlserver").quote(ALL_IN_ONE),
    )
    server.execute(f"CREATE SCHEMA {registry.system('sqlserver').quote(source.schema)}")
    server.execute(
        f"CREATE TABLE {qualified(source)} ({key} int NOT NULL PRIMARY KEY, {short} nvarchar(20))"
    )
    server.execute(f"INSERT INTO {qualified(source)} VALUES (1, N'a'), (2, NULL), (3, N'b')")
    clickhouse.execute(f"CREATE DATABASE {registry.system('clickhouse').quote(target.schema)}")
    query = "SELECT 1 AS x FROM {table} WHERE {range} AND `%s {0}` > 3"
    document = {
        "transfer": "odd",
        "source": str(source),
        "hops": [str(target)],
        "key": "%s {0}",
        "columns": {ALL_IN_ONE: {"type": "UInt64"}},
        "expectations": [{"type": "sql", "kwargs": {"query": query}}],
    }
    path = tmp_path / "odd.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    del document["columns"]
    found = CliRunner().invoke(main, ["run", "odd"])
    assert found.exit_code != 0
    assert str(source) in found.output and ALL_IN_ONE in found.output
    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    found = CliRunner().invoke(main, ["run", "odd"])
    assert found.exit_code == 0, found.output
    rows = clickhouse.query(f"SELECT * FROM {qualified(target)} ORDER BY 1")
    assert rows == [(1, "a"), (2, None), (3, "b")]
    clickhouse.execute(f"DROP DATABASE {registry.system('clickhouse').quote(target.schema)}")
    server.execute(f"DROP TABLE {qualified(source)}")
    server.execute(f"DROP SCHEMA {registry.system('sqlserver').quote(source.schema)}")
