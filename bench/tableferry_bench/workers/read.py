"""Reads a table in one of the ways of the lab; what to do is on its standard input.

Where to read is in libpq's variables. Prints the number of rows, and the seconds by the clock
and of the CPU that reading took.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

BATCH = 10_000
"""Rows that the strategies fetch at once that fetch in parts."""

Told = dict[str, Any]


def main() -> None:
    """Read, and print what was found."""
    told: Told = json.load(sys.stdin)
    importlib.import_module(told["module"])  # some take longer than the reading of a small table
    started, (cpu, system) = time.perf_counter(), _cpu_seconds()
    rows = STRATEGIES[told["strategy"]](told)
    seconds, (cpu_then, system_then) = time.perf_counter() - started, _cpu_seconds()
    found = {
        "seconds": seconds,
        "cpu_seconds": cpu_then - cpu,
        "system_seconds": system_then - system,
    }
    print(json.dumps({"rows": rows, **{name: round(one, 4) for name, one in found.items()}}))


def _cpu_seconds() -> tuple[float, float]:
    """The CPU seconds of this process, and of those that it started and that have ended: all, and
    those that the kernel took."""
    times = os.times()
    system = times.system + times.children_system
    return times.user + times.children_user + system, system


def fetchall(told: Told) -> int:
    """All at once, as most programs do at first."""
    import psycopg

    with psycopg.connect("") as connection:
        return len(connection.execute(f"SELECT * FROM {told['table']}").fetchall())


def server_side_cursor(told: Told) -> int:
    """In parts, by a cursor of the server."""
    import psycopg

    with psycopg.connect("") as connection, connection.cursor("rows") as cursor:
        cursor.execute(f"SELECT * FROM {told['table']}")
        rows = 0
        while found := cursor.fetchmany(BATCH):
            rows += len(found)
        return rows


def pooled(told: Told) -> int:
    """Key ranges side by side, in threads with connections of a pool."""
    from concurrent.futures import ThreadPoolExecutor

    from psycopg_pool import ConnectionPool

    with ConnectionPool("", min_size=told["workers"], max_size=told["workers"]) as pool:

        def part(query: str) -> int:
            with pool.connection() as connection, connection.cursor("rows") as cursor:
                cursor.execute(query)
                rows = 0
                while found := cursor.fetchmany(BATCH):
                    rows += len(found)
                return rows

        with ThreadPoolExecutor(told["workers"]) as threads:
            return sum(threads.map(part, _parts(told)))


def asyncpg_stream(told: Told) -> int:
    """Key ranges side by side, in one event loop."""
    import asyncpg

    async def part(query: str) -> int:
        connection = await asyncpg.connect()
        try:
            async with connection.transaction():
                cursor = await connection.cursor(query)
                rows = 0
                while found := await cursor.fetch(BATCH):
                    rows += len(found)
                return rows
        finally:
            await connection.close()

    async def every() -> int:
        return sum(await asyncio.gather(*(part(query) for query in _parts(told))))

    return asyncio.run(every())


def in_processes(told: Told) -> int:
    """Key ranges side by side, in processes."""
    with multiprocessing.get_context("spawn").Pool(told["workers"]) as pool:
        return sum(pool.map(_in_process, _parts(told)))


def _in_process(query: str) -> int:
    import psycopg

    with psycopg.connect("") as connection, connection.cursor("rows") as cursor:
        cursor.execute(query)
        rows = 0
        while found := cursor.fetchmany(BATCH):
            rows += len(found)
        return rows


def adbc(told: Told) -> int:
    """ADBC: binary COPY into Arrow batches, in C++."""
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect("postgresql://") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {told['table']}")
        with cursor.fetch_record_batch() as batches:
            return sum(batch.num_rows for batch in batches)


def copy_text(told: Told) -> int:
    """COPY as text, in large chunks, as Tableferry reads it."""
    import psycopg

    from tableferry.resources.postgres.copy_out import copy_out

    with psycopg.connect("", autocommit=True) as connection:
        chunks = copy_out(connection, f"SELECT * FROM {told['table']}")
        return sum(chunk.count(b"\n") for chunk in chunks)


def copy_binary(told: Told) -> int:
    """COPY in PostgreSQL's binary format, by psycopg."""
    import psycopg

    query = f"COPY {told['table']} TO STDOUT (FORMAT BINARY)"
    with psycopg.connect("") as connection, connection.cursor() as cursor:
        with cursor.copy(query) as copy:
            for _ in copy:
                pass
        return cursor.rowcount


def _parts(told: Told) -> list[str]:
    """Queries of the key ranges, one per worker."""
    low, high, workers = told["low"], told["high"], told["workers"]
    width = (high - low) // workers + 1
    return [
        f"SELECT * FROM {told['table']} WHERE {told['key']} >= {low + number * width} "
        f"AND {told['key']} < {low + (number + 1) * width}"
        for number in range(workers)
    ]


STRATEGIES: dict[str, Callable[[Told], int]] = {
    "fetchall": fetchall,
    "server-side-cursor": server_side_cursor,
    "pooled": pooled,
    "asyncpg-stream": asyncpg_stream,
    "multiprocessing": in_processes,
    "adbc": adbc,
    "copy-text": copy_text,
    "copy-binary": copy_binary,
}

if __name__ == "__main__":
    main()
