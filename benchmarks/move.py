"""How fast tables move: `python -m benchmarks.move [--rows N] [--repeat N]`.

Runs on the servers of the environment's URLs, or on a local stack of its own. The measure is the
ratio to a bare pipe, PostgreSQL's COPY into ClickHouse's HTTP insert, in the same run on the same
machine: neither plans, checks nor records anything. Measured, nothing asserted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.servers import servers
from resources.clickhouse.resource import ClickHouseResource
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.tables import TableRef

TABLE = "bench_move"
CREATE = """
CREATE TABLE {t} (
    id integer PRIMARY KEY, customer integer NOT NULL, product bigint, quantity smallint NOT NULL,
    price numeric(12,2) NOT NULL, discount numeric(5,4), paid boolean NOT NULL,
    ratio double precision, note text, code varchar(20) NOT NULL, city text NOT NULL,
    day date NOT NULL,
    created timestamp NOT NULL, changed timestamptz, ref uuid NOT NULL
)"""
FILL = """
INSERT INTO {t} SELECT g, g % 5000, CASE WHEN g % 11 > 0 THEN g * 7919::bigint END, g % 100,
    g * 0.37, (g % 100) / 100.0, g % 3 = 0, sqrt(g), CASE WHEN g % 5 > 0 THEN
    repeat('lorem ipsum ', g % 8) END, 'C' || lpad(g::text, 9, '0'), 'city ' || g % 300,
    date '2020-01-01' + g % 1500, timestamp '2020-01-01' + g * interval '7 s',
    timestamptz '2020-01-01 00:00:00+00' + g * interval '11 s', md5(g::text)::uuid
FROM generate_series(1, {rows}) g"""
ROUTES = {
    "direct_arrow": "[{to: 'clickhouse://warehouse.bench_move', wire: arrow}]",
    "direct_text": "[{to: 'clickhouse://warehouse.bench_move', wire: text}]",
    "chain": "['sqlserver://dbo.bench_move', 'clickhouse://warehouse.bench_move']",
}


def main() -> None:
    """Measure every route, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--routes", nargs="*", choices=ROUTES, default=list(ROUTES))
    arguments = parser.parse_args()
    with servers() as (environment, folder):
        found = measure(environment, folder, arguments.rows, arguments.repeat, arguments.routes)
    print(json.dumps(found, indent=2))


def measure(
    environment: dict[str, str], folder: Path, rows: int, repeat: int, routes: list[str]
) -> dict[str, object]:
    """Median rows/s of the bare pipe and of each route, and the ratio between them."""
    postgres = PostgresResource(url=environment["TABLEFERRY_POSTGRES_URL"])
    clickhouse = ClickHouseResource(url=environment["TABLEFERRY_CLICKHOUSE_URL"])
    postgres.execute(f"DROP TABLE IF EXISTS {TABLE}")
    postgres.execute(CREATE.format(t=TABLE))
    postgres.execute(FILL.format(t=TABLE, rows=rows))
    clickhouse.execute("CREATE DATABASE IF NOT EXISTS warehouse")
    pipe = _median(repeat, lambda: bare_pipe(postgres, clickhouse))
    found: dict[str, object] = {"rows": rows, "bare_pipe_rows_per_second": round(rows / pipe)}
    for route in routes:
        seconds, memory = [], []
        for attempt in range(repeat):
            home = folder / f"{route}-{attempt}"
            took, peak = ferry(environment, home, route)
            seconds.append(took)
            memory.append(peak)
        median = statistics.median(seconds)
        found[route] = {
            "rows_per_second": round(rows / median),
            "ratio_to_bare_pipe": round(pipe / median, 3),
            "seconds": [round(one, 2) for one in seconds],
            "peak_client_mib": round(max(memory)),
        }
    return found


def bare_pipe(postgres: PostgresResource, clickhouse: ClickHouseResource) -> float:
    """Seconds that the two bulk tools take when they are simply connected."""
    pipe = TableRef("clickhouse", "warehouse", f"{TABLE}_pipe")
    clickhouse.execute(f"DROP TABLE IF EXISTS warehouse.{pipe.name} SYNC")
    clickhouse.execute(
        f"CREATE TABLE warehouse.{pipe.name} (id Int32, customer Int32, product Nullable(Int64), "
        "quantity Int16, price Decimal(12, 2), discount Nullable(Decimal(5, 4)), paid Bool, "
        "ratio Nullable(Float64), note Nullable(String), code String, city String, day Date32, "
        "created DateTime64(6, 'UTC'), changed Nullable(DateTime64(6, 'UTC')), ref UUID) "
        "ENGINE = MergeTree ORDER BY id"
    )
    names = [column.name for column in clickhouse.columns(pipe)]
    started = time.perf_counter()
    with postgres.read_text(f"SELECT * FROM {TABLE}") as chunks:
        clickhouse.insert(pipe, names, chunks, "TabSeparated")
    return time.perf_counter() - started


def ferry(environment: dict[str, str], home: Path, route: str) -> tuple[float, float]:
    """Seconds and peak MiB of `ferry run` as a process, into tables that do not exist yet."""
    home.mkdir()
    (home / "move.yaml").write_text(
        f"transfer: bench_{home.name.replace('-', '_')}\nsource: postgres://public.{TABLE}\n"
        f"hops: {ROUTES[route]}\nkey: id\nprofile: throughput\n",
        encoding="utf-8",
    )
    _drop_targets(environment)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "run", f"bench_{home.name.replace('-', '_')}"],
        env=environment
        | {"TABLEFERRY_TRANSFERS": str(home), "DAGSTER_HOME": str(home / "dagster")},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    took = time.perf_counter() - started
    return took, max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def _drop_targets(environment: dict[str, str]) -> None:
    ClickHouseResource(url=environment["TABLEFERRY_CLICKHOUSE_URL"]).execute(
        f"DROP TABLE IF EXISTS warehouse.{TABLE} SYNC"
    )
    SqlServerResource(url=environment["TABLEFERRY_SQLSERVER_URL"]).execute(
        f"DROP TABLE IF EXISTS dbo.{TABLE}"
    )


def _median(repeat: int, act: Callable[[], float]) -> float:
    return statistics.median(act() for _ in range(repeat))


if __name__ == "__main__":
    main()
