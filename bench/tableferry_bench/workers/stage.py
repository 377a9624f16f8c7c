"""Fills a ClickHouse table in one of the ways of the staging experiments.

What to do is on its standard input, the servers are in the environment. Prints seconds and CPU
seconds, both without getting ready.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.columns.conform import schema
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry_bench.contenders.base import create_in_clickhouse, planned
from tableferry_bench.servers import VARIABLES, Servers

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""The mark that ends Arrow's IPC streaming format."""


class Spent:
    """Seconds by phase, of all threads."""

    def __init__(self) -> None:
        self.seconds = {"load": 0.0, "publish": 0.0}
        self._lock = threading.Lock()

    def __call__(self, phase: str, act: Callable[[], object]) -> None:
        """Do something, and count what it takes."""
        started = time.perf_counter()
        act()
        with self._lock:
            self.seconds[phase] += time.perf_counter() - started


def main() -> None:
    """Fill the table."""
    told = json.load(sys.stdin)
    servers = Servers(dict(os.environ), Path(told["sample"]).parent)
    url = servers.environment[VARIABLES["clickhouse"]]
    resource = ClickHouseResource(url=url)
    source = servers.table("postgres", told["source"])
    target = servers.table("clickhouse", told["target"])
    plan = planned(servers, source, target, told["key"])
    with pa.memory_map(told["sample"]) as file:
        sample = pa.ipc.open_file(file).read_all().combine_chunks()
        fill = _direct if told["strategy"] == "direct" else _staged
        fill(servers, resource, plan, sample, told)


def _direct(
    servers: Servers,
    resource: ClickHouseResource,
    plan: CopyPlan,
    sample: pa.Table,
    told: dict[str, Any],
) -> None:
    """Plain INSERTs of `chunk` rows: readers see the rows as they come."""
    create_in_clickhouse(servers, plan)
    names = [column.name for column in plan.target_columns]
    head = schema(plan).serialize().to_pybytes()

    def one(key_range: KeyRange, spent: Spent) -> None:
        for batch in _batches(sample, plan, key_range, told["chunk"]):
            body = [head, batch.serialize().to_pybytes(), END_OF_STREAM]
            spent("load", lambda: resource.insert(plan.target, names, body, "ArrowStream"))  # noqa: B023

    _measured(one, told)


def _staged(
    servers: Servers,
    resource: ClickHouseResource,
    plan: CopyPlan,
    sample: pa.Table,
    told: dict[str, Any],
) -> None:
    """As Tableferry does it: a staging table for each range, then REPLACE PARTITION."""
    loader, options = ClickHouseTarget(resource), TargetOptions()
    loader.prepare(plan, options)
    publishing = threading.BoundedSemaphore(told["publish"])

    def one(key_range: KeyRange, spent: Spent) -> None:
        attempt = loader.attempt(Publication(plan, key_range, "1", "bench"), options)
        with attempt as load:
            rows = _batches(sample, plan, key_range, told["chunk"])
            spent("load", lambda: load.load_arrow(rows, schema(plan)))
            with publishing:
                spent("publish", load.finalise)

    _measured(one, told)


def _measured(one: Callable[[KeyRange, Spent], None], told: dict[str, Any]) -> None:
    width = -(-told["rows"] // told["ranges"])
    ranges = [
        KeyRange("integer", low, min(low + width, told["rows"] + 1))
        for low in range(1, told["rows"] + 1, width)
    ]
    spent = Spent()
    cpu, started = os.times(), time.perf_counter()
    with ThreadPoolExecutor(told["workers"]) as threads:
        list(threads.map(lambda key_range: one(key_range, spent), ranges))
    seconds, now = time.perf_counter() - started, os.times()
    system = now.system - cpu.system
    found = {
        "seconds": seconds,
        "cpu_seconds": now.user - cpu.user + system,
        "system_seconds": system,
    }
    print(json.dumps({name: round(value, 4) for name, value in (found | spent.seconds).items()}))


def _batches(
    sample: pa.Table, plan: CopyPlan, key_range: KeyRange, rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a range: those of the sample in turn, under the range's own keys."""
    low, high = int(str(key_range.lower)), int(str(key_range.upper))
    position = sample.schema.get_field_index(plan.key.target.name)
    kind = sample.schema.field(position).type
    while low < high:
        start = (low - 1) % sample.num_rows
        taken = min(rows, high - low, sample.num_rows - start)
        (batch,) = sample.slice(start, taken).to_batches()
        keys = pa.array(np.arange(low, low + taken)).cast(kind)
        yield batch.set_column(position, batch.schema.field(position), keys)
        low += taken


if __name__ == "__main__":
    main()
