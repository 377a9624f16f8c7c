"""Measures small tables with two clients in turns: of this checkout, and of a commit before it.

Servers and tables are the same, and CPU seconds of the client are compared, so that other work on
the machine hardly matters. It fails if this client takes clearly more.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from tableferry_bench.contenders.fleet import ALL, FIRST, OnTables
from tableferry_bench.meter import require_good, run
from tableferry_bench.servers import Servers, servers
from tableferry_bench.workloads import Table

CHECKOUT = Path(__file__).parents[2]
JUDGED = CHECKOUT / ".ci" / "judged"
CASES = "first load", "nothing to do"
BEFORE, NOW = "before", "now"
SLACK_SECONDS = 0.3
"""What a difference of two short commands may be by chance."""

Spent = dict[tuple[str, str], list[float]]
"""CPU seconds of the client, by case and client."""


@contextlib.contextmanager
def client_of(commit: str) -> Iterator[Path]:
    """Check a commit out, and yield the folder that has it as a package."""
    git = ["git", "-C", str(CHECKOUT), "worktree"]
    with tempfile.TemporaryDirectory(prefix="ferry-bench-client-") as folder:
        package = Path(folder, "tableferry")
        subprocess.run([*git, "add", "--detach", "--quiet", str(package), commit], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run([*git, "remove", "--force", str(package)], check=True)


def measure(found: Servers, before: Path, tables: int, pairs: int) -> Spent:
    """Load many small tables by both clients in turns, and run each once more."""
    table, contender = Table("tables", tables, 0, "pairs", "id"), OnTables("pairs", ALL, FIRST)
    spent: Spent = {(case, client): [] for case in CASES for client in (BEFORE, NOW)}
    environments = {
        NOW: found.environment,
        BEFORE: {**found.environment, "PYTHONPATH": str(before)},
    }
    contender.set_up(found, table)
    try:
        for number in range(pairs):
            clients = (BEFORE, NOW) if number % 2 == 0 else (NOW, BEFORE)
            for client in clients:
                of_client = replace(found, environment=environments[client])
                commands = [*contender.commands(of_client, table)] * len(CASES)
                for case, command in zip(CASES, commands, strict=True):
                    finished = run(command)
                    require_good(finished, f"{client}, {case}", found.secrets)
                    spent[case, client].append(finished.cpu.all)
                    print(f"{client}, {case}: {finished.cpu.all:.2f} CPU s", flush=True)
    finally:
        contender.clean_up(found, table)
    return spent


def main() -> int:
    """Measure, print the medians, and return 1 if this client takes clearly more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=JUDGED.read_text().strip(), help="of the client before")
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.15, help="the ratio that is not worse")
    given = parser.parse_args()
    with client_of(given.commit) as before, servers() as found:
        spent = measure(found, before, given.tables, given.pairs)
    worse = False
    for case in CASES:
        old, new = (median(spent[case, client]) for client in (BEFORE, NOW))
        worse |= new > old * given.most + SLACK_SECONDS
        print(f"{case}: {old:.1f} CPU s before, {new:.1f} now ({new / old:.2f})")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
