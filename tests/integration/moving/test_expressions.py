"""Columns that are computed in the source's SQL: moved, proven and shown like any other column."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, email text, doc jsonb, price numeric(12,2), n int)",
    "INSERT INTO {t} SELECT i, 'User' || i || '@Example.com', jsonb_build_object('city', 'c' || i),"
    " i * 1.25, i FROM generate_series(1, 40) i",
    "UPDATE {t} SET email = NULL, doc = NULL WHERE id = 5",
)
MASKED = "encode(sha256(lower(email)::bytea), 'hex')"
COLUMNS = {
    "email": {"expression": MASKED, "type": "text"},
    "city": {"expression": "doc->>'city' -- of the customer", "type": "text"},
    "gross": {"expression": "price * 1.19 + length(email)", "type": "numeric(14,4)"},
}


def masked(email: str) -> str:
    return hashlib.sha256(email.lower().encode()).hexdigest()


def declared(**columns: Any) -> str:
    return json.dumps({**COLUMNS, **columns})


@pytest.mark.parametrize(
    ("hops", "level"),
    [
        ("['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", "checksum"),
        ("['clickhouse://warehouse.{t}']", "checksum"),
        ("['postgres://{copies}.{{t}}']", "checksum"),
        ("['files://{folder}/{{t}}/']", "full_hash"),
    ],
    ids=["chain", "clickhouse", "postgres", "files"],
)
def test_expressions_are_moved_and_proven(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, hops: str, level: str
) -> None:
    if "{{" in hops:
        hops = hops.format(copies=copies, folder=tmp_path)
    settings = {"exclude": "[doc]", "ranges": "{count: 2}", "reconcile": level}
    one = ferry(hops, *SOURCE, columns=declared(), **settings)
    validated = command("validate")
    assert validated.exit_code == 0, validated.output
    moved = one.run()
    assert moved.good, moved.errors
    target = one.session.transfer(one.table).hops[-1].to
    server = one.session.servers.endpoints[target.connection]
    quote = target.system.quote
    wanted = ", ".join(map(quote, ("id", "email", "city", "gross", "n")))
    table = f"{quote(target.schema)}.{quote(target.name)}"
    rows = {row[0]: tuple(row[1:]) for row in server.query(f"SELECT {wanted} FROM {table}")}
    assert len(rows) == 40 and rows[5] == (None, None, None, 5)
    city, gross = "c7", 7 * 1.25 * 1.19 + len("User7@Example.com")
    assert rows[7][:2] == (masked("User7@Example.com"), city)
    assert float(rows[7][2]) == pytest.approx(gross)
    checked = runner.check(one.session, one.table, level="full_hash")
    assert checked.good, checked.errors
    assert not one.moved(one.run()), "nothing has changed"

    # a change of a column that an expression reads, which itself is not copied
    one.source('UPDATE {t} SET doc = \'{{"city": "new"}}\' WHERE id = 39')
    assert len(one.moved(one.run())) == 1
    ((found,),) = server.query(f"SELECT {quote('city')} FROM {table} WHERE {quote('id')} = 39")
    assert found == "new"

    # another expression
    upper = {"expression": "upper(doc->>'city')", "type": "text"}
    one.declare(hops, columns=declared(city=upper), **settings)
    assert len(one.moved(one.run())) == 3
    ((found,),) = server.query(f"SELECT {quote('city')} FROM {table} WHERE {quote('id')} = 39")
    assert found == "NEW"


def test_differing_rows_show_what_is_masked(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE, columns=declared(), exclude="[doc]")
    assert one.run().good
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE email = 'forged' WHERE id = 7"
        " SETTINGS mutations_sync = 2"
    )
    checked = runner.check(one.session, one.table, level="full_hash")
    assert not checked.good, [(c.verdict.check, c.verdict.summary()) for c in checked.checks]
    key_range = one.plan().ranges[0].range
    shown = command("diff", one.table, "--range", key_range, "--json").stdout
    assert masked("User7@Example.com") in shown and "forged" in shown
    assert "Example.com" not in shown and "Example.com" not in str(checked)


@pytest.mark.parametrize("system", ["sqlserver", "clickhouse", "files"])
def test_other_sources_compute_in_their_own_sql(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, system: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops)
    schema = "dbo" if system == "sqlserver" else "warehouse"
    source = f"{system}://{schema}.{one.table}"
    columns = {
        "sqlserver": {
            "name": {"expression": "UPPER(name)", "type": "nvarchar(40)"},
            "size": {"expression": "LEN(name)", "type": "int"},
        },
        "clickhouse": {
            "name": {"expression": "upper(name)", "type": "String"},
            "size": {"expression": "length(name)", "type": "Int32"},
        },
        "files": {
            "name": {"expression": "upper(name)", "type": "VARCHAR"},
            "size": {"expression": "length(name)", "type": "INTEGER"},
        },
    }[system]
    settings: dict[str, Any] = {"source": source, "columns": json.dumps(columns)}
    if system == "files":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"id": [1, 2], "name": ["ab", None]}), tmp_path / "a.parquet")
        settings |= {"source": f"files://{tmp_path}/*.parquet", "key": "''"}
    elif system == "sqlserver":
        looking.run(
            one.stack,
            system,
            f"CREATE TABLE dbo.{one.table} (id int NOT NULL PRIMARY KEY, name nvarchar(20))",
        )
        looking.run(one.stack, system, f"INSERT INTO dbo.{one.table} VALUES (1, N'ab'), (2, NULL)")
    else:
        looking.run(
            one.stack,
            system,
            f"CREATE TABLE warehouse.{one.table} (id Int32, name Nullable(String))"
            " ENGINE = MergeTree ORDER BY id",
        )
        looking.run(
            one.stack, system, f"INSERT INTO warehouse.{one.table} VALUES (1, 'ab'), (2, NULL)"
        )
    one.declare(hops, **settings)
    moved = one.run()
    assert moved.good, moved.errors
    rows = one.rows(f"SELECT id, name, size FROM {copies}.{{t}} ORDER BY id")
    assert rows == [(1, "AB", 2), (2, None, None)]
    assert runner.check(one.session, one.table, level="full_hash").good


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ({"email": {"expression": "lowr(email)", "type": "text"}}, {}, "function lowr(text)"),
        ({"x": {"expression": "nope + 1", "type": "int"}}, {}, 'column "nope" does not exist'),
        ({"x": {"expression": "n), (n", "type": "int"}}, {}, "column 'x': postgres://"),
        ({"x": {"expression": "n"}}, {}, "needs type"),
        ({"id": {"expression": "id + 1", "type": "int"}}, {}, "the key needs"),
        ({"id": {"expression": "id", "type": "int"}}, {"key": "n"}, "the primary key needs"),
        (
            {"n": {"expression": "n + 1", "type": "int"}},
            {"where": "n > 3"},
            "should do without columns that expressions replace",
        ),
        ({"m": {"expression": "n + 1", "type": "int"}}, {"where": "{t}.n > 3"}, None),
    ],
)
def test_what_the_server_says_is_told_with_file_and_line(
    ferry: Callable[..., Ferry], columns: dict[str, Any], more: dict[str, str], message: str | None
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    more = {name: value.format(t=one.table) for name, value in more.items()}
    one.declare(
        "['clickhouse://warehouse.{t}']", columns=json.dumps(columns), exclude="[doc]", **more
    )
    result = command("validate")
    if message is None:
        assert result.exit_code == 0, result.output
        moved = one.run()
        assert moved.good, moved.errors
        return
    assert result.exit_code == 2
    assert f"{one.folder}/t.yaml:5: " in result.output and message in result.output
    planned = command("plan", one.table)
    assert planned.exit_code == 2 and message in planned.output
