"""`ferry copy`: a table moved once and proven, with nothing of it left but the rows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main
from tableferry.resources.tables import TableRef, staging_prefix
from tests.integration.conftest import table_name
from tests.integration.support import looking
from tests.integration.support.crashing import Command
from tests.servers import Servers

ORDERS = "CREATE TABLE {s}.orders (id integer PRIMARY KEY, note text, amount numeric(10,2))"
ROWS = "INSERT INTO {s}.orders SELECT g, 'note ' || g, g * 0.25 FROM generate_series(1, 300) g"


@dataclass
class Shop:
    """A schema of the source, whose copies have names that nobody else has."""

    stack: Servers
    schema: str
    folder: Path

    def source(self, *statements: str) -> list[looking.Row]:
        """Run statements on the source; `{s}` is the schema."""
        filled = (statement.replace("{s}", self.schema) for statement in statements)
        return looking.ask_postgres(self.stack.postgres_url, *filled)

    def target(self, table: str, system: str = "clickhouse") -> TableRef:
        """The copy of a table."""
        schema = "dbo" if system == "sqlserver" else "warehouse"
        return TableRef(system, schema, f"{self.schema}_{table}")

    def copy(self, table: str, *options: str, system: str = "clickhouse") -> Result:
        """`ferry copy` of a table, or of a pattern's."""
        target = self.target("{table}", system)
        arguments = ["copy", f"postgres://{self.schema}.{table}", str(target), *options]
        return CliRunner().invoke(main, arguments)

    def rows(
        self, table: str, system: str = "clickhouse", columns: str = "id, note, amount"
    ) -> list[looking.Row]:
        """The rows of a copy."""
        target = self.target(table, system)
        sql = f"SELECT {columns} FROM {target.schema}.{target.name} ORDER BY 1"
        if system == "sqlserver":
            return [tuple(row) for row in looking.ask_sqlserver(self.stack.sqlserver_url, sql)]
        return looking.ask_clickhouse(self.stack.clickhouse_url, sql)

    def beside(self, table: str) -> list[str]:
        """What lies about beside a copy in ClickHouse."""
        prefix = staging_prefix(self.target(table))
        found = looking.ask_clickhouse(self.stack.clickhouse_url, "SELECT name FROM system.tables")
        return [name for (name,) in found if name.startswith(prefix)]

    @property
    def temporary(self) -> list[Path]:
        """The temporary folders of copies of the schema."""
        found = set()
        for path in Path(tempfile.gettempdir()).glob("ferry-copy-*/*/*.yaml"):
            with suppress(OSError):  # of others, which go meanwhile
                if self.schema in path.read_text():
                    found.add(path.parents[1])
        return [*found]


