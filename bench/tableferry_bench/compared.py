"""Measures `ferry compare` beside reladiff, on pairs of tables with and without differences.

    python -m tableferry_bench.compared --rows 1000000 --different 0,10,10000 --pair clickhouse

All run as processes of their own, from their start to their end, and take turns. reladiff is told
the key and to compare all columns, but for those of which it calls equal values different.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.peers import NATIVE_PORT
from tableferry_bench.contenders.pipes import Pull
from tableferry_bench.meter import Command, CommandFailed, Finished, require_good, run
from tableferry_bench.servers import Servers, dropping, servers
from tableferry_bench.workloads import EXTRA, Table, ensure

PAIRS = ("postgres", "clickhouse")
"""Where the second table is; the first is in PostgreSQL."""

MB = 10**6

UNLIKE: Mapping[str, Sequence[str]] = {"postgres": (), "clickhouse": ("day", "paid", "ratio")}
"""The columns that reladiff 0.6.0 cannot compare, by the second table's system: it does not know
Date32 (`Incompatible types for column 'day'`), and takes true and 1, 64.6993 and 64.69930 for
different values."""


@dataclass(frozen=True)
class Tool:
    """A program that compares, with its settings."""

    name: str
    options: Mapping[str, str | int] = field(default_factory=dict)
    """Those of reladiff."""
    pairs: Sequence[str] = PAIRS

    def missing(self, pair: str) -> str | None:
        """Why it cannot compare such a pair here; None if it can."""
        if pair not in self.pairs:
            return "it compares tables of one server"
        if self is FERRY:
            return None
        if importlib.util.find_spec("reladiff") is None:
            return f"it is not installed: {EXTRA}"
        if pair == "clickhouse" and not os.environ.get(NATIVE_PORT):
            return f"{NATIVE_PORT} does not say where ClickHouse speaks its native protocol"
        return None


FERRY = Tool("ferry compare")
TOOLS = (
    FERRY,
    Tool("reladiff"),
    Tool("reladiff, 4 threads", {"threads": 4}),
    Tool("reladiff, a join", {"algorithm": "joindiff"}, ("postgres",)),
)
"""reladiff by sums of ranges as it comes, and with threads; and by an outer join on the server."""


@dataclass(frozen=True)
class Measured:
    """A tool's runs on a pair of tables."""

    tool: str
    rows: int
    different: int
    found: int
    """The rows that it calls different."""
    seconds: float
    cpu_client: float
    cpu_servers: float | None
    """None if a server is elsewhere."""
    peak_mb: float

    def __str__(self) -> str:
        cells = (
            self.tool,
            f"{self.rows:,}",
            f"{self.different:,}",
            f"{self.found:,}",
            f"{self.seconds:.2f}",
            f"{self.cpu_client:.2f}",
            "" if self.cpu_servers is None else f"{self.cpu_servers:.1f}",
            f"{self.peak_mb:.0f}",
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| tool | rows | different | found | seconds | CPU s of the client | of the servers "
    "| peak MB of the client |\n|---|---:|---:|---:|---:|---:|---:|---:|"
)


def measure(
    found: Servers,
    rows: int,
    different: Sequence[int],
    *,
    runs: int = 3,
    pair: str = "postgres",
    tools: Sequence[Tool] = TOOLS,
) -> list[Measured]:
    """Compare a table with a copy in which some rows differ, by each tool that can.

    Raises:
        CommandFailed: a tool ended badly, or found another number of rows.
    """
    table = ensure(found, f"wide:{rows}")
    tools = [tool for tool in tools if tool.missing(pair) is None]
    target = _target(found, table, pair)
    measured = []
    try:
        for count in different:
            _copy(found, table, target, count)
            done: dict[str, list[tuple[Finished, float | None]]] = {t.name: [] for t in tools}
            for _ in range(runs):
                for tool in tools:
                    before = _clock(found, pair)
                    finished = run(_command(found, tool, table, target))
                    after = _clock(found, pair)
                    spent = None if before is None or after is None else after - before
                    done[tool.name].append((finished, spent))
            measured += [_measured(tool, rows, count, done[tool.name]) for tool in tools]
    finally:
        dropping(found, target)
    return measured


