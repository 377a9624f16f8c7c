"""Casts that lose something, by request: declared, counted, and compared after the same cast."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, price money, exact numeric(30,3), at timestamp(6),"
    " day timestamptz NOT NULL, n bigint)",
    "INSERT INTO {t} SELECT i, i * 0.25::numeric, i, '2024-01-01 10:00:00', '2024-01-01Z', i"
    " FROM generate_series(1, 20) i",
    "UPDATE {t} SET at = '2024-01-01 10:00:00.4', exact = 123456789012345678.125 WHERE id = 2",
    "UPDATE {t} SET at = NULL, day = '2024-01-01 13:00Z', price = '92233720368547758.07',"
    " n = 9007199254740993 WHERE id = 3",
)
TYPES = {
    "clickhouse": ("Float64", "Decimal(20, 2)", "DateTime64(0, 'UTC')", "Date32", "Float64"),
    "sqlserver": ("float", "decimal(20,2)", "datetime2(0)", "date", "float"),
    "postgres": ("double precision", "numeric(20,2)", "timestamp(0)", "date", "double precision"),
}


@pytest.mark.parametrize("system", [*TYPES])
def test_casts_are_counted_and_compared(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    schema = {"clickhouse": "warehouse", "sqlserver": "dbo", "postgres": copies}[system]
    names = ("price", "exact", "at", "day", "n")
    columns = {
        name: {"type": type_, "cast": True}
        for name, type_ in zip(names, TYPES[system], strict=True)
    }
    one = ferry(f"['{system}://{schema}.{{t}}']", *SOURCE, columns=json.dumps(columns))
    moved = one.run()
    assert moved.good, moved.errors
    (note,) = [note for note in moved.notes if "cast" in note]
    assert note.endswith(
        "lost something by cast: 1 of price, 1 of exact, 1 of at, 1 of day, 1 of n"
    )
    server = one.session.servers.endpoints[system]
    target = one.session.transfer(one.table).hops[0].to
    quote = target.system.quote
    selected = ", ".join(map(quote, names))
    where = f"FROM {quote(schema)}.{quote(one.table)} WHERE id"
    ((price, exact, at, day, n),) = server.query(f"SELECT {selected} {where} = 2")
    assert (price, float(exact), n) == (0.5, 123456789012345678.13, 2)
    assert (at.replace(tzinfo=None), day) == (dt.datetime(2024, 1, 1, 10), dt.date(2024, 1, 1))
    ((price, _, at, day, n),) = server.query(f"SELECT {selected} {where} = 3")
    assert (price, at, n) == (92233720368547758.07, None, 9007199254740992.0)
    for level in ("checksum", "full_hash"):
        checked = runner.check(one.session, one.table, level=level)
        assert checked.good, checked.errors
        told = [each.verdict.summary() for each in checked.checks]
        assert any("compared after the same cast: price, exact" in text for text in told)
    assert not one.moved(one.run())
    one.source("UPDATE {t} SET at = '2024-01-01 10:00:07.25' WHERE id = 9")
    assert one.run().good
    ((at,),) = server.query(f"SELECT {quote('at')} {where} = 9")
    assert at.second == 7


@pytest.mark.parametrize("system", ["sqlserver", "clickhouse", "files"])
def test_other_sources_cast_in_their_own_sql(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, system: str
) -> None:
    columns = {
        "amount": {"type": "double precision", "cast": True},
        "at": {"type": "timestamp(0)", "cast": True},
    }
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops)
    settings: dict[str, Any] = {"columns": json.dumps(columns)}
    if system == "files":
        import pyarrow as pa
        import pyarrow.parquet as pq

        moment = dt.datetime(2024, 1, 1, 10, 0, 0, 250_000)
        table = pa.table({"id": [1, 2], "amount": [1.5, None], "at": [moment, None]})
        decimals = pa.schema(
            [("id", pa.int64()), ("amount", pa.decimal128(20, 4)), ("at", pa.timestamp("us"))]
        )
        pq.write_table(table.cast(decimals), tmp_path / "a.parquet")
        # DuckDB's timestamps have microseconds
        columns["at"] |= {"type": "date"}
        settings |= {"source": f"files://{tmp_path}/*.parquet", "key": "''"}
        settings["columns"] = json.dumps(columns)
    elif system == "sqlserver":
        settings["source"] = f"sqlserver://dbo.{one.table}"
        looking.run(
            one.stack,
            system,
            f"CREATE TABLE dbo.{one.table} (id int NOT NULL PRIMARY KEY, amount money, "
            "at datetime2(3))",
        )
        looking.run(
            one.stack,
            system,
            f"INSERT INTO dbo.{one.table} VALUES (1, 1.5, '2024-01-01 10:00:00.250'), "
            "(2, NULL, NULL)",
        )
    else:
        settings["source"] = f"clickhouse://warehouse.{one.table}"
        looking.run(
            one.stack,
            system,
            f"CREATE TABLE warehouse.{one.table} (id Int32, amount Nullable(Decimal(20, 4)), "
            "at Nullable(DateTime64(3, 'UTC'))) ENGINE = MergeTree ORDER BY id",
        )
        looking.run(
            one.stack,
            system,
            f"INSERT INTO warehouse.{one.table} VALUES (1, 1.5, '2024-01-01 10:00:00.250'), "
            "(2, NULL, NULL)",
        )
        columns["at"]["type"] = "timestamptz(0)"
        settings["columns"] = json.dumps(columns)
    one.declare(hops, **settings)
    moved = one.run()
    assert moved.good, moved.errors
    rows = one.rows(f"SELECT id, amount, at FROM {copies}.{{t}} ORDER BY id")
    assert [row[:2] for row in rows] == [(1, 1.5), (2, None)]
    at = dt.date(2024, 1, 1) if system == "files" else dt.datetime(2024, 1, 1, 10)
    assert getattr(rows[0][2], "tzinfo", None) is None or rows[0][2].utcoffset() == dt.timedelta()
    assert str(rows[0][2]).startswith(str(at)) and rows[1][2] is None
    assert any("by cast: 1 of at" in note for note in moved.notes)
    assert runner.check(one.session, one.table, level="full_hash").good


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"n": {"cast": True}}, "needs the type to cast to"),
        ({"id": {"type": "Float64", "cast": True}}, "the key needs"),
        ({"at": {"type": "String", "cast": True}}, "not from timestamp"),
        ({"n": {"type": "Int8", "cast": True}}, "use an expression"),
        ({"n": {"type": "Int8", "cast": True, "expression": "1"}}, "own values"),
    ],
)
def test_what_cannot_be_cast_is_told(
    ferry: Callable[..., Ferry], column: dict[str, Any], message: str
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", SOURCE[0], columns=json.dumps(column))
    result = CliRunner().invoke(main, ["validate"])
    assert result.exit_code == 2
    assert f"{one.folder}/t.yaml:5: " in result.output and message in result.output


def test_a_cast_between_two_postgres_servers_keeps_infinity(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    rows = (
        "CREATE TABLE {t} (id int PRIMARY KEY, at timestamp, day date)",
        "INSERT INTO {t} VALUES (1, 'infinity', '-infinity'), (2, '2024-01-01 10:00:00.6', NULL), "
        "(3, '294276-12-31 23:59:59', '5874897-12-31'), (4, '-infinity', 'infinity')",
    )
    columns = "{at: {type: timestamp(0), cast: true}, day: {type: date}}"
    one = ferry(f"['postgres://{copies}.{{t}}']", *rows, columns=columns)
    view = one.run()
    assert view.good, view.errors
    assert any("lost something by cast: 1 of at" in note for note in view.notes)
    read = "SELECT id, at::timestamp(0)::text, day::text FROM {} ORDER BY id"
    there = one.rows(f"SELECT id, at::text, day::text FROM {copies}.{{t}} ORDER BY id")
    assert there == one.rows(read.format("{t}"))
    assert runner.check(one.session, one.table, level="full_hash").good

    for column, last in (("at", "294247-01-10"), ("day", "5874897-12-31")):
        one.source(f"DROP TABLE {copies}.{{t}}")
        hop = f"[{{{{to: 'postgres://{copies}.{{t}}', wire: arrow}}}}]"
        one.declare(hop, exclude=f"[{'day' if column == 'at' else 'at'}]")
        refused = one.run(force=True)
        assert not refused.good
        assert all(
            f"is outside of the 4714-11-24 BC to {last} that record batches" in error
            and "'wire: auto'" in error
            for error in refused.errors
        ), refused.errors
