"""What it costs to find nothing to do: `python -m benchmarks.skip [--ranges N] [--rows N]`.

Loads a table of many ranges into ClickHouse, then measures, in processes of their own, `ferry plan`
and `ferry run` with nothing changed, and `ferry run` with one row changed; and the ledger alone.
Measured, nothing asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.servers import servers
from resources.postgres.resource import PostgresResource

TABLE = "bench_skip"


def main() -> None:
    """Measure, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranges", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with servers() as (environment, folder):
        os.environ.update(environment)
        print(json.dumps(measure(folder, arguments.ranges, arguments.rows, arguments.repeat)))


def measure(folder: Path, ranges: int, rows: int, repeat: int) -> dict[str, float]:
    """Median seconds of each command, and of the ledger's own queries."""
    source = PostgresResource(url=os.environ["TABLEFERRY_POSTGRES_URL"])
    source.execute(f"DROP TABLE IF EXISTS {TABLE}")
    source.execute(f"CREATE TABLE {TABLE} (id integer PRIMARY KEY, v text)")
    source.execute(f"INSERT INTO {TABLE} SELECT g, md5(g::text) FROM generate_series(1, {rows}) g")
    transfers = folder / "transfers"
    transfers.mkdir()
    (transfers / "skip.yaml").write_text(
        f"transfer: {TABLE}\nsource: postgres://public.{TABLE}\n"
        f"hops: ['clickhouse://warehouse.{TABLE}']\nkey: id\nranges: {{count: {ranges}}}\n"
    )
    os.environ |= {
        "TABLEFERRY_TRANSFERS": str(transfers),
        "DAGSTER_HOME": str(folder / "dagster"),
    }
    found = {"first_run": _ferry("run", "--force")}
    found["plan_unchanged"] = statistics.median(_ferry("plan") for _ in range(repeat))
    found["run_unchanged"] = statistics.median(_ferry("run") for _ in range(repeat))
    changed = []
    for number in range(repeat):
        source.execute(
            f"UPDATE {TABLE} SET v = v || '!' WHERE id = {number * (rows // repeat) + 1}"
        )
        changed.append(_ferry("run"))
    found["run_one_row_changed"] = statistics.median(changed)
    found["ledger"] = statistics.median(_ledger() for _ in range(10))
    return {name: round(seconds, 3) for name, seconds in found.items()}


def _ferry(command: str, *options: str) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pipelines.cli", command, TABLE, *options, "--json"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def _ledger() -> float:
    import dagster as dg

    from assets.log.ledger import committed
    from assets.planning.resolve import ALL_CHECKS

    with dg.DagsterInstance.get() as instance:
        started = time.perf_counter()
        committed(instance, dg.AssetKey(["clickhouse", "warehouse", TABLE]), ALL_CHECKS)
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
