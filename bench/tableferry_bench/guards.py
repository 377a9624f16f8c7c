"""What the value guards cost: `python -m tableferry_bench.guards [--rows N] [--pairs N]`.

Moves a wide table from PostgreSQL to ClickHouse over both wires, with guards and without: on the
servers of the environment's URLs, or on a local stack of its own. Measured, nothing asserted.

A shared machine drifts by more than the guards cost. So both run next to each other, in turns as to
which is first, and the ratio of each pair counts: the median, the interval that holds that median
with 95 %, and the middle half of the ratios. What one process does is measured by its CPU time.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pyarrow as pa

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.types import declared_type
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import Unguarded, plain
from tableferry_bench.servers import VARIABLES, servers

EVERYTHING = KeyRange("integer")
CREATE = """
CREATE TABLE public.wide AS SELECT i AS id, (i % 30000)::smallint AS s, i::bigint * 1000003 AS b,
    (i * 1.37)::numeric(12,2) AS amount, (i * 0.0001)::numeric(38,10) AS rate,
    i / 7.0::double precision AS f, (i % 3 = 0) AS flag, 'customer ' || i AS name,
    repeat(md5(i::text), 2)::varchar(100) AS note, date '2000-01-01' + i % 9000 AS d,
    timestamp '2000-01-01' + i * interval '1.000001 second' AS t,
    timestamptz '2000-01-01 00:00+00' + i * interval '1 minute' AS tz,
    gen_random_uuid() AS u, ARRAY[i, i + 1] AS pair
