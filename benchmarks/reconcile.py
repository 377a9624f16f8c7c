"""What reconciliation costs: `python -m benchmarks.reconcile [--rows N]`.

Compares a wide table in PostgreSQL with its copy in ClickHouse at every level, then finds one
damaged row: on the servers of the environment's URLs, or on a local stack of its own. Measured,
nothing asserted.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

from benchmarks.guards import CREATE, EVERYTHING
from checks import rowhash
from checks.drilldown import drill_down
from checks.reconcile import reconcile
from checks.verdict import LEVELS
from local.temporary import servers
from resources.clickhouse import ClickHouseResource
from resources.clickhouse_target import ClickHouseTarget
from resources.postgres import PostgresResource
from resources.tables import TableRef
from resources.target import TargetOptions
from resources.types import conform, plan_copy, schema

BATCHES = (8_192, 32_768, 131_072)


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with servers() as (environment, _):
        _measure(
            environment["TABLEFERRY_POSTGRES_URL"],
            environment["TABLEFERRY_CLICKHOUSE_URL"],
            arguments.rows,
            arguments.repeat,
        )


def _measure(postgres_url: str, clickhouse_url: str, rows: int, repeat: int) -> None:
    source = PostgresResource(url=postgres_url)
    target = ClickHouseResource(url=clickhouse_url)
    source.execute("DROP TABLE IF EXISTS wide")
    source.execute(CREATE.format(rows=rows))
    table = TableRef("postgres", "public", "wide")
    database = str(target.query("SELECT currentDatabase()")[0][0])
    warehouse = TableRef("clickhouse", database, "reconciled")
    plan = plan_copy(table, source.columns(table), warehouse, key="id")
    target.execute("DROP TABLE IF EXISTS reconciled")
    loader, options = ClickHouseTarget(target), TargetOptions()
    loader.prepare(plan, options)
    with (
        loader.attempt(plan, EVERYTHING, options, owner="benchmark", data_version="1") as attempt,
        source.read_arrow(plan.select(EVERYTHING, "arrow")) as reader,
    ):
        attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
        attempt.finalise()

    print(f"{rows} rows, {len(plan.columns)} columns, median of {repeat}")
    for level in LEVELS:
        _timed(level, rows, repeat, lambda: reconcile(plan, source, target, EVERYTHING, level))  # noqa: B023
    for batch in BATCHES:
        rowhash.BATCH_ROWS = batch
        name = f"full_hash, batches of {batch}"
        _timed(name, rows, repeat, lambda: reconcile(plan, source, target, EVERYTHING, "full_hash"))
    target.execute(
        f"ALTER TABLE reconciled UPDATE note = 'damaged' WHERE id = {rows // 2} "
        "SETTINGS mutations_sync = 2"
    )
    _timed("drill_down, 1 row", rows, repeat, lambda: drill_down(plan, source, target, EVERYTHING))
    target.execute("DROP TABLE reconciled")
    source.execute("DROP TABLE wide")


def _timed(name: str, rows: int, repeat: int, run: Callable[[], object]) -> None:
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name:28} {median:7.2f} s {rows / median:10.0f} rows/s, peak {peak} MB so far")


if __name__ == "__main__":
    main()
