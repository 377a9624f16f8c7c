"""Client memory does not grow with the table, nor with the size of its values."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.connecting.address import Server
from tableferry.resources.files.server import FilesServer
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.server import SqlServerServer
from tests.integration.conftest import Ferry, table_name
from tests.servers import Servers

pytestmark = [pytest.mark.integration]

CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
MOST_BYTES = 400 * 1024 * 1024
NOISE = 1.4
"""Allocators keep what they once had, and batches wait where a server is slow; a client that held
the larger table would need half as much again."""

LENGTH, ROWS = 200_000, 400
MOST_BATCH_BYTES = 32 << 20
MOST_GROWTH = 200
"""Megabytes."""


def peak(ferry: Ferry, rows: int) -> int:
    """Peak RSS in bytes of `ferry run` for a new table of that many rows."""
    ferry.source(
        "DROP TABLE IF EXISTS {t}",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL, amount numeric(12,2), "
        "at timestamp NOT NULL, flag boolean, note text)",
        f"INSERT INTO {{t}} SELECT g, 'name ' || g, g * 1.5, timestamp '2024-01-01' + g * interval "
        f"'1 s', g % 2 = 0, repeat('x', 40) FROM generate_series(1, {rows}) g",
    )
    return peak_of_run(ferry.table)


def peak_of_run(transfer: str) -> int:
    """Peak RSS in bytes of `ferry run`, which ends with 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tableferry.pipelines.cli", "run", transfer, "--json"],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = 0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            seen = max(seen, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return seen


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_client_stays_small_and_does_not_grow(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, "CREATE TABLE {t} (id integer PRIMARY KEY)", ranges="{rows: 100000}")
    small = peak(one, 300_000)
    large = peak(one, 2_000_000)
    assert large < MOST_BYTES, f"{large / 2**20:.0f} MiB"
    assert large < small * NOISE, f"{small / 2**20:.0f} MiB, then {large / 2**20:.0f} MiB"


def ten(name: str) -> str:
    """A table of ten rows, in T-SQL."""
    return f"(VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)) {name}(i)"


NOTES = {
    "postgres": "SELECT repeat('x', {length}) AS note FROM generate_series(1, {rows})",
    "sqlserver": "SELECT TOP {rows} REPLICATE(CAST(N'x' AS nvarchar(max)), {length}) AS note FROM "
    + " CROSS JOIN ".join(map(ten, "abcd")),
}
"""Queries for large values that no table has to hold, by system."""


def written(folder: Path, format: str, length: int, rows: int) -> str:
    """Write a file of large values, which compress well; return the query that reads it."""
    (folder / format).mkdir(parents=True)
    name = format if format == "parquet" else f"{format}.gz"
    file, note = folder / format / f"large.{name}", "x" * length
    if format == "parquet":
        table = pa.table({"id": range(rows), "note": pa.array([note] * rows, pa.large_string())})
        # by default a page has 1,024 rows, whatever their size, and is read whole
        options = {"use_dictionary": False, "write_batch_size": 16, "row_group_size": 500}
        pq.write_table(table, file, **options)
    else:
        row = '{{"id": {}, "note": "{}"}}\n' if format == "ndjson" else "{},{}\n"
        with gzip.open(file, "wt", compresslevel=1) as lines:
            lines.write("id,note\n" if format == "csv" else "")
            lines.writelines(row.format(at, note) for at in range(rows))
    return f'SELECT "id", "note" FROM "{format}"."*.{name}"'


@pytest.mark.parametrize("source", [*NOTES, "clickhouse", "ndjson", "csv", "parquet"])
def test_large_values_are_read_in_batches_of_few_bytes(
    source: str, stack: Servers, tmp_path: Path
) -> None:
    """By rows alone, they would be a batch of 80 MB, or of 13 GB with 65,536 rows."""
    if source == "clickhouse":
        server: Server = ClickHouseServer(url=stack.clickhouse_url)
        table = f"warehouse.{table_name()}"
        server.execute(f"CREATE TABLE {table} (id Int64, note String) ORDER BY id")
        server.execute(
            f"INSERT INTO {table} SELECT number, repeat('x', {LENGTH}) FROM numbers({ROWS})"
        )
        sql = f"SELECT note FROM {table} ORDER BY id"
    elif source in NOTES:
        url = getattr(stack, f"{source}_url")
        server = PostgresServer(url=url) if source == "postgres" else SqlServerServer(url=url)
        sql = NOTES[source].format(length=LENGTH, rows=ROWS)
    else:
        server = FilesServer(url=f"file://{tmp_path}")
        sql = written(tmp_path, source, LENGTH, ROWS)
    with server.read_arrow(sql) as reader:
        sizes = [batch.nbytes for batch in reader]
    assert sum(sizes) >= LENGTH * ROWS
    assert max(sizes) <= MOST_BATCH_BYTES
    if source == "clickhouse":
        server.execute(f"DROP TABLE {table}")