@pytest.fixture
def shop(stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("DAGSTER_HOME", "TABLEFERRY_TRANSFERS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    shop = Shop(stack, table_name(), tmp_path)
    shop.source("CREATE SCHEMA {s}")
    yield shop
    assert not shop.temporary
    assert not [*(tmp_path / "user").rglob("*")], "the user's home is not touched"
    shop.source("DROP SCHEMA {s} CASCADE")


def same(shop: Shop, system: str = "clickhouse") -> bool:
    """Whether the copy has the rows of the orders."""
    return shop.rows("orders", system) == shop.source("SELECT * FROM {s}.orders ORDER BY id")


def errors(result: Result) -> str:
    """What a refused command says; it is one line or several, and no trace."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize("system", ["clickhouse", "sqlserver"])
def test_a_table_is_copied_and_proven_without_a_file_or_a_home(shop: Shop, system: str) -> None:
    shop.source(ORDERS, ROWS)
    result = shop.copy("orders", "--json", system=system)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["ok"] and not document["notes"]
    assert sum(each["rows"] for each in document["ranges"]) == 300
    for each in document["ranges"]:
        assert each["state"] == "committed"
        assert each["checks"]["row_count"] and each["checks"]["checksum"]
    assert same(shop, system)


def test_a_home_that_is_set_is_not_used(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    home, transfers = shop.folder / "dagster", shop.folder / "transfers"
    for variable, folder in (("DAGSTER_HOME", home), ("TABLEFERRY_TRANSFERS", transfers)):
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    (transfers / "orders.yaml").write_text("transfer: [\n")
    shop.source(ORDERS, ROWS)
    result = shop.copy("orders")
    assert result.exit_code == 0, result.output
    assert not [*home.iterdir()]
    assert [path.name for path in transfers.iterdir()] == ["orders.yaml"]
    assert "orders.yaml" not in result.output, "no file of others is looked at"
    assert str(shop.stack.postgres_url) not in result.output


def test_of_a_schema_what_needs_a_decision_is_left_out_with_the_reason(shop: Shop) -> None:
    shop.source(
        ORDERS,
        ROWS,
        "CREATE TABLE {s}.lines (no integer, what text)",
        "INSERT INTO {s}.lines SELECT g % 7, 'line' FROM generate_series(1, 50) g",
        "CREATE TABLE {s}.prices (id integer PRIMARY KEY, price numeric, place point)",
        "CREATE VIEW {s}.dear AS SELECT * FROM {s}.orders WHERE amount > 50",
    )
    result = shop.copy("*", "--exclude", "dear", "--jobs", "1")
    assert result.exit_code == 1, result.output
    assert "2 of 2 transfers succeeded; 350 rows moved" in result.stdout
    (left,) = [line for line in result.stderr.splitlines() if "not copied" in line]
    assert f"postgres://{shop.schema}.prices" in left
    assert "column 'price': numeric to clickhouse" in left and "column 'place'" in left
    assert "ferry init" in left
    assert "--replace" not in result.stderr, "nothing has failed"
    assert same(shop)
    assert len(shop.rows("lines", columns="no")) == 50
    alone = errors(shop.copy("prices"))
    assert "column 'price'" in alone and "ferry init" in alone
    views = json.loads(shop.copy("d*", "--json").stdout)
    assert not views["ok"] and "a view; --views includes views" in views["errors"][0]
    assert shop.copy("*", "--exclude", "*r*s", "--exclude", "dear", "--replace").exit_code == 0


def test_a_table_that_exists_is_refused_unless_it_is_said_what_becomes_of_its_rows(
    shop: Shop,
) -> None:
    shop.source(ORDERS, ROWS, "CREATE TABLE {s}.more (id integer PRIMARY KEY)")
    assert shop.copy("orders").exit_code == 0
    shop.source(
        "DELETE FROM {s}.orders WHERE id <= 100",
        "INSERT INTO {s}.orders SELECT g, 'new', 1 FROM generate_series(301, 400) g",
    )
    told = errors(shop.copy("*"))
    assert f"{shop.target('orders')} exists already" in told
    assert "--append" in told and "--replace" in told
    assert not looking.ask_clickhouse(
        shop.stack.clickhouse_url,
        f"SELECT 1 FROM system.tables WHERE name = '{shop.target('more').name}'",
    ), "nothing is moved if a table is refused"
    appended = shop.copy("orders", "--append")
    assert appended.exit_code == 0, appended.output
    assert "adopt" not in appended.output
    assert [row[0] for row in shop.rows("orders")] == [*range(1, 401)]
    replaced = shop.copy("orders", "--replace")
    assert replaced.exit_code == 0, replaced.output
    assert "adopt" not in replaced.output
    assert same(shop)
    assert errors(shop.copy("orders", "--append", "--replace"))


@pytest.mark.parametrize("system", ["clickhouse", "sqlserver"])
def test_rows_without_a_key_are_replaced_though_the_source_can_have_none(
    shop: Shop, system: str
) -> None:
    shop.source(
        "CREATE TABLE {s}.orders (id integer PRIMARY KEY, note text, amount numeric(10,2))",
        "INSERT INTO {s}.orders SELECT g, 'n', 1 FROM generate_series(1, 30) g",
    )
    target = shop.target("orders", system)
    if system == "clickhouse":
        for sql in (
            f"CREATE TABLE {target.name} (id Nullable(Int32), note Nullable(String), "
            "amount Nullable(Decimal(10, 2))) ENGINE = MergeTree ORDER BY ()",
            f"INSERT INTO {target.name} VALUES (NULL, 'stray', 1), (7, 'old', 1)",
        ):
            looking.clickhouse(shop.stack.clickhouse_url).command(sql)
    else:
        looking.ask_sqlserver(
            shop.stack.sqlserver_url,
            f"CREATE TABLE dbo.{target.name} (id int, note nvarchar(max), amount decimal(10,2)); "
            f"INSERT INTO dbo.{target.name} VALUES (NULL, 'stray', 1), (7, 'old', 1)",
        )
    result = shop.copy("orders", "--replace", system=system)
    assert result.exit_code == 0, result.output
    assert same(shop, system)


@pytest.mark.parametrize("system", ["clickhouse", "sqlserver"])
def test_all_rows_are_replaced_though_others_have_cut_them_otherwise(
    shop: Shop, system: str
) -> None:
    shop.source(
        "CREATE TABLE {s}.orders (id integer PRIMARY KEY, note text, amount numeric(10,2))",
        "INSERT INTO {s}.orders SELECT g, 'n', 1 FROM generate_series(1, 300) g",
        "ANALYZE {s}.orders",
    )
    assert shop.copy("orders", system=system).exit_code == 0
    shop.source(
        "DELETE FROM {s}.orders",
        "INSERT INTO {s}.orders SELECT g, repeat('m', 900), 2 FROM generate_series(-9000, 21000) g",
        "DELETE FROM {s}.orders WHERE id % 5 = 0",
        "ANALYZE {s}.orders",
    )
    result = shop.copy("orders", "--replace", system=system)
    assert result.exit_code == 0, result.output
    assert same(shop, system)
    shop.source("DELETE FROM {s}.orders")
    emptied = shop.copy("orders", "--replace", system=system)
    assert emptied.exit_code == 0, emptied.output
    assert shop.rows("orders", system) == []


def test_rows_of_a_table_without_a_key_are_not_appended_but_replaced(shop: Shop) -> None:
    shop.source(
        "CREATE TABLE {s}.lines (no integer, what text)",
        "INSERT INTO {s}.lines SELECT g % 7, 'line' FROM generate_series(1, 50) g",
    )
    assert shop.copy("lines").exit_code == 0
    shop.source("DELETE FROM {s}.lines WHERE no = 3", "VACUUM FULL {s}.lines")
    assert "no primary key" in errors(shop.copy("lines", "--append"))
    result = shop.copy("lines", "--replace")
    assert result.exit_code == 0, result.output
    assert shop.rows("lines", columns="no, what") == shop.source(
        "SELECT no, what FROM {s}.lines ORDER BY 1"
    )


def test_a_row_that_is_kept_with_other_values_is_no_success(shop: Shop) -> None:
    shop.source(ORDERS, ROWS)
    assert shop.copy("orders").exit_code == 0
    shop.source("UPDATE {s}.orders SET note = 'other' WHERE id = 7")
    result = shop.copy("orders", "--append")
    assert result.exit_code == 1, result.output
    assert "copy again" in result.stderr and "--replace" not in result.stderr


def test_rows_and_views_are_chosen(shop: Shop) -> None:
    shop.source(ORDERS, ROWS, "CREATE VIEW {s}.dear AS SELECT * FROM {s}.orders WHERE id > 280")
    some = shop.copy("orders", "--where", "id <= 20")
    assert some.exit_code == 0, some.output
    assert len(shop.rows("orders")) == 20
    assert "a view" in errors(shop.copy("dear"))
    view = shop.copy("dear", "--key", "id")
    assert view.exit_code == 0, view.output
    assert len(shop.rows("dear")) == 20


def test_what_is_saved_goes_on_in_a_home_of_the_users(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.source(ORDERS, ROWS)
    folder = shop.folder / "transfers"
    result = shop.copy("orders", "--where", "id < 250", "--save", str(folder / "kept.yaml"))
    assert result.exit_code == 0, result.output
    assert "ferry adopt" in result.stderr
    refused = errors(shop.copy("orders", "--replace", "--save", str(folder)))
    assert f"kept.yaml moves rows to {shop.target('orders')} already" in refused
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(shop.folder / "dagster"))
    adopted = CliRunner().invoke(main, ["adopt", "kept"])
    assert adopted.exit_code == 0, adopted.output
    ran = json.loads(CliRunner().invoke(main, ["run", "kept", "--json"]).stdout)
    assert ran["ok"], ran
    assert {each["state"] for each in ran["ranges"]} == {"skipped_unchanged"}
    many = shop.copy("*", "--replace", "--save", str(shop.folder / "all"))
    assert many.exit_code == 0, many.output
    assert (shop.folder / "all" / "orders.yaml").exists()
    behind = json.loads(CliRunner().invoke(main, ["run", "kept", "--json"]).stdout)
    assert behind["ok"], "rows that a copy has replaced are moved again"
    assert len(shop.rows("orders")) == 249


def test_a_copy_that_is_ended_leaves_nothing_but_its_rows(shop: Shop) -> None:
    shop.source(
        ORDERS,
        ROWS,
        "CREATE VIEW {s}.slow AS SELECT id, note || left(pg_sleep(0.004)::text, 0) AS note, amount "
        "FROM {s}.orders WHERE id <= 150",
    )
    source, target = f"postgres://{shop.schema}.slow", str(shop.target("slow"))
    command = Command(shop.folder)
    pid = command.start("copy", source, target, "--key", "id")
    ends = time.monotonic() + 300
    while not shop.beside("slow"):
        assert command.running and time.monotonic() < ends, command.output
        time.sleep(0.05)
    assert len(shop.temporary) == 1
    for path in shop.temporary[0].rglob("*"):
        if path.is_file():
            assert shop.stack.postgres_url.encode() not in path.read_bytes()
    os.kill(pid, signal.SIGTERM)
    assert command.wait() == 1, command.output
    assert "interrupted" in command.output and "copy again with --replace" in command.output
    assert shop.beside("slow") == []


def test_what_a_killed_copy_has_left_is_replaced(shop: Shop) -> None:
    shop.source(ORDERS, ROWS, "ANALYZE {s}.orders")
    arguments = ("copy", f"postgres://{shop.schema}.orders", str(shop.target("orders")))
    code = Command(shop.folder).run(*arguments, TABLEFERRY_CRASH_AT="after_publish")
    assert code == -signal.SIGKILL
    for path in shop.temporary:
        shutil.rmtree(path)
    shop.source(
        "INSERT INTO {s}.orders SELECT g, repeat('m', 900), 2 FROM generate_series(301, 21000) g",
        "DELETE FROM {s}.orders WHERE id % 7 = 0",
        "ANALYZE {s}.orders",
    )
    assert "exists already" in errors(shop.copy("orders"))
    result = shop.copy("orders", "--replace")
    assert result.exit_code == 0, result.output
    assert same(shop)
    assert shop.beside("orders") == []


def test_what_cannot_be_copied_is_told_before_anything_is_done(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.source(ORDERS, ROWS)
    assert "fits none of" in errors(shop.copy("nothing"))
    assert "no column 'nope'" in errors(shop.copy("orders", "--key", "nope"))
    assert "--key is for one table" in errors(shop.copy("*", "--key", "id"))
    assert "where" in errors(shop.copy("orders", "--where", "nope = 1"))
    source = f"postgres://{shop.schema}.orders"
    for target, told in (
        (source, "appears twice"),
        ("clickhouse://no_such_database.orders", "no_such_database"),
        ("nowhere://warehouse.orders", "nowhere"),
        ("warehouse.orders", "system://schema.table"),
    ):
        assert told in errors(CliRunner().invoke(main, ["copy", source, target])), target
    again = shop.stack.postgres_url
    monkeypatch.setenv("TABLEFERRY_CONNECTION_AGAIN", again)
    other = f"again://{shop.schema}.orders"
    itself = CliRunner().invoke(main, ["copy", source, other, "--replace"])
    assert itself.exit_code == 2, itself.output
    assert len(shop.source("SELECT id FROM {s}.orders")) == 300
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", "http://u:secret@127.0.0.1:9/warehouse")
    gone = errors(shop.copy("orders"))
    assert "127.0.0.1:9" in gone and "secret" not in gone


def test_a_value_that_does_not_fit_is_no_success(shop: Shop) -> None:
    shop.source(
        "CREATE TABLE {s}.orders (id integer PRIMARY KEY, at date)",
        "INSERT INTO {s}.orders VALUES (1, '2024-01-01'), (2, 'infinity')",
    )
    result = shop.copy("orders")
    assert result.exit_code == 1, result.output
    assert "infinity" in result.stderr
    assert "copy again with --replace" in result.stderr
    assert shop.beside("orders") == []
