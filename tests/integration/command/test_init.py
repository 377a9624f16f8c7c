"""`ferry init` on a real catalog: what it proposes can be moved, what it cannot decide it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result
from psycopg import sql

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines.cli import main
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.servers import Servers, own

SCHEMA = own("shop")
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
KEPT = {"orders", "events", "defaults", "move_defaults", "twins", "lines", "parent", "child"}
KEPT |= {"oracle", AWKWARD}


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
    return CliRunner().invoke(main, arguments)


def test_one_file_per_table_and_what_is_open_is_listed(output: Path) -> None:
    result = init("--exclude", "old_*")
    assert result.exit_code == 0, result.output
    found = load_transfers(output)
    moved = {one.source.name for one in found.transfers.values()}
    assert moved == KEPT - {"parent"}, "partitions and excluded tables have none"
    assert [one.path.name for one in found.invalid] == ["parent.yaml"]
    needed = "key: is undecided: replace it by one of these columns: id"
    assert f"parent.yaml:12: {needed}" in str(found.invalid[0])
    assert found.transfers["lines"].ranges.by == "ctid"
    text = (output / "lines.yaml").read_text()
    assert "# key: country  # text" in text and "# key: 'no'  # integer, not indexed" in text
    assert f"left out postgres://{SCHEMA}.nothing: " in result.stdout
    assert "decide price: numeric to sqlserver: it has no declared precision" in result.stdout
    assert f"left out postgres://{SCHEMA}.open_orders: a view" in result.stdout
    rename = 'Name: {rename: "Name_3", type: {sqlserver: "decimal(2,1)"}}'
    assert rename in (output / "twins.yaml").read_text()
    keys = {one.source.name: one.key for one in found.transfers.values()}
    assert (keys["events"], keys[AWKWARD], keys["orders"]) == ("at", "a: b", "id")
    assert keys["oracle"] == "id"
    hops = {one.source.name: [str(hop.to) for hop in one.hops] for one in found.transfers.values()}
    assert hops[AWKWARD][0] == f"sqlserver://dbo.{SCHEMA}_{AWKWARD}"
    names = {one.source.name: name for name, one in found.transfers.items()}
    assert names["defaults"] == f"{SCHEMA}_defaults", "defaults.yaml is another thing"


def test_a_choice_that_is_uncommented_is_a_transfer_that_validates(output: Path) -> None:
    result = init("--json", tables="orders")
    (one,) = [one for one in json.loads(result.stdout)["tables"] if one["undecided"]]
    (price,) = one["undecided"]
    assert price["choices"][0] == '{type: {sqlserver: "decimal(5,2)"}}', "as the values are now"
    path = Path(one["file"])
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=./transfer.schema.json\n")
    assert (output / "transfer.schema.json").exists()
    assert "{watermark: updated_at}" in text
    text = text.replace("# columns:", "columns:").replace("#   price: {type", "  price: {type", 1)
    path.write_text(text)
    transfer = load_transfers(output).transfers[one["transfer"]]
    assert transfer.columns["price"].type == {"sqlserver": "decimal(5,2)"}
    checked = CliRunner().invoke(main, ["validate", one["transfer"]])
    assert checked.exit_code == 0, checked.output


def test_names_that_a_target_does_not_tell_apart_are_renamed_as_it_says(output: Path) -> None:
    assert init(tables="twins").exit_code == 0
    refused = CliRunner().invoke(main, ["validate", "twins"])
    assert refused.exit_code == 2
    assert "twins.yaml:" in refused.output and "(decimal" not in refused.output
    path = output / "twins.yaml"
    text = path.read_text()
    said = "all numbers now fit into it; NaN and infinities, which are among the values, are"
    assert said in text
    line = next(one for one in text.splitlines() if one.startswith("#   Name: {rename"))
    text = text.replace("# columns:", "columns:").replace(line, line.removeprefix("#"))
    path.write_text(text)
    checked = CliRunner().invoke(main, ["validate", "twins"])
    assert checked.exit_code == 0, checked.output


def test_what_views_are_written_for_is_accepted_or_says_what_is_to_decide(output: Path) -> None:
    assert init("--views", tables="ke*").exit_code == 0
    checked = CliRunner().invoke(main, ["validate"])
    assert "ctid" not in (output / "kept.yaml").read_text() + (output / "keyless.yaml").read_text()
    lines = [one for one in checked.output.splitlines() if "is undecided" in one]
    assert "kept.yaml:12: key: is undecided: replace it by" in lines[0] + lines[1]
    assert any("keyless.yaml" in one and "add an identity column" in one for one in lines)


def test_nothing_is_ever_overwritten(output: Path) -> None:
    output.mkdir()
    (output / "events.yaml").write_text(f"source: postgres://{SCHEMA}.events\n")
    (output / "defaults.yaml").write_text("# mine\n")
    assert init(tables="events").stdout.startswith(f"kept     {output}/events.yaml: it exists")
    init(tables="*.orders")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    again = init(tables="*.orders")
    assert "it moves" in again.stdout and "already" in again.stdout
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert before["defaults.yaml"] == b"# mine\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": "nope.*"}, "--tables 'nope.*' fits none of"),
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
