"""What two catalogs declare, compared: one pair of tables, and whole schemas by a pattern."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tests.integration.conftest import table_name
from tests.integration.support.pairs import places
from tests.servers import Servers

pytestmark = pytest.mark.integration

POSTGRES = (
    "CREATE SCHEMA {t}",
    "CREATE TABLE {t}.{t}_same (id int PRIMARY KEY, note text DEFAULT 'x', price numeric(12,2), "
    "at timestamp(6) NOT NULL, UNIQUE (note, price))",
    "CREATE TABLE {t}.{t}_other (id bigint PRIMARY KEY, code varchar(20) NOT NULL, "
    "price numeric(12,4) DEFAULT 0, at timestamp, gone int)",
    "CREATE INDEX ON {t}.{t}_other (code, at)",
    "CREATE TABLE {t}.{t}_alone (id int)",
)
SQLSERVER = (
    "CREATE TABLE dbo.{t}_same (id int NOT NULL PRIMARY KEY, note nvarchar(max) NULL DEFAULT N'x', "
    "price decimal(12,2) NULL, at datetime2(6) NOT NULL)",
    "CREATE TABLE dbo.{t}_other (Id bigint NOT NULL, Code nvarchar(10) NULL, "
    "Price decimal(12,2) NULL DEFAULT 1, At datetime2(6) NULL, Added int NULL)",
    "CREATE INDEX {t}_i ON dbo.{t}_other (Price)",
)
CLICKHOUSE = (
    "CREATE TABLE warehouse.{t}_same (id Int32, note Nullable(String), "
    "price Nullable(Decimal(12, 2)), at DateTime64(6, 'UTC')) ENGINE MergeTree ORDER BY id",
)


@pytest.fixture(scope="module")
def name(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found, table = places(stack, tmp_path_factory.mktemp("files")), table_name()
    created = {"postgres": POSTGRES, "sqlserver": SQLSERVER, "clickhouse": CLICKHOUSE}
    with pytest.MonkeyPatch.context() as patch:
        for system, statements in created.items():
            patch.setenv(f"TABLEFERRY_{system.upper()}_URL", getattr(stack, f"{system}_url"))
            for statement in statements:
                found[system].endpoint.execute(statement.format(t=table))
        yield table
        found["postgres"].endpoint.execute(f"DROP SCHEMA {table} CASCADE")
        for each in ("same", "other"):
            found["sqlserver"].endpoint.execute(f"DROP TABLE dbo.{table}_{each}")
        found["clickhouse"].endpoint.execute(f"DROP TABLE warehouse.{table}_same SYNC")


def compare(*arguments: str, code: int) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["compare", "--schema", *arguments, "--json"])
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_tables_that_mean_the_same_are_the_same(name: str) -> None:
    found = compare(f"postgres://{name}.{name}_same", f"clickhouse://warehouse.{name}_same", code=0)
    assert found["ok"], found
    (pair,) = compare(f"postgres://{name}.{name}_same", f"sqlserver://dbo.{name}_same", code=1)[
        "pairs"
    ]
    assert [(each["what"], each["column"]) for each in pair["differences"]] == [
        ("unique key", "note, price")
    ]


def test_what_is_declared_otherwise_is_named(name: str) -> None:
    arguments = (f"postgres://{name}.{name}_other", f"sqlserver://dbo.{name}_other")
    (pair,) = compare(*arguments, code=1)["pairs"]
    found = [(each["what"], each["column"], each["a"], each["b"]) for each in pair["differences"]]
    defaults = [each for each in found if each[0] == "default"]
    assert [(each[1], each[2], each[3].strip("()")) for each in defaults] == [("price", "0", "1")]
    # Babelfish names the columns of indexes in lower case
    indexes = [(what, column.lower(), *sides) for what, column, *sides in found if what == "index"]
    assert sorted(indexes) == [("index", "code, at", "only", ""), ("index", "price", "", "only")]
    assert {each for each in found if each[0] not in ("index", "default")} == {
        ("column", "gone", "integer", ""),
        ("column", "Added", "", "int"),
        ("type", "code", "character varying(20)", "nvarchar(10)"),
        ("type", "price", "numeric(12,4)", "decimal(12,2)"),
        ("nullability", "code", "NOT NULL", "NULL"),
        ("primary key", "", "id", ""),
    }
    says = {each["column"]: each["says"] for each in pair["differences"] if each["says"]}
    assert says["price"] == "each holds values that the other cannot"
    without = compare(*arguments, "--exclude", "gone,code", code=1)["pairs"][0]["differences"]
    assert not {"gone", "code"} & {each["column"] for each in without}


def test_a_whole_schema_has_a_line_per_pair_differences_first(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = [f"postgres://{name}.*", "sqlserver://dbo.{table}", "--html", str(page)]
    found = compare(*arguments, code=1)
    by_table = {pair["a"]: pair for pair in found["pairs"] if pair["a"]}
    alone = by_table[f"postgres://{name}.{name}_alone"]
    assert (alone["b"], alone["ok"]) == (None, False)
    assert len(by_table) == 3
    result = CliRunner().invoke(main, ["compare", "--schema", *arguments])
    assert f"postgres://{name}.{name}_alone" in result.stdout
    assert "unique key note, price only in A" in result.stdout
    assert "only in A" in page.read_text(encoding="utf-8")


def test_a_pattern_is_about_the_tables_that_it_names_on_either_side(name: str) -> None:
    """Others of B's schema are none of its business."""
    found = compare(f"postgres://{name}.*_same", f"sqlserver://dbo.{name}_{{table}}", code=1)
    named = {pair["a"] or pair["b"] for pair in found["pairs"]}
    assert named == {f"postgres://{name}.{name}_same"}
    found = compare(f"postgres://{name}.{name}_s*", "sqlserver://dbo.{table}", code=1)
    assert [pair["b"] for pair in found["pairs"]] == [f"sqlserver://dbo.{name}_same"]
    found = compare(f"sqlserver://dbo.{name}_*", f"postgres://{name}.{{table}}", code=1)
    alone = [pair["b"] for pair in found["pairs"] if pair["a"] is None]
    assert alone == [f"postgres://{name}.{name}_alone"]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            "postgres:SELECT 1 AS id",
            "sqlserver://dbo.{t}_same",
            "'postgres:SELECT 1 AS id' is a query",
        ),
        ("postgres://{t}.nope*", "sqlserver://dbo.{{table}}", "fits no table"),
        ("postgres://{t}.*", "sqlserver://dbo.x", "should name its tables by {{table}}"),
        ("postgres://{t}.nope", "sqlserver://dbo.{t}_same", "nope does not exist"),
    ],
)
def test_what_there_is_not_is_said(name: str, first: str, second: str, says: str) -> None:
    arguments = [text.format(t=name) for text in (first, second)]
    result = CliRunner().invoke(main, ["compare", "--schema", *arguments])
    assert result.exit_code == 2, result.output
    assert says.format(t=name) in result.stderr


def test_rows_are_not_asked_about(name: str) -> None:
    tables = [f"postgres://{name}.{name}_same", f"clickhouse://warehouse.{name}_same"]
    result = CliRunner().invoke(main, ["compare", "--schema", *tables, "--key", "id"])
    assert result.exit_code == 2
    assert "--schema reads no rows" in result.stderr
