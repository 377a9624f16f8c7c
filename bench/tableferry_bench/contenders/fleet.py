"""Measures what many tables cost: to be loaded, written by `ferry init`, moved, and left alone."""

from __future__ import annotations

import json
import shutil
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tableferry.assets.declaring.many_tables import lock_text
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import (
    BOTH_HOPS,
    POSTGRES_CLICKHOUSE,
    Contender,
    Outcome,
    cpu_of,
    private,
)
from tableferry_bench.contenders.ferry import TARGETS, Ferry, empty_home
from tableferry_bench.meter import Command, CommandFailed, Finished, require_good, run
from tableferry_bench.servers import PREFIX, VARIABLES, Servers
from tableferry_bench.workloads import Table

FLEET = "fleet-"
"""The beginning of the names of these contenders."""

ROWS = "200"
"""The rows of a table."""

MIXED_ROWS = "CASE WHEN n = 0 THEN 1000000 WHEN n <= 10 THEN 50000 ELSE 200 END"
"""The rows of the table with the number `n` where one is large and ten are of middle size."""

BATCH = 250
"""The number of tables that one statement makes: a transaction holds a lock on each."""

IDLE_SECONDS = 180

MANY = """\
tables: "postgres://many.*"
hops: ["sqlserver://dbo.{table}", "clickhouse://warehouse.{table}"]
schedule: "0 2 * * *"
check_schedule: "0 6 * * 0"
"""


class Many(Contender):
    """Something that is measured on many tables."""

    workload: str
    """The workload that it goes with."""

    def set_up(self, servers: Servers, table: Table) -> None:
        """Make the tables, or their declarations.

        Raises:
            InputError: the workload is another one.
        """
        if table.workload != self.workload:
            raise InputError(f"{self.name} goes with the workload {self.workload}")
        self.make(servers, table)

    @abstractmethod
    def make(self, servers: Servers, table: Table) -> None:
        """Make the tables, or their declarations."""

    def folder(self, servers: Servers) -> Path:
        return servers.folder / self.name

    def environment(self, servers: Servers) -> Mapping[str, str]:
        return {
            # the server of a connection that is only declared need not be there
            VARIABLES["sqlserver"]: "mssql://nobody:none@127.0.0.1:1/none",
            **servers.environment,
            "TABLEFERRY_TRANSFERS": str(self.folder(servers) / "transfers"),
            "DAGSTER_HOME": str(self.folder(servers) / "dagster"),
        }


@dataclass(frozen=True)
class Declared(Many):
    """What a worker does with transfers of which only the declarations exist."""

    name: str
    worker: tuple[str, ...]
    proves: str
    route: str = "declared only"
    workload: str = "transfers"

    def make(self, servers: Servers, table: Table) -> None:
        transfers = private(self.folder(servers)) / "transfers"
        transfers.mkdir()
        names = [f"t{number:05}" for number in range(table.rows)]
        entries = {
            f"many.{name}": {
                "transfer": name,
                "source": f"postgres://many.{name}",
                "key": "id",
                "ranges": {"count": 1},
            }
            for name in names
        }
        (transfers / "many.yaml").write_text(MANY)
        (transfers / "many.lock.yaml").write_text(lock_text("many.yaml", entries, {}))

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        home = self.folder(servers) / "dagster"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(empty_home(servers), home)
        module, *arguments = self.worker
        words = [sys.executable, "-m", f"tableferry_bench.workers.{module}", *arguments]
        return [Command(words, self.environment(servers))]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        measured = json.loads(done[0].output)
        if measured["transfers"] != table.rows:
            raise CommandFailed(f"{measured['transfers']} of {table.rows} transfers were loaded")
        return Outcome(table.rows, seconds=measured.get("seconds"), cpu_client=cpu_of(measured))

    def clean_up(self, servers: Servers, table: Table) -> None:
        """Leave all as it is: nothing is on the servers."""


