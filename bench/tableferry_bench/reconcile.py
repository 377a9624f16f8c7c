"""What reconciliation costs: `python -m tableferry_bench.reconcile [--rows N]`.

Compares a wide table in PostgreSQL with its copy in ClickHouse at every level, then finds one
damaged row: on the servers of the environment's URLs, or on a local stack of its own. Next to the
wall-clock time stands the CPU time of each server: PostgreSQL's where it is on this
machine, ClickHouse's out of its query log. What PostgreSQL spent before there was a row digest (the
checksum of `reconcile_before.sql`, and two fingerprints by its own hash) is measured beside it, and
so is a digest between two PostgreSQL servers. Measured, nothing asserted.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

from tableferry.checks.levels import LEVELS
from tableferry.checks.reconcile import reconcile
from tableferry.checks.sides import Comparison
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.digest.measure import Grouped, measuring
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry_bench.guards import EVERYTHING
from tableferry_bench.meter import SETTLE_SECONDS, CpuSeconds, ServerClock
from tableferry_bench.servers import servers

CREATE = """
CREATE TABLE public.wide AS SELECT i AS id, (i::bigint * 7919 % 100000)::int AS customer_id,
    (i % 9)::smallint AS status, (i * 1.37)::numeric(12,4) AS amount,
    (i % 1000 * 0.000123)::numeric(10,6) AS discount, i / 7.0::double precision AS score,
    i % 3 = 0 AS active, date '2000-01-01' + i % 9000 AS order_date,
    timestamp '2000-01-01' + i * interval '1.000001 s' AS created_at,
    timestamptz '2000-01-01 00:00+00' + i * interval '61.5 s' AS updated_at,
    'customer ' || i AS name, repeat(md5(i::text), 2) AS note,
    CASE WHEN i % 5 > 0 THEN 'remark äöü ' || i END AS remark, gen_random_uuid() AS uid,
    CASE WHEN i % 2 = 0 THEN i END AS opt
FROM generate_series(1, {rows}) i
"""
RANGES = 40
BEFORE = files("tableferry_bench") / "reconcile_before.sql"
"""PostgreSQL's query for that table."""


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with servers() as found:
        _measure(found.postgres, found.clickhouse, arguments.rows, arguments.repeat)


def _measure(source: PostgresResource, target: ClickHouseResource, rows: int, repeat: int) -> None:
    source.execute("DROP TABLE IF EXISTS public.wide")
    source.execute(CREATE.format(rows=rows))
    source.execute("ANALYZE public.wide")
    table = TableRef("postgres", "public", "wide")
    database = str(target.query("SELECT currentDatabase()")[0][0])
    warehouse = TableRef("clickhouse", database, "reconciled")
    plan = plan_copy(table, source.columns(table), warehouse, key="id")
    target.execute("DROP TABLE IF EXISTS reconciled")
    loader, options = ClickHouseTarget(target), TargetOptions()
    loader.prepare(plan, options)
    with (
        loader.attempt(Publication(plan, EVERYTHING, "1", "benchmark"), options) as attempt,
        source.read_arrow(plan.select(EVERYTHING, "arrow")) as reader,
    ):
        attempt.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
        attempt.finalise()

    meter = _Meter(source, target, rows, repeat)
    print(f"{rows} rows, {len(plan.columns)} columns; least of {repeat}; CPU s per million rows")
    # takes 0.47 on idle cores: how much dearer it is here, the other figures are, too
    yardstick = meter(
        "yardstick: PostgreSQL's hash",
        lambda: source.query("SELECT sum(hash_record_extended(wide, 0)::numeric) FROM public.wide"),
    )
    before = meter("checksum, before", lambda: source.query(BEFORE.read_text("utf-8")))
    step = max(1, rows // RANGES)
    ranges = [KeyRange("integer", low, low + step) for low in range(1, rows + 1, step)]
    now = meter(
        f"fingerprints, {RANGES} ranges", lambda: fingerprints(SourceReading(source, plan), ranges)
    )
    source_figures = fingerprints(SourceReading(source, plan), [EVERYTHING])[
        EVERYTHING.name
    ].source_figures
    assert source_figures is not None
    both = Comparison(plan, source, target, [EVERYTHING])
    after = replace(both, known={EVERYTHING.name: source_figures})
    now += meter("checksum after them", lambda: reconcile(after, "checksum"))
    between = plan_copy(table, source.columns(table), replace(table, name="copy"), key="id")
    meter(
        "between PostgreSQL servers", lambda: fingerprints(SourceReading(source, between), ranges)
    )
    for level in LEVELS:
        meter(level, lambda: reconcile(both, level))  # noqa: B023
    target.execute(
        f"ALTER TABLE reconciled UPDATE note = 'damaged' WHERE id = {rows // 2} "
        "SETTINGS mutations_sync = 2"
    )
    meter("drill_down, 1 row", both.search)
    was = before + 2 * yardstick
    if was:
        print(
            f"PostgreSQL's fingerprint and checksum: {now:.2f}, before {was:.2f}: {now / was:.2f}x"
        )
    print(f"T-SQL of the checksum: {_tsql_size(source, plan)} characters")
    target.execute("DROP TABLE reconciled")
    source.execute("DROP TABLE public.wide")


def _tsql_size(source: Endpoint, plan: CopyPlan) -> int:
    table = TableRef("sqlserver", "dbo", "wide")
    there = plan_copy(plan.source, source.columns(plan.source), table, key="id")
    digest = DigestSql(system("sqlserver"), "md5", "collation").digest(fields(there), "target")
    grouped = Grouped.by_range([EVERYTHING], there.key.target, system("sqlserver"))
    return len(measuring(table, "target", grouped, digest, ()))


class _Meter:
    """Times calls, and looks at what they cost the servers."""

    def __init__(
        self, source: PostgresResource, target: ClickHouseResource, rows: int, repeat: int
    ) -> None:
        self._target, self._rows, self._repeat = target, rows, repeat
        self._clock = ServerClock(source.settings())

    def __call__(self, name: str, run: Callable[[], object]) -> float:
        """PostgreSQL's CPU seconds per million rows."""
        found = [self._once(run) for _ in range(self._repeat)]
        seconds, postgres, clickhouse, client = (min(column) for column in zip(*found, strict=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        per_million = 1_000_000 / self._rows
        print(
            f"{name:30} {seconds:7.2f} s; PostgreSQL {postgres * per_million:6.2f}, ClickHouse "
            f"{clickhouse * per_million:6.2f}, client {client * per_million:6.2f}; "
            f"peak {peak} MB so far",
            flush=True,
        )
        return postgres * per_million

    def _once(self, run: Callable[[], object]) -> tuple[float, float, float, float]:
        postgres, clickhouse = self._postgres(), self._clickhouse()
        began, client = time.perf_counter(), time.process_time()
        run()
        seconds = time.perf_counter() - began
        client = time.process_time() - client
        time.sleep(SETTLE_SECONDS)
        clickhouse = self._clickhouse() - clickhouse
        return seconds, self._postgres() - postgres, clickhouse, client

    def _clickhouse(self) -> float:
        """CPU seconds of all queries so far."""
        found = self._target.query(
            "SELECT sum(value) / 1e6 FROM system.events "
            "WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds')"
        )
        return float(found[0][0] or 0)

    def _postgres(self) -> float:
        """CPU seconds so far; 0 if it is elsewhere."""
        return (self._clock.seconds() or CpuSeconds()).all


if __name__ == "__main__":
    main()