FROM generate_series(1, {rows}) i
"""


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=25)
    arguments = parser.parse_args()
    with servers() as found:
        _measure(
            found.environment[VARIABLES["postgres"]],
            found.environment[VARIABLES["clickhouse"]],
            arguments.rows,
            arguments.pairs,
        )


@dataclass(frozen=True)
class Pairs:
    """Seconds of two things that ran next to each other, again and again."""

    one: list[float]
    other: list[float]

    def more(self) -> list[float]:
        """What the one took more than the other, as a part of the other."""
        return [one / other - 1 for one, other in zip(self.one, self.other, strict=True)]

    def share_of(self, whole: float) -> list[float]:
        """What the one took more than the other, as a part of something else."""
        return [(one - other) / whole for one, other in zip(self.one, self.other, strict=True)]


def paired(one: Callable[[], float], other: Callable[[], float], pairs: int) -> Pairs:
    """Measure both so many times, after a pair that does not count.

    Args:
        one: does it, and returns the seconds it took.
        other: the same for what it is compared with.
        pairs: how often.
    """
    found = Pairs([], [])
    for number in range(-1, pairs):
        if number % 2:
            first, second = one(), other()
        else:
            second, first = other(), one()
        if number >= 0:
            found.one.append(first)
            found.other.append(second)
    return found


def shown(values: list[float]) -> str:
    """The median, the interval that holds it with 95 %, and the middle half, in percent."""
    low, high = interval(values)
    first, middle, third = statistics.quantiles(values, n=4)
    return f"{middle:+7.1%}  [{low:+6.1%}, {high:+6.1%}]  {first:+.1%} to {third:+.1%}"


def interval(values: list[float], resamples: int = 5000) -> tuple[float, float]:
    """The interval that holds the median with 95 %, by bootstrap."""
    generator = random.Random(1)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(resamples)
    )
    return medians[resamples * 25 // 1000], medians[resamples * 975 // 1000]


def _measure(postgres_url: str, clickhouse_url: str, rows: int, pairs: int) -> None:
    source = PostgresResource(url=postgres_url)
    target = ClickHouseResource(url=clickhouse_url)
    source.execute("DROP TABLE IF EXISTS public.wide")
    source.execute(CREATE.format(rows=rows))
    source.execute("VACUUM (ANALYZE, FREEZE) public.wide")
    table = TableRef("postgres", "public", "wide")
    database = str(target.query("SELECT currentDatabase()")[0][0])
    warehouse = TableRef("clickhouse", database, "guards")
    columns, version = source.columns(table), target.ping()
    plan = plan_copy(table, columns, warehouse, key="id", target_version=version)
    # an array has no text form
    text_plan = plan_copy(
        table, columns, warehouse, key="id", exclude=["pair"], target_version=version
    )
    bare = replace(
        text_plan,
        columns=tuple(
            replace(column, text_sql=system("postgres").quote(column.source.name))
            for column in text_plan.columns
        ),
    )

    def moved(plan: CopyPlan, move: Callable[[], None]) -> Callable[[], float]:
        def run() -> float:
            _recreate(target, plan)
            started = time.perf_counter()
            move()
            return time.perf_counter() - started

        return run

    guards = {
        "text": paired(
            lambda: _copy_seconds(postgres_url, text_plan),
            lambda: _copy_seconds(postgres_url, bare),
            pairs,
        ),
        "arrow": paired(
            lambda: _conform_seconds(source, plan, conform),
            lambda: _conform_seconds(source, plan, _cast),
            pairs,
        ),
    }
    moves = {
        "text": paired(
            moved(text_plan, lambda: _text(source, target, text_plan)),
            moved(bare, lambda: _text(source, target, bare)),
            pairs,
        ),
        "arrow": paired(
            moved(plan, lambda: _arrow(source, target, plan, conform)),
            moved(plan, lambda: _arrow(source, target, plan, _cast)),
            pairs,
        ),
    }
    print(f"{rows} rows, {len(plan.columns)} columns, {pairs} pairs, load {os.getloadavg()[0]:.1f}")
    print(f"{'what the guards cost':32}  median  [95 % of the median]  middle half")
    for wire, place in (("text", "COPY in the server"), ("arrow", "conversion")):
        move = statistics.median(moves[wire].other)
        cpu = statistics.median(guards[wire].other)
        print(
            f"{wire}: move without them {move:.2f} s, {rows / move:.0f} rows/s; {place} {cpu:.3f} s"
        )
        print(f"  {'CPU, of the move':30} {shown(guards[wire].share_of(move))}")
        print(f"  {f'CPU, of the {place}':30} {shown(guards[wire].more())}")
        print(f"  {'clock, of the move':30} {shown(moves[wire].more())}")


def _arrow(
    source: PostgresResource,
    target: ClickHouseResource,
    plan: CopyPlan,
    convert: Callable[[pa.RecordBatch, CopyPlan, dict[str, int]], pa.RecordBatch],
) -> None:
    with source.read_arrow(plan.select(EVERYTHING, "arrow")) as reader:
        chunks = _ipc(plan, (convert(batch, plan, {}) for batch in reader))
        names = [column.name for column in plan.target_columns]
        target.insert(plan.target, names, chunks, "ArrowStream")


def _text(source: PostgresResource, target: ClickHouseResource, plan: CopyPlan) -> None:
    with source.read_text(plan.select(EVERYTHING, "text")) as chunks:
        names = [column.name for column in plan.target_columns]
        target.insert(plan.target, names, chunks, "TabSeparated")


def _cast(batch: pa.RecordBatch, plan: CopyPlan, counts: dict[str, int]) -> pa.RecordBatch:
    """`conform` without what looks for values that do not fit."""
    columns = []
    for sent, column in zip(batch.columns, plan.columns, strict=True):
        array = plain(sent)
        steps = conversion_of(column, plan).steps
        if column.target.type.startswith("Decimal"):
            array = array.cast(column.arrow_type)
        elif not column.target.type.startswith("Array"):
            for step in (step for step in steps if isinstance(step, Unguarded)):
                array = step.convert(array)
        columns.append(array)
    return pa.RecordBatch.from_arrays(columns, schema=schema(plan))


def _copy_seconds(url: str, plan: CopyPlan) -> float:
    """CPU seconds of the server's process for a COPY; those of the clock, if it is elsewhere."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        here = connection.info.hostaddr in ("127.0.0.1", "::1")
        process = connection.info.backend_pid if here else None
        before = _spent(process)
        with cursor.copy(f"COPY ({plan.select(EVERYTHING, 'text')}) TO STDOUT") as copy:
            for _ in copy:
                pass
        return _spent(process) - before


def _spent(process: int | None) -> float:
    if process is None:
        return time.perf_counter()
    # nanoseconds; the times in `stat` are in hundredths of a second
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def _conform_seconds(
    source: PostgresResource,
    plan: CopyPlan,
    convert: Callable[[pa.RecordBatch, CopyPlan, dict[str, int]], pa.RecordBatch],
) -> float:
    spent = 0.0
    with source.read_arrow(plan.select(EVERYTHING, "arrow")) as reader:
        for batch in reader:
            started = time.process_time()
            convert(batch, plan, {})
            spent += time.process_time() - started
    return spent


def _ipc(plan: CopyPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    head = schema(plan).serialize().to_pybytes()
    yield head
    for batch in batches:
        yield batch.serialize().to_pybytes()
    yield b"\xff\xff\xff\xff\0\0\0\0"  # the end of an IPC stream


def _recreate(target: ClickHouseResource, plan: CopyPlan) -> None:
    columns = ", ".join(
        f"{system('clickhouse').quote(column.name)} {declared_type(column)}"
        for column in plan.target_columns
    )
    target.execute(drop_table(plan.target))
    target.execute(
        f"CREATE TABLE {qualified(plan.target)} ({columns}) ENGINE = MergeTree ORDER BY tuple()"
    )


if __name__ == "__main__":
    main()
