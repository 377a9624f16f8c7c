"""The read-strategy lab: ways to read a table of PostgreSQL in Python, on the same rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.registry import system
from tableferry_bench.contenders.base import Contender, Outcome, cpu_of, private
from tableferry_bench.contenders.pipes import libpq
from tableferry_bench.meter import Command, CommandFailed, Finished
from tableferry_bench.results import Result
from tableferry_bench.servers import Servers
from tableferry_bench.suite import Measured, Tell, execute
from tableferry_bench.workloads import EXTRA, Table


@dataclass(frozen=True)
class Strategy(Contender):
    """One way to read, in `workers/read.py`."""

    name: str
    proves: str
    """What the rows are when they have been read."""
    module: str = "psycopg"
    """What it needs."""
    parallel: bool = False
    """Whether it reads parts of the table side by side."""
    route: str = "PostgreSQL -> client"
    options: Mapping[str, str | int] = field(default_factory=dict)

    def missing(self, servers: Servers) -> str | None:
        if importlib.util.find_spec(self.module) is None:
            return f"{self.module} is not installed: {EXTRA}"
        return None

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        place = servers.table("postgres", table.name)
        key = system("postgres").quote(table.key)
        sql = f"SELECT min({key}), max({key}) FROM {qualified(place)}"
        low, high = servers.postgres.query(sql)[0]
        told = {
            "strategy": self.name,
            "module": IMPORTS.get(self.module, self.module),
            "table": qualified(place),
            "key": key,
            "low": low,
            "high": high,
            **self.options,
        }
        environment = {**servers.environment, **libpq(servers.settings["postgres"])}
        command = [sys.executable, "-m", "tableferry_bench.workers.read"]
        folder = private(servers.folder / self.name)
        return [Command(command, environment, json.dumps(told), folder)]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        said = json.loads(done[0].output)
        if said["rows"] != table.rows:
            raise CommandFailed(f"{said['rows']} of {table.rows} rows were read")
        return Outcome(said["rows"], seconds=said["seconds"], cpu_client=cpu_of(said))

    def clean_up(self, servers: Servers, table: Table) -> None:
        """It has written nothing."""


IMPORTS = {"adbc_driver_postgresql": "adbc_driver_postgresql.dbapi"}
"""What takes the time of a package's import, where it is not the package itself."""

TUPLES, ARROW = "tuples of Python", "Arrow batches"

STRATEGIES = (
    Strategy("fetchall", TUPLES),
    Strategy("server-side-cursor", TUPLES),
    Strategy("pooled", TUPLES, "psycopg_pool", parallel=True),
    Strategy("asyncpg-stream", "records of asyncpg", "asyncpg", parallel=True),
    Strategy("multiprocessing", TUPLES, parallel=True),
    Strategy("adbc", ARROW, "adbc_driver_postgresql"),
    Strategy("copy-text", "text"),
    Strategy("copy-binary", "PostgreSQL's binary rows"),
)


def run_lab(
    servers: Servers,
    workload: str,
    names: Sequence[str],
    *,
    workers: int,
    runs: int,
    warmups: int,
    keep: bool,
    tell: Tell,
) -> Result:
    """Read the same rows in every way.

    Args:
        servers: on whose PostgreSQL.
        workload: which rows.
        names: of strategies; all if empty.
        workers: how many parts those read that read side by side.
        runs: that count.
        warmups: that do not.
        keep: leave the table for the next time.
        tell: is told how far it is.

    Raises:
        InputError: there is no such strategy.
    """
    known = {one.name: one for one in STRATEGIES}
    for name in names:
        if name not in known:
            raise InputError(f"there is no strategy {name!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in names] or list(STRATEGIES)
    taking_part = [
        Strategy(one.name, one.proves, one.module, one.parallel, options={"workers": workers})
        if one.parallel
        else one
        for one in chosen
    ]
    part = Measured(workload, taking_part, runs, warmups)
    return execute(servers, "lab", "lab", [part], keep=keep, tell=tell)