def test_small_values_are_read_in_large_batches(stack: Servers, tmp_path: Path) -> None:
    """Columns that could hold large values cost nothing where they do not."""
    sql = NOTES["sqlserver"].format(length=4, rows=10_000)
    with SqlServerServer(url=stack.sqlserver_url).read_arrow(sql, batch_rows=4_000) as reader:
        assert [batch.num_rows for batch in reader] == [3_984, 3_968, 2_048]
    sql = written(tmp_path, "ndjson", 4, 10_000)
    with FilesServer(url=f"file://{tmp_path}").read_arrow(sql, batch_rows=4_000) as reader:
        assert [batch.num_rows for batch in reader] == [3_968, 3_968, 2_064]


DIGESTED = """
import sys
from tableferry.resources.files.server import FilesServer
server = FilesServer(url="file://" + sys.argv[1])
for folder in sys.argv[2:]:
    table = f'"{folder}"."*"'
    rows = server.query(f"SELECT count(*), sum(strlen(concat(note, ',', note || id))) FROM {table}")
    with open("/proc/self/status") as status:
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print(rows[0][0], int(peak) >> 10)
"""


@pytest.mark.parametrize("kind", ["parquet", "dictionary", "csv", "ndjson"])
def test_large_values_of_files_are_digested_in_few_bytes(kind: str, tmp_path: Path) -> None:
    """By DuckDB's own chunks of 2,048 rows it would hold them all, and copies of them."""
    format = "parquet" if kind == "dictionary" else kind
    rows = 400 if kind == "ndjson" else 800
    for name, length in (("small", 100), ("large", LENGTH)):
        written(tmp_path / name, format, length, rows)
        if kind == "dictionary":  # as pyarrow writes by default, the value stands there once
            file = next((tmp_path / name / format).iterdir())
            table = pa.table({"id": range(rows), "note": ["x" * length] * rows})
            pq.write_table(table, file)
    folders = [f"small/{format}", f"large/{format}"]
    command = [sys.executable, "-c", DIGESTED, str(tmp_path), *folders]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert [int(lines[0]), int(lines[2])] == [rows, rows]
    assert int(lines[3]) - int(lines[1]) < MOST_GROWTH, lines


IN_THE_SOAK = ["postgres", "sqlserver", "clickhouse", "csv", "ndjson"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("parquet", marks=pytest.mark.slow),
        *(pytest.param(source, marks=pytest.mark.soak) for source in IN_THE_SOAK),
    ],
)
def test_gigabytes_of_large_values_are_moved_in_little_memory(
    source: str, ferry: Callable[..., Ferry], stack: Servers, tmp_path: Path
) -> None:
    rows = 10_000
    one = ferry(CHAIN, "CREATE TABLE {t} (id integer PRIMARY KEY, note text)")
    hops, name = "['clickhouse://warehouse.{t}']", f"{source}://dbo.{one.table}"
    if source == "postgres":
        name = f"postgres://public.{one.table}"
        made = f"repeat('x', {LENGTH}) FROM generate_series(1, {rows}) g"
        one.source(f"INSERT INTO {{t}} SELECT g, {made}")
    elif source == "sqlserver":
        server = SqlServerServer(url=stack.sqlserver_url)
        made = NOTES[source].format(length=LENGTH, rows=rows).removeprefix(f"SELECT TOP {rows} ")
        server.execute(f"CREATE TABLE dbo.{one.table} (id int PRIMARY KEY, note nvarchar(max))")
        server.execute(
            f"INSERT INTO dbo.{one.table} SELECT TOP {rows} "
            f"ROW_NUMBER() OVER (ORDER BY (SELECT 1)), {made}"
        )
    elif source != "clickhouse":
        written(tmp_path, source, LENGTH, rows)
        name = f"files://{tmp_path}/{source}/large.*"
    else:
        name, hops = f"clickhouse://warehouse.{one.table}", "['postgres://public.{t}_copy']"
        ClickHouseServer(url=stack.clickhouse_url).execute(
            f"CREATE TABLE warehouse.{one.table} ENGINE = MergeTree ORDER BY id AS "
            f"SELECT toInt32(number) AS id, repeat('x', {LENGTH}) AS note FROM numbers({rows})"
        )
    cut = {"key": "_file"} if name.startswith("files") else {"ranges": "{count: 1}"}
    one.declare(hops, source=name, **cut)
    used = peak_of_run(one.table)
    assert used < 600 << 20, f"{used / 2**20:.0f} MiB"
