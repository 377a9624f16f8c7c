"""Measures `ferry compare` beside reladiff, on tables of PostgreSQL with and without differences.

    python -m tableferry_bench.compared --rows 1000000 --different 0,10,10000

Both run as processes of their own, from their start to their end, and take turns. reladiff is told
the key and to compare all columns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tableferry.resources.contract.table_sql import qualified
from tableferry_bench.meter import Command, CommandFailed, Finished, run
from tableferry_bench.servers import Servers, servers
from tableferry_bench.workloads import EXTRA, Table, ensure

FERRY, RELADIFF = "ferry compare", "reladiff"
MB = 10**6


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
    peak_mb: float

    def __str__(self) -> str:
        cells = (
            self.tool,
            f"{self.rows:,}",
            f"{self.different:,}",
            f"{self.found:,}",
            f"{self.seconds:.2f}",
            f"{self.cpu_client:.2f}",
            f"{self.peak_mb:.0f}",
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| tool | rows | different | found | seconds | CPU s of the client | peak MB of the client |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)


def measure(
    found: Servers, rows: int, different: Sequence[int], *, runs: int = 3
) -> list[Measured]:
    """Compare a table with a copy in which some rows differ, by each tool that is installed.

    Raises:
        CommandFailed: a tool ended badly, or found another number of rows.
    """
    table = ensure(found, f"wide:{rows}")
    source, target = found.table("postgres", table.name), found.table("postgres", "wide_copy")
    tools = [FERRY] + ([RELADIFF] if importlib.util.find_spec("reladiff") else [])
    measured = []
    try:
        for count in different:
            name = qualified(target)
            found.postgres.execute(
                f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (LIKE {qualified(source)} "
                f"INCLUDING ALL); INSERT INTO {name} SELECT * FROM {qualified(source)}"
            )
            if count:
                step = max(1, rows // count)
                found.postgres.execute(
                    f"UPDATE {name} SET quantity = quantity + 1 "
                    f"WHERE id % {step} = 0 AND id <= {step * count}"
                )
            found.postgres.execute(f"VACUUM (ANALYZE, FREEZE) {name}")
            done: dict[str, list[Finished]] = {tool: [] for tool in tools}
            for _ in range(runs):
                for tool in tools:
                    done[tool].append(run(_command(found, tool, table)))
            measured += [_measured(tool, rows, count, done[tool]) for tool in tools]
    finally:
        found.drop(target)
    return measured


def _command(found: Servers, tool: str, table: Table) -> Command:
    source, target = found.table("postgres", table.name), found.table("postgres", "wide_copy")
    if tool == FERRY:
        argv = [sys.executable, "-m", "tableferry.pipelines.cli", "compare", str(source)]
        return Command([*argv, str(target), "--json", "--limit", "1"], found.environment)
    told = {
        "url": found.environment["TABLEFERRY_POSTGRES_URL"],
        "tables": [[each.schema, each.name] for each in (source, target)],
        "key": table.key,
        "columns": [c.name for c in found.postgres.columns(source) if c.name != table.key],
    }
    argv = [sys.executable, "-m", "tableferry_bench.workers.reladiff_diff"]
    return Command(argv, found.environment, json.dumps(told))


def _measured(tool: str, rows: int, different: int, done: Sequence[Finished]) -> Measured:
    for one in done:
        # `ferry compare` ends with 1 if it has found differences
        if one.exit_code not in (0, 1 if different and tool == FERRY else 0):
            raise CommandFailed(f"{tool}: {one.errors.strip()[-600:]}")
    last = json.loads(done[-1].output)
    if tool == FERRY:
        last = last["differences"]["different"] if last["differences"] else 0
    if last != different:
        raise CommandFailed(f"{tool} found {last} rows of {different} that differ")
    return Measured(
        tool,
        rows,
        different,
        last,
        statistics.median(one.seconds for one in done),
        statistics.median(one.cpu_client for one in done),
        statistics.median(one.peak_rss_bytes for one in done) / MB,
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--different", default="0,10,10000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=None)
    given = parser.parse_args()
    if importlib.util.find_spec("reladiff") is None:
        print(f"reladiff is not installed: {EXTRA}", file=sys.stderr)
    different = [int(count) for count in given.different.split(",")]
    with servers(given.work) as found:
        print(HEAD)
        for one in measure(found, given.rows, different, runs=given.runs):
            print(one)


if __name__ == "__main__":
    main()