@dataclass(frozen=True)
class OnTables(Many):
    """A command on all tables of a schema."""

    name: str
    words: tuple[str, ...]
    """The command."""
    proves: str
    first: tuple[tuple[str, ...], ...] = ()
    """The commands before, which do not count."""
    route: str = BOTH_HOPS
    rows: str = ROWS
    """The rows of the table with the number `n`, as SQL."""
    options: Mapping[str, str | int] = field(default_factory=dict)
    workload: str = "tables"

    def make(self, servers: Servers, table: Table) -> None:
        self.clean_up(servers, table)
        schema = self._schema(table)
        servers.execute("postgres", f"CREATE SCHEMA {schema}")
        for start in range(0, table.rows, BATCH):
            servers.execute(
                "postgres",
                f"""DO $$ BEGIN FOR n IN {start} .. {min(start + BATCH, table.rows) - 1} LOOP
                    EXECUTE format(
                        'CREATE TABLE {schema}.%1$s (id integer PRIMARY KEY, n integer, name text);'
                        'INSERT INTO {schema}.%1$s SELECT g, g * %2$s, ''name '' || g '
                        'FROM generate_series(1, %3$s) g; ANALYZE {schema}.%1$s',
                        to_char(n, 'FMt00000'), n, {self.rows});
                END LOOP; END $$""",
            )

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        """With no target there, and an event log that knows nothing of the tables."""
        self._drop_targets(servers, table)
        folder = private(self.folder(servers))
        shutil.copytree(empty_home(servers), folder / "dagster")
        (folder / "transfers").mkdir()
        hops = [self._hop(servers, table, name) for name in TARGETS[self.route]]
        if self.words[0] == "run":
            text = f'tables: "postgres://{self._schema(table)}.*"\nhops: {json.dumps(hops)}\n'
            (folder / "transfers" / "many.yaml").write_text(text)
            require_good(run(self._command(servers, ("refresh",))), "refresh", servers.secrets)
        for words in self.first:
            require_good(run(self._command(servers, words)), f"ferry {words[0]}", servers.secrets)
        words = self.words
        if words[0] == "init":
            words += ("--tables", f"{self._schema(table)}.*")
            words += tuple(word for hop in hops for word in ("--to", hop))
        return [self._command(servers, words)]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        if self.words[0] == "init":
            written = [*(self.folder(servers) / "transfers").glob("t*.yaml")]
            return Outcome(_all(table, len(written), "files were written"))
        transfers = json.loads(done[0].output)["transfers"]
        wanted = "skipped_unchanged" if self.first else "committed"
        good = [
            item for item in transfers if {part["state"] for part in item["ranges"]} == {wanted}
        ]
        return Outcome(_all(table, len(good), f"transfers are {wanted}"))

    def clean_up(self, servers: Servers, table: Table) -> None:
        """Drop the tables and their targets."""
        servers.execute("postgres", f"DROP SCHEMA IF EXISTS {self._schema(table)} CASCADE")
        self._drop_targets(servers, table)

    def _drop_targets(self, servers: Servers, table: Table) -> None:
        if self.words[0] == "init":
            return
        for name in TARGETS[self.route]:
            first = self.target(servers, table, name)
            for number in range(table.rows if name in servers.settings else 0):
                servers.drop(TableRef(name, first.schema, f"{first.name}_t{number:05}"))

    def _hop(self, servers: Servers, table: Table, name: str) -> str:
        first = self.target(servers, table, name)
        return f"{name}://{first.schema}.{first.name}_{{table}}"

    def _schema(self, table: Table) -> str:
        return f"{PREFIX}{table.name}_{self.name.replace('-', '_')}"

    def _command(self, servers: Servers, words: Sequence[str]) -> Command:
        argv = [sys.executable, "-m", "tableferry.pipelines.cli", *words, "--json"]
        return Command(argv, self.environment(servers))


def _all(table: Table, number: int, what: str) -> int:
    if number != table.rows:
        raise CommandFailed(f"{number} of {table.rows} {what}")
    return number


ALL = ("run", "--all")
FIRST = "tables of 200 rows, moved for the first time by `run --all`"
NOTHING_TO_DO = "tables of 200 rows, found unchanged by `run --all`"

FLEETS = (
    Declared(
        "fleet-definitions",
        ("definitions",),
        "two-hop transfers with two schedules each, loaded by a code server",
    ),
    Declared(
        "fleet-idle",
        ("idle", str(IDLE_SECONDS)),
        f"`ferry dev` for {IDLE_SECONDS} s, with nothing to do",
    ),
    OnTables(
        "fleet-init",
        ("init", "--from", "postgres", "--chain"),
        "transfer files written by `ferry init`",
    ),
    OnTables("fleet-first", ALL, FIRST),
    OnTables("fleet-nothing", ALL, NOTHING_TO_DO, (ALL,)),
    OnTables("fleet-first-one-hop", ALL, FIRST, route=POSTGRES_CLICKHOUSE),
    OnTables("fleet-nothing-one-hop", ALL, NOTHING_TO_DO, (ALL,), POSTGRES_CLICKHOUSE),
    OnTables(
        "fleet-mix",
        ALL,
        "tables of 1 M (one), 50,000 (ten) and 200 rows, moved for the first time by `run --all`",
        route=POSTGRES_CLICKHOUSE,
        rows=MIXED_ROWS,
    ),
    *(
        Ferry(
            f"fleet-unchanged-{fingerprint}",
            f"one unchanged table, looked at by `fingerprint: {fingerprint}`",
            declared={"fingerprint": fingerprint},
            first=(("run",),),
        )
        for fingerprint in ("content", "auto")
    ),
)
