"""`ferry init` on a real catalog: what it proposes can be moved, what it cannot decide it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result
from psycopg import sql

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines.cli import main
from tableferry.pipelines.command import setting_up
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.servers import Servers, own

SCHEMA = own("boutique")
AWKWARD = 'Order: #1, "x" ${HOME}.[2024]'
CLICKHOUSE = "clickhouse://warehouse.{table}"
TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, price numeric, note text, updated_at timestamptz)",
    "INSERT INTO orders SELECT g, g * 1.25, 'n' || g, now() FROM generate_series(1, 300) g",
    "CREATE TABLE lines (country text, no int, place point, PRIMARY KEY (country, no))",
    'CREATE TABLE "{}" ("a: b" uuid PRIMARY KEY, "c\td" json)'.format(AWKWARD.replace('"', '""')),
    "CREATE TABLE events (at timestamptz NOT NULL, what text) PARTITION BY RANGE (at)",
    "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2030-01-01')",
    "CREATE INDEX ON events (at)",
    "CREATE VIEW open_orders AS SELECT * FROM orders",
    "CREATE TABLE old_orders (id int PRIMARY KEY)",
    "CREATE TABLE defaults (id int PRIMARY KEY)",
    "CREATE TABLE move_defaults (id int PRIMARY KEY)",
    'CREATE TABLE twins (id int PRIMARY KEY, name text, "Name" numeric, "Name_2" text)',
    "INSERT INTO twins VALUES (1, 'one', 1.5, 'two'), (2, 'one', 'NaN', 'two')",
    "CREATE TABLE nothing ()",
    "CREATE TABLE parent (id int, what text)",
    "CREATE TABLE child (more int) INHERITS (parent)",
    "CREATE TABLE oracle (id numeric(12,0) PRIMARY KEY)",
    "CREATE VIEW keyless AS SELECT note FROM orders",
    "CREATE MATERIALIZED VIEW kept AS SELECT note, id FROM orders",
)
MORE = (
    "CREATE TABLE plain_{n} (id bigint, what text)",
    "CREATE TABLE keyed_{n} (id bigint PRIMARY KEY, what text)",
    "CREATE TABLE texts_{n} (code text, no int, amount numeric, PRIMARY KEY (code, no))",
)
ODD = (
    "INSERT INTO plain_1 SELECT g, 'w' || g FROM generate_series(1, 50) g",
    "INSERT INTO texts_1 SELECT 'c' || g % 5, g, g * 0.25 FROM generate_series(1, 50) g",
    "CREATE TABLE codes (code text PRIMARY KEY, what text)",
    "INSERT INTO codes VALUES ('a', 'x'), ('B', 'y')",
    'CREATE TABLE "CASE" (id int PRIMARY KEY)',
    'CREATE TABLE "case" (id int PRIMARY KEY)',
    "CREATE TABLE parts (id int, what text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (9)",
    "CREATE TABLE floats (x double precision PRIMARY KEY, y numeric(10, 2))",
    "CREATE TABLE guarded (id int PRIMARY KEY)",
)
TABLES += tuple(more.format(n=n) for n in range(1, 7) for more in MORE) + ODD
MOVED = {"orders", "events", "defaults", "move_defaults", "twins", "lines", "child", "oracle"}
MOVED |= {"codes", "CASE", "floats", "guarded", "old_orders", AWKWARD}
MOVED |= {f"{name}_{n}" for n in range(1, 7) for name in ("plain", "keyed", "texts")}


@pytest.fixture(scope="module")
def catalog(pg_url: str) -> Iterator[None]:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(SCHEMA)))
        for statement in TABLES:
            connection.execute(statement.encode())
        yield
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))


@pytest.fixture
def output(catalog: None, stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path / "transfers"))
    return tmp_path / "transfers"


def init(
    *more: str, tables: str = f"{SCHEMA}.*", to: str = "sqlserver://dbo.{schema}_{table}"
) -> Result:
    targets = ["--to", to, "--to", "clickhouse://warehouse.{schema}_{table}"]
    arguments = ["init", "--from", "postgres", "--tables", tables, *targets, *more]
    arrangement = [] if {"--each", "--chain"} & {*more} else ["--chain"]
    return CliRunner().invoke(main, [*arguments, *arrangement])


def test_every_table_is_declared_validly_and_moves_or_is_left_out_with_the_reason(
    output: Path,
) -> None:
    result = init("--views", "--exclude", "open_*")
    assert result.exit_code == 0, result.output
    found = load_transfers(output)
    assert not found.invalid
    # not told apart from each other by SQL Server, one of the two is left out
    moved = {one.source.name for one in found.transfers.values()}
    assert moved == MOVED
    for name, why in (
        ("nothing", "has no columns"),
        ("parent", "the parent of other tables"),
        ("parts", "a partitioned table"),
        ("kept", "a materialized view, which is rewritten as a whole: write a file for it"),
        ("keyless", "a view: add an identity column"),
        ("case", "sqlserver would not tell its target"),
    ):
        lines = [line for line in result.stdout.splitlines() if f"{SCHEMA}.{name}: " in line]
        assert len(lines) == 1 and why in lines[0], (name, result.stdout)
    by_ctid = {one.source.name for one in found.transfers.values() if one.ranges.by == "ctid"}
    assert by_ctid == {"lines", "child", "floats"} | {
        f"{name}_{n}" for n in range(1, 7) for name in ("plain", "texts")
    }
    assert "7 columns" in result.stdout and "numeric to sqlserver" in result.stdout
    assert len(result.stdout.splitlines()) < 25, "decisions are grouped"
    keys = {one.source.name: one.key for one in found.transfers.values()}
    assert (keys["events"], keys[AWKWARD], keys["orders"]) == ("at", "a: b", "id")
    hops = {one.source.name: [str(hop.to) for hop in one.hops] for one in found.transfers.values()}
    assert hops[AWKWARD][0] == f"sqlserver://dbo.{SCHEMA}_{AWKWARD}"
    names = {one.source.name: name for name, one in found.transfers.items()}
    assert names["defaults"] == f"{SCHEMA}_defaults", "defaults.yaml is another thing"
    checked = CliRunner().invoke(main, ["validate"])
    assert checked.exit_code == 0, checked.output
    fast = ("orders", "texts_1", "plain_1", "twins", "codes")
    ran = CliRunner().invoke(main, ["run", *(names[name] for name in fast)])
    assert ran.exit_code == 0, ran.output


def test_what_is_taken_for_a_column_stands_in_the_file_with_the_other_choices(
    output: Path,
) -> None:
    result = init("--json", tables="*.[ot][rw]*s")
    tables = {table["transfer"]: table for table in json.loads(result.stdout)["tables"]}
    (price,) = tables["orders"]["decisions"]
    assert price["choices"][0]["yaml"] == '{type: {sqlserver: "decimal(38,10)"}}'
    assert price["choices"][1]["yaml"] == '{type: {sqlserver: "decimal(5,2)"}}', "as values are now"
    text = Path(tables["orders"]["file"]).read_text()
    assert text.startswith("# yaml-language-server: $schema=./transfer.schema.json\n")
    assert (output / "transfer.schema.json").exists()
    assert "{watermark: updated_at}" in text
    transfers = load_transfers(output).transfers
    assert transfers["orders"].columns["price"].type == {"sqlserver": "decimal(38,10)"}
    twin = transfers["twins"].columns["Name"]
    assert twin.rename == "Name_3", "SQL Server does not tell it from name"
    assert twin.type == {"sqlserver": "nvarchar(max)"}, "NaN is among the values"


def test_arrays_of_decimals_have_the_digits_of_their_items(output: Path, pg_url: str) -> None:
    table = sql.Identifier(SCHEMA, "measured")
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (id int PRIMARY KEY, thirds numeric[], few numeric[], "
                "missing numeric[], nested numeric[], item numeric[])"
            ).format(table)
        )
        try:
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} VALUES (1, '{{0.33333333333333333333,NULL,-12}}', '{{1.5}}', "
                    "'{{1}}', '{{{{1}},{{2}}}}', '{{1e70}}'), (2, '{{}}', '{{2}}', NULL, '{{1}}', "
                    "'{{0.00000000000000001}}')"
                ).format(table)
            )
            result = init("--json", "--each", tables=f"{SCHEMA}.measured")
        finally:
            connection.execute(sql.SQL("DROP TABLE {}").format(table))
    tables = {one["transfer"]: one for one in json.loads(result.stdout)["tables"]}
    (name,) = (name for name in tables if "clickhouse" in name or "warehouse" in name)
    taken = {one["column"]: one["choices"][0]["yaml"] for one in tables[name]["decisions"]}
    assert taken == {
        name: f'{{type: {{clickhouse: "{type_}"}}}}'
        for name, type_ in {
            "thirds": "Array(Nullable(Decimal(22, 20)))",
            "few": "Array(Nullable(Decimal(76, 10)))",
            "missing": "String",
            "nested": "String",
            "item": "String",
        }.items()
    }


def test_queries_do_not_grow_with_the_tables(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for server in (PostgresServer, ClickHouseServer):
        monkeypatch.setattr(server, "query", _counted(server.query, asked))
    assert init(tables=f"{SCHEMA}.keyed_1").exit_code == 0
    before = len(asked)
    asked.clear()
    assert init(tables=f"{SCHEMA}.keyed_[2-6]").exit_code == 0
    assert len(asked) == before < 12, asked


def _counted(query: Any, asked: list[str]) -> Any:
    def counting(server: Any, sql: str, **options: Any) -> Any:
        asked.append(sql)
        return query(server, sql, **options)

    return counting


def test_a_file_that_the_defaults_would_break_is_not_written(output: Path) -> None:
    output.mkdir()
    (output / "defaults.yaml").write_text("write: upsert\nfingerprint: none\n")
    result = init(tables=f"{SCHEMA}.*ed_1")
    assert (output / "keyed_1.yaml").exists()
    result = init(tables="plain_1")
    assert "should be one of auto, content" in result.stdout and "left out" in result.stdout
    assert not (output / "plain_1.yaml").exists()


def test_nothing_is_ever_overwritten(output: Path) -> None:
    output.mkdir()
    (output / "events.yaml").write_text(f"source: postgres://{SCHEMA}.events\n")
    (output / "defaults.yaml").write_text("# mine\n")
    assert f"kept     {output}/events.yaml: it exists" in init(tables="events").stdout
    init(tables="*.orders")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    again = init(tables="*.orders")
    assert "it moves" in again.stdout and "already" in again.stdout
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert before["defaults.yaml"] == b"# mine\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": "nope.*"}, "'nope.*' fits none of"),
        ({"to": "sqlserver://dbo.{tabel}"}, "{tabel} is unknown"),
        ({"to": "sqlserver://dbo.all"}, "would both go to sqlserver://dbo.all"),
        ({"to": "oracle://dbo.{table}"}, "'oracle' is neither a system"),
    ],
    ids=["tables", "placeholder", "one target", "system"],
)
def test_bad_input_writes_nothing(output: Path, options: dict[str, str], message: str) -> None:
    result = init(**options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not output.exists()


def test_two_targets_are_a_chain_or_two_transfers(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["--to", "sqlserver://dbo.{table}", "--to", CLICKHOUSE]
    arguments = ["init", "--from", "postgres", "--tables", f"{SCHEMA}.orders", *both]
    neither = CliRunner().invoke(main, arguments)
    assert neither.exit_code == 2
    assert "--chain" in neither.stderr and "--each" in neither.stderr
    assert not output.exists()
    twice = CliRunner().invoke(main, [*arguments, "--chain", "--each"])
    assert twice.exit_code == 2

    monkeypatch.setattr(setting_up, "has_terminal", lambda: True)
    asked = CliRunner().invoke(main, arguments, input="each\n")
    assert asked.exit_code == 0, asked.output
    found = load_transfers(output)
    hops = {name: [str(hop.to) for hop in one.hops] for name, one in found.transfers.items()}
    assert hops == {
        "orders_sqlserver": ["sqlserver://dbo.orders"],
        "orders_clickhouse": ["clickhouse://warehouse.orders"],
    }
    again = CliRunner().invoke(main, [*arguments, "--each"])
    assert again.exit_code == 0, again.output
    assert "kept" in again.stdout and len(load_transfers(output).transfers) == 2
    valid = CliRunner().invoke(main, ["validate"])
    assert valid.exit_code == 0, valid.output


def test_files_have_no_catalog(output: Path) -> None:
    result = CliRunner().invoke(
        main, ["init", "--from", "files", "--tables", "*", "--to", CLICKHOUSE]
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("ferry: files has no catalog of tables")


def test_sqlserver_is_a_source_too(output: Path, mssql_url: str) -> None:
    server = SqlServerResource(url=mssql_url)
    name = own("init_source")
    server.execute(f"CREATE TABLE dbo.{name} (a nvarchar(9) NOT NULL, id int NOT NULL)")
    server.execute(f"CREATE UNIQUE INDEX ix_{name} ON dbo.{name} (id)")
    server.execute(f"INSERT INTO dbo.{name} VALUES (N'x', 1), (N'y', 2)")
    try:
        result = CliRunner().invoke(
            main,
            ["init", "--from", "sqlserver", "--tables", f"dbo.{name}", "--to", CLICKHOUSE],
        )
        assert result.exit_code == 0, result.output
        text = (output / f"{name}.yaml").read_text()
    finally:
        server.execute(f"DROP TABLE dbo.{name}")
    assert yaml.safe_load(text)["key"] == "id"
    assert "an index begins with it, and it is NOT NULL" in text
    assert "About 2 rows" in text


def test_one_declaration_stands_for_all_tables_and_its_lock_follows_the_catalog(
    output: Path, pg_url: str
) -> None:
    output.mkdir()
    path = output / "shop.yaml"
    path.write_text(
        f'tables: "postgres://{SCHEMA}.*"\nexclude: ["old_*", "default*"]\n'
        'hops: ["sqlserver://dbo.many_{schema}_{table}"]\n'
        "overrides:\n  plain_2: {key: id}\n  kept: {key: id}\n  parts: {key: id}\n"
    )
    missing = CliRunner().invoke(main, ["validate"])
    assert missing.exit_code == 2
    assert "shop.yaml:1: " in missing.stderr and "ferry refresh shop.yaml" in missing.stderr
    first = CliRunner().invoke(main, ["refresh"])
    assert first.exit_code == 0, first.output
    found = load_transfers(output)
    assert not found.invalid
    moved = {one.source.name for one in found.transfers.values()}
    assert moved == (MOVED | {"kept", "parts"}) - {"old_orders", "defaults"}
    names = {one.source.name: name for name, one in found.transfers.items()}
    assert found.transfers[names["plain_2"]].key == "id"
    assert found.transfers[names["plain_3"]].ranges.by == "ctid"
    assert found.transfers[names["orders"]].columns["price"].type == {"sqlserver": "decimal(38,10)"}
    lock = output / "shop.lock.yaml"
    before = lock.read_text()
    with psycopg.connect(pg_url, autocommit=True) as connection:
        # more rows change nothing, another key does
        connection.execute(
            f'INSERT INTO "{SCHEMA}".keyed_1 SELECT generate_series(1, 900)'.encode()
        )
        connection.execute(f'ANALYZE "{SCHEMA}".keyed_1'.encode())
        assert CliRunner().invoke(main, ["refresh", "shop.yaml", "--check"]).exit_code == 0
        assert CliRunner().invoke(main, ["validate", names["keyed_1"]]).exit_code == 0
        connection.execute(f'CREATE TABLE "{SCHEMA}".newer (id int PRIMARY KEY)'.encode())
        connection.execute(f'ALTER TABLE "{SCHEMA}".keyed_6 RENAME TO older'.encode())
        try:
            assert load_transfers(output).transfers.keys() == found.transfers.keys()
            plan = CliRunner().invoke(main, ["plan", names["keyed_1"]])
            assert f"shop.yaml: new in the catalog: {SCHEMA}.newer, {SCHEMA}.older" in plan.output
            assert f"shop.yaml: gone in the catalog: {SCHEMA}.keyed_6" in plan.output
            differs = {
                "declaration": "shop.yaml",
                "new": [f"{SCHEMA}.newer", f"{SCHEMA}.older"],
                "gone": [f"{SCHEMA}.keyed_6"],
                "error": None,
            }
            for more in ([names["keyed_1"]], [names["keyed_1"], names["keyed_6"]]):
                planned = CliRunner().invoke(main, ["plan", *more, "--json"])
                assert json.loads(planned.stdout)["catalog"] == [differs], planned.output
            gone = CliRunner().invoke(main, ["plan", names["keyed_6"]])
            assert gone.exit_code == 2, gone.output
            assert f"shop.yaml: gone in the catalog: {SCHEMA}.keyed_6" in gone.stderr
            outdated = CliRunner().invoke(main, ["validate", names["keyed_1"]])
            assert outdated.exit_code == 2
            assert "shop.yaml:1: shop.lock.yaml does not agree with the catalog" in outdated.stderr
            assert lock.read_text() == before
            assert CliRunner().invoke(main, ["refresh"]).exit_code == 0
            assert {"newer", "older"} <= load_transfers(output).transfers.keys()
        finally:
            connection.execute(f'DROP TABLE "{SCHEMA}".newer'.encode())
            connection.execute(f'ALTER TABLE "{SCHEMA}".older RENAME TO keyed_6'.encode())
    assert CliRunner().invoke(main, ["refresh"]).exit_code == 0
    assert lock.read_text() == before, "the diff is gone with its cause"
    agreed = CliRunner().invoke(main, ["plan", names["keyed_1"], "--json"])
    assert json.loads(agreed.stdout)["catalog"] == []
    ran = CliRunner().invoke(main, ["run", *(names[name] for name in ("plain_1", "texts_1"))])
    assert ran.exit_code == 0, ran.output
