"""Every type through every client of the SQL Server stand-in, NULLs included."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from local.tests.standin.integration.clients import FIELD_END, ROW_END, Clients
from local.tests.standin.integration.values import CASES, LOADABLE

from tableferry_local.stack import Stack

pytestmark = pytest.mark.integration

needs_freebcp = pytest.mark.skipif(
    shutil.which("freebcp") is None, reason="freebcp (Debian package freetds-bin) is not installed"
)
COLUMNS = ", ".join(case.column for case in CASES)
WHOLE, COPY = "dbo.standin_types", "dbo.standin_types_copy"


@pytest.fixture(scope="module")
def clients(local_stack: Stack) -> Iterator[Clients]:
    """Clients of a server that has a table with all types: rows 1 and 2 filled, row 3 NULL."""
    found = Clients.of(local_stack.sqlserver_url)
    found.run(
        *[f"IF OBJECT_ID('{table}') IS NOT NULL DROP TABLE {table}" for table in (WHOLE, COPY)]
    )
    declared = ", ".join(f"{case.column} {case.type} NULL" for case in CASES)
    found.run(*[f"CREATE TABLE {table} (id int NOT NULL, {declared})" for table in (WHOLE, COPY)])
    for row in (0, 1):
        literals = ", ".join(case.literals[row] for case in CASES)
        found.run(f"INSERT INTO {WHOLE} (id, {COLUMNS}) VALUES ({row + 1}, {literals})")
    found.run(f"INSERT INTO {WHOLE} (id) VALUES (3)")
    yield found
    found.run(f"DROP TABLE {WHOLE}", f"DROP TABLE {COPY}")


def _empty_copy(clients: Clients) -> None:
    clients.run(f"TRUNCATE TABLE {COPY}")


ALL = f"SELECT {COLUMNS} FROM {WHOLE} ORDER BY id"


def _by_type(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {case.type: [row[at] for row in rows] for at, case in enumerate(CASES)}


def test_odbc_reads(clients: Clients) -> None:
    with clients.odbc() as connection:
        rows = connection.cursor().execute(ALL).fetchall()
    assert _by_type(rows) == {case.type: [*case.values, None] for case in CASES}


def test_the_arrow_reader_reads(clients: Clients) -> None:
    table = clients.arrow(ALL)
    found = {case.type: _utc(table[case.column].to_pylist()) for case in CASES}
    assert found == {case.type: _utc([*case.arrow, None]) for case in CASES}


def test_pymssql_reads(clients: Clients) -> None:
    assert _by_type(clients.rows(ALL)) == {case.type: [*case.pymssql, None] for case in CASES}


@needs_freebcp
def test_freebcp_prints(clients: Clients, tmp_path: Path) -> None:
    file = tmp_path / "out"
    done = clients.freebcp(ALL, "queryout", file)
    assert "3 rows copied" in done.stdout, done.stderr
    rows = file.read_text(encoding="utf-8").split(ROW_END)[:-1]
    found = _by_type([tuple(row.split(FIELD_END)) for row in rows])
    assert found == {case.type: [*case.bcp, ""] for case in CASES}


@pytest.mark.parametrize("encrypt", ["yes", "no"])
def test_bulkcopy_arrow_writes_what_the_arrow_reader_reads(clients: Clients, encrypt: str) -> None:
    _empty_copy(clients)
    table = clients.arrow(f"SELECT id, {COLUMNS} FROM {WHOLE} ORDER BY id", encrypt=encrypt)
    with clients.odbc(Encrypt=encrypt) as connection:
        done = connection.cursor().bulkcopy_arrow(COPY, table.to_reader(), timeout=0)
    assert done["rows_copied"] == 3
    assert clients.arrow(f"SELECT id, {COLUMNS} FROM {COPY} ORDER BY id").equals(table)


def test_bulkcopy_writes_what_odbc_reads(clients: Clients) -> None:
    _empty_copy(clients)
    # mssql-python 1.16 sends the local time of a datetimeoffset where its UTC time belongs.
    names = ["id", *(case.column for case in CASES if case.type != "datetimeoffset(7)")]
    listed = ", ".join(names)
    with clients.odbc() as connection:
        cursor = connection.cursor()
        found = cursor.execute(f"SELECT {listed} FROM {WHOLE} ORDER BY id").fetchall()
        rows = [tuple(row) for row in found]
        done = cursor.bulkcopy(COPY, rows, timeout=0, column_mappings=names)
        copied = cursor.execute(f"SELECT {listed} FROM {COPY} ORDER BY id").fetchall()
    assert done["rows_copied"] == 3
    assert [tuple(row) for row in copied] == rows


@needs_freebcp
def test_freebcp_loads(clients: Clients, tmp_path: Path) -> None:
    file = tmp_path / "in"
    table = f"{COPY}_freebcp"
    declared = ", ".join(f"c{n} {kind} NULL" for n, (kind, _, _) in enumerate(LOADABLE))
    clients.run(f"CREATE TABLE {table} (id int NOT NULL, {declared})")
    try:
        rows = [["1", *(text for _, text, _ in LOADABLE)], ["2", *("" for _ in LOADABLE)]]
        text = "".join(FIELD_END.join(row) + ROW_END for row in rows)
        file.write_text(text, encoding="utf-8", newline="")
        done = clients.freebcp(table, "in", file)
        assert done.stderr == ""
        assert "2 rows copied" in done.stdout
        found = clients.rows(f"SELECT * FROM {table} ORDER BY id")
    finally:
        clients.run(f"DROP TABLE {table}")
    kinds = [kind for kind, _, _ in LOADABLE]
    assert dict(zip(kinds, found[0][1:], strict=True)) == {kind: v for kind, _, v in LOADABLE}
    assert found[1:] == [(2, *(None for _ in LOADABLE))]


def test_arrow_types_follow_the_declared_types(clients: Clients) -> None:
    schema = clients.arrow(f"SELECT {COLUMNS} FROM {WHOLE}").schema
    expected = {
        "c_tinyint": pa.uint8(),
        "c_smallint": pa.int16(),
        "c_int": pa.int32(),
        "c_bigint": pa.int64(),
        "c_bit": pa.bool_(),
        "c_decimal_38_10": pa.decimal128(38, 10),
        "c_money": pa.decimal128(19, 4),
        "c_float": pa.float64(),
        "c_real": pa.float32(),
        "c_date": pa.date32(),
        "c_datetime2_6": pa.timestamp("us"),
    }
    assert {name: schema.field(name).type for name in expected} == expected


def _utc(values: list[Any]) -> list[Any]:
    """Instants without their offsets: Arrow keeps one zone per column."""
    return [
        value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value
        for value in values
    ]
