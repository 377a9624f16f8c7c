"""The staging experiments: what it costs to fill ClickHouse out of sight, and how it scales."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry_bench.contenders.base import Contender, Outcome, cpu_of, planned
from tableferry_bench.meter import Command, CommandFailed, Finished
from tableferry_bench.results import Result
from tableferry_bench.servers import PREFIX, Servers, dropping
from tableferry_bench.suite import Measured, Tell, made, measure
from tableferry_bench.workloads import Table, ensure

SAMPLE_ROWS = 100_000
"""Most rows that are read from the source, once; larger tables repeat them under new keys."""

SAMPLE = "staging-sample.arrow"
RANGES = 8
"""Into which the rows are cut, so that eight workers have something to do."""

Options = Mapping[str, str | int]


@dataclass(frozen=True)
class Staged(Contender):
    """One variant of one experiment, in `workers/stage.py`."""

    name: str
    options: Options = field(default_factory=dict)
    """What the variant is about."""
    settings: Options = field(default_factory=dict)
    """All that is set."""
    route: str = "client -> ClickHouse"
    proves: str = "the number of rows"

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        target = self.target(servers, table)
        servers.drop(target)
        told = {
            "source": table.name,
            "target": target.name.removeprefix(PREFIX),
            "key": table.key,
            "rows": table.rows,
            "sample": str(servers.folder / SAMPLE),
            **self.settings,
        }
        command = [sys.executable, "-m", "tableferry_bench.workers.stage"]
        return [Command(command, servers.environment, json.dumps(told))]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        said = json.loads(done[0].output)
        rows = servers.count(self.target(servers, table))
        if rows != table.rows:
            raise CommandFailed(f"{rows} of {table.rows} rows are in the target")
        phases = {name: said[name] for name in ("load", "publish")}
        return Outcome(
            rows,
            phases,
            seconds=said["seconds"],
            cpu_client=cpu_of(said),
            stored=self.stored(servers, table, "clickhouse"),
        )


BASE: Options = {
    "strategy": "staged",
    "workers": 2,
    "publish": RANGES,
    "chunk": 50_000,
    "ranges": RANGES,
}


def _variants(name: str, axis: str, values: Sequence[str | int], **more: str | int) -> list[Staged]:
    return [
        Staged(f"staging-{name}", {axis: value}, {**BASE, **more, axis: value}) for value in values
    ]


EXPERIMENTS = {
    "strategy": _variants("strategy", "strategy", ("direct", "staged")),
    "workers": _variants("workers", "workers", (1, 2, 4, 8)),
    "publish": _variants("publish", "publish", (1, 2, RANGES), workers=8),
    "chunk": _variants(
        "chunk", "chunk", (1_000, 10_000, 50_000, SAMPLE_ROWS), strategy="direct", ranges=2
    ),
    "growth": _variants("growth", "strategy", ("direct", "staged")),
}
"""By name: what differs, all else being alike. `publish` is how many ranges may be made visible at
the same time (of as many as eight: uncapped); `chunk` is rows per INSERT."""

GROWTH = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


def run_staging(
    servers: Servers,
    workload: str,
    rows: int,
    names: Sequence[str],
    growth: Sequence[int],
    *,
    runs: int,
    warmups: int,
    keep: bool,
    tell: Tell,
) -> Result:
    """Fill the same table in all ways of the experiments.

    Args:
        servers: on whose ClickHouse.
        workload: whose rows, e.g. `wide`.
        rows: how many.
        names: of experiments; all if empty.
        growth: sizes of the experiment `growth`.
        runs: that count.
        warmups: that do not.
        keep: leave the source table for the next time.
        tell: is told how far it is.

    Raises:
        InputError: there is no such experiment.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    sizes = {name: list(growth) if name == "growth" else [rows] for name in names or EXPERIMENTS}
    sample = min(SAMPLE_ROWS, max(size for found in sizes.values() for size in found))
    tell(f"{workload}: making {sample} rows to repeat")
    table = ensure(servers, f"{workload}:{sample}")
    cases = []
    try:
        _write_sample(servers, table)
        for name, found in sizes.items():
            for size in found:
                cases += measure(
                    servers,
                    replace(table, rows=size, text_bytes=table.text_bytes * size // table.rows),
                    EXPERIMENTS[name],
                    runs=runs,
                    warmups=warmups,
                    tell=tell,
                )
    finally:
        if not keep:
            with suppress(TableferryError):
                dropping(servers, servers.table("postgres", table.name))
    note = f"The rows are {sample:,} of the workload {workload}, repeated under new keys."
    how = Measured(workload, (), runs, warmups)
    return made(servers, "staging", "staging", cases, [how], [note])


def _write_sample(servers: Servers, table: Table) -> None:
    """The rows as the loader gets them, in a file that costs next to nothing to read."""
    source = servers.table("postgres", table.name)
    plan = planned(servers, source, servers.table("clickhouse", "sample"), table.key)
    sql = plan.select(KeyRange("integer"), "arrow")
    with (
        servers.postgres.read_arrow(sql) as reader,
        pa.OSFile(str(servers.folder / SAMPLE), "wb") as file,
        pa.ipc.new_file(file, schema(plan)) as writer,
    ):
        for batch in reader:
            writer.write_batch(conform(batch, plan, {}))
