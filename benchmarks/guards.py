"""What the value guards cost: `python -m benchmarks.guards [--rows N]`.

Moves a wide table from PostgreSQL to ClickHouse over both wires, with guards and without: on the
servers of the environment's URLs, or on a local stack of its own. Measured, nothing asserted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from local.stack import Stack
from resources.clickhouse import ClickHouseResource
from resources.clickhouse_types import declared_type
from resources.dialects import qualified, quote
from resources.keyrange import KeyRange
from resources.plan import CopyPlan
from resources.postgres import PostgresResource
from resources.tables import TableRef
from resources.types import conform, plan_copy, schema
from resources.types.conversion import way_of
from resources.types.route import UNGUARDED
from resources.types.steps import plain

EVERYTHING = KeyRange("integer")
CREATE = """
CREATE TABLE wide AS SELECT i AS id, (i % 30000)::smallint AS s, i::bigint * 1000003 AS b,
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
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    if postgres_url := os.environ.get("TABLEFERRY_POSTGRES_URL"):
        clickhouse_url = os.environ["TABLEFERRY_CLICKHOUSE_URL"]
        _measure(postgres_url, clickhouse_url, arguments.rows, arguments.repeat)
        return
    folder = Path(tempfile.mkdtemp(prefix="tableferry-guards-"))
    folder.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
    stack = Stack(folder)
    try:
        stack.up()
        _measure(stack.postgres_url, stack.clickhouse_url, arguments.rows, arguments.repeat)
    finally:
        stack.remove()


def _measure(postgres_url: str, clickhouse_url: str, rows: int, repeat: int) -> None:
    source = PostgresResource(url=postgres_url)
    target = ClickHouseResource(url=clickhouse_url)
    source.execute("DROP TABLE IF EXISTS wide")
    source.execute(CREATE.format(rows=rows))
    table = TableRef("postgres", "public", "wide")
    database = str(target.query("SELECT currentDatabase()")[0][0])
    warehouse = TableRef("clickhouse", database, "guards")
    columns = source.columns(table)
    plan = plan_copy(table, columns, warehouse, key="id")
    # an array has no text form
    text_plan = plan_copy(table, columns, warehouse, key="id", exclude=["pair"])
    unguarded = replace(
        text_plan,
        columns=tuple(
            replace(column, text_sql=quote("postgres", column.source.name))
            for column in text_plan.columns
        ),
    )
    runs: dict[str, Callable[[], None]] = {
        "arrow, guarded": lambda: _arrow(source, target, plan, conform),
        "arrow, casts only": lambda: _arrow(source, target, plan, _cast),
        "text, guarded": lambda: _text(source, target, text_plan),
        "text, bare columns": lambda: _text(source, target, unguarded),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            _recreate(target, text_plan if name.startswith("text") else plan)
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    guards = min(_conform_seconds(source, plan, conform) for _ in range(repeat))
    casts = min(_conform_seconds(source, plan, _cast) for _ in range(repeat))
    print(f"{rows} rows, {len(plan.columns)} columns, median of {repeat}")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:20} {median:7.2f} s {rows / median:10.0f} rows/s")
    arrow = statistics.median(seconds["arrow, casts only"])
    bare = min(seconds["text, bare columns"])
    copies = [
        min(_copy_seconds(source, each) for _ in range(3 * repeat))
        for each in (text_plan, unguarded)
    ]
    print(f"guards alone, arrow: {guards - casts:.2f} CPU-s, {(guards - casts) / arrow:.1%} of it")
    guards = copies[0] - copies[1]
    print(f"guards in the query, text: {guards:.2f} s, {guards / bare:.1%} of it")


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
        steps = way_of(column, plan).steps
        if column.target.type.startswith("Decimal"):
            array = array.cast(column.arrow_type)
        elif not column.target.type.startswith("Array"):
            for step in (step for step in steps if isinstance(step, UNGUARDED)):
                array = step.convert(array)
        columns.append(array)
    return pa.RecordBatch.from_arrays(columns, schema=schema(plan))


def _copy_seconds(source: PostgresResource, plan: CopyPlan) -> float:
    started = time.perf_counter()
    with source.read_text(plan.select(EVERYTHING, "text")) as chunks:
        for _ in chunks:
            pass
    return time.perf_counter() - started


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
        f"{quote('clickhouse', column.name)} {declared_type(column)}"
        for column in plan.target_columns
    )
    target.execute(f"DROP TABLE IF EXISTS {qualified(plan.target)} SYNC")
    target.execute(
        f"CREATE TABLE {qualified(plan.target)} ({columns}) ENGINE = MergeTree ORDER BY tuple()"
    )


if __name__ == "__main__":
    main()