def _clock(found: Servers, pair: str) -> float | None:
    """CPU seconds so far of the servers that have the tables."""
    clocks = found.clocks()
    seconds = [clocks[name] for name in {"postgres", pair}]
    known = [each.all for each in seconds if each]
    return sum(known) if len(known) == len(seconds) else None


def _target(found: Servers, table: Table, pair: str) -> TableRef:
    return (
        found.table("postgres", "wide_copy") if pair == "postgres" else Pull().target(found, table)
    )


def _copy(found: Servers, table: Table, target: TableRef, count: int) -> None:
    """Copy the table, and change some rows, which lie all over it."""
    source, name = found.table("postgres", table.name), qualified(target)
    step = max(1, table.rows // max(1, count))
    changed = f"quantity = quantity + 1 WHERE id % {step} = 0 AND id <= {step * count}"
    if target.system_name == "clickhouse":
        for command in Pull().commands(found, table):
            require_good(run(command), Pull.name, found.secrets)
        if count:
            found.clickhouse.execute(
                f"ALTER TABLE {name} UPDATE {changed} SETTINGS mutations_sync = 2"
            )
        return
    found.postgres.execute(
        f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (LIKE {qualified(source)} "
        f"INCLUDING ALL); INSERT INTO {name} SELECT * FROM {qualified(source)}"
    )
    if count:
        found.postgres.execute(f"UPDATE {name} SET {changed}")
    found.postgres.execute(f"VACUUM (ANALYZE, FREEZE) {name}")


def _command(found: Servers, tool: Tool, table: Table, target: TableRef) -> Command:
    source = found.table("postgres", table.name)
    if tool is FERRY:
        argv = [sys.executable, "-m", "tableferry.pipelines.cli", "compare", str(source)]
        return Command([*argv, str(target), "--json", "--limit", "1"], found.environment)
    left_out = (table.key, *UNLIKE[target.system_name])
    told = {
        "tables": [
            [_url(found, each.system_name), each.schema, each.name] for each in (source, target)
        ],
        "key": table.key,
        "columns": [c.name for c in found.postgres.columns(source) if c.name not in left_out],
        **tool.options,
    }
    argv = [sys.executable, "-m", "tableferry_bench.workers.reladiff_diff"]
    return Command(argv, found.environment, json.dumps(told))


def _url(found: Servers, system: str) -> str:
    """Where reladiff finds a server; it goes by the standard input, which nobody else sees."""
    if system == "postgres":
        return found.environment["TABLEFERRY_POSTGRES_URL"]
    place = found.settings[system]
    login = f"{quote(place.user or '', safe='')}:{quote(place.password or '', safe='')}"
    return f"clickhouse://{login}@{place.host}:{os.environ[NATIVE_PORT]}/{place.database}"


def _measured(
    tool: Tool, rows: int, different: int, runs: Sequence[tuple[Finished, float | None]]
) -> Measured:
    done = [finished for finished, _ in runs]
    for each in done:
        # `ferry compare` ends with 1 if it has found differences
        if each.exit_code not in (0, 1 if different and tool is FERRY else 0):
            raise CommandFailed(f"{tool.name}: {each.errors.strip()[-600:]}")
    last = json.loads(done[-1].output)
    if tool is FERRY:
        last = last["differences"]["different"] if last["differences"] else 0
    if last != different:
        raise CommandFailed(f"{tool.name} found {last} rows of {different} that differ")
    spent = [seconds for _, seconds in runs]
    return Measured(
        tool.name,
        rows,
        different,
        last,
        statistics.median(each.seconds for each in done),
        statistics.median(each.cpu.all for each in done),
        None if None in spent else statistics.median(each or 0.0 for each in spent),
        statistics.median(each.peak_rss_bytes for each in done) / MB,
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--different", default="0,10,10000")
    parser.add_argument("--pair", choices=PAIRS, default="postgres")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in TOOLS])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=None)
    given = parser.parse_args()
    tools = [tool for tool in TOOLS if not given.tool or tool.name in given.tool]
    for tool in tools:
        if why := tool.missing(given.pair):
            print(f"{tool.name} is left out: {why}", file=sys.stderr)
    different = [int(count) for count in given.different.split(",")]
    with servers(given.work) as found:
        print(HEAD, flush=True)
        for count in different:
            for each in measure(
                found, given.rows, [count], runs=given.runs, pair=given.pair, tools=tools
            ):
                print(each, flush=True)


if __name__ == "__main__":
    main()
