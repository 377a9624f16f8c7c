"""The servers that a measurement uses, and the tables that it makes on them."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from tableferry.pipelines.command.plugins import temporary_stack
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting import passwords
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.errors import ConnectionFailed, TableferryError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tableferry_bench.meter import SETTLE_SECONDS, CpuSeconds, ServerClock
from tableferry_bench.results import Stored

PREFIX = "ferry_bench_"
"""What the names of all tables of the bench begin with."""

VARIABLES = {
    "postgres": "TABLEFERRY_POSTGRES_URL",
    "sqlserver": "TABLEFERRY_SQLSERVER_URL",
    "clickhouse": "TABLEFERRY_CLICKHOUSE_URL",
}


@dataclass(frozen=True)
class Servers:
    """PostgreSQL, ClickHouse and, if one is named, SQL Server; and a folder for files."""

    environment: Mapping[str, str] = field(repr=False)
    """With the `TABLEFERRY_*_URL` of each."""
    folder: Path
    _clocks: dict[str, ServerClock] = field(default_factory=dict)

    @cached_property
    def postgres(self) -> PostgresResource:
        """The source."""
        return PostgresResource(url=self.environment[VARIABLES["postgres"]])

    @cached_property
    def clickhouse(self) -> ClickHouseResource:
        """The last target."""
        return ClickHouseResource(url=self.environment[VARIABLES["clickhouse"]])

    @cached_property
    def sqlserver(self) -> SqlServerResource | None:
        """What is in between; None if none is named."""
        url = self.environment.get(VARIABLES["sqlserver"])
        return SqlServerResource(url=url) if url else None

    @cached_property
    def settings(self) -> dict[str, ConnectionSettings]:
        """The settings of each server, by system."""
        found = {"postgres": self.postgres.settings(), "clickhouse": self.clickhouse.settings()}
        return found | ({"sqlserver": self.sqlserver.settings()} if self.sqlserver else {})

    @property
    def secrets(self) -> list[str]:
        """The passwords, to be blotted out."""
        return [one.password for one in self.settings.values() if one.password]

    def table(self, system: str, name: str) -> TableRef:
        """A table of the bench, in the place where that system's tables usually are."""
        schema = {"postgres": "public", "sqlserver": "dbo"}.get(system)
        return TableRef(system, schema or self.settings["clickhouse"].database, PREFIX + name)

    def drop(self, table: TableRef) -> None:
        """Drop a table, if it is there."""
        self.execute(table.system_name, drop_table(table))

    def stored(self, table: TableRef) -> Stored | None:
        """What a table takes on its server's disk, indexes included; None if it does not tell."""
        name = table.system.dialect.literal
        by_system = {
            "postgres": f"SELECT pg_total_relation_size({name(qualified(table))}), NULL",
            "sqlserver": "SELECT sum(reserved_page_count) * 8192, NULL "
            f"FROM sys.dm_db_partition_stats WHERE object_id = OBJECT_ID({name(qualified(table))})",
            "clickhouse": "SELECT sum(bytes_on_disk), sum(data_uncompressed_bytes) "
            f"FROM system.parts WHERE active AND database = {name(table.schema)} "
            f"AND table = {name(table.name)}",
        }
        with suppress(TableferryError):
            [(disk, uncompressed)] = getattr(self, table.system_name).query(
                by_system[table.system_name]
            )
            if disk is not None:
                return Stored(int(disk), None if uncompressed is None else int(uncompressed))
        return None

    def execute(self, system: str, sql: str) -> None:
        """Run a statement on one of them."""
        server = getattr(self, system)
        server.execute(sql)

    def count(self, table: TableRef) -> int:
        """How many rows a table has."""
        sql = f"SELECT {table.system.dialect.count} FROM {qualified(table)}"
        return int(getattr(self, table.system_name).query(sql)[0][0])

    def clocks(self) -> dict[str, CpuSeconds | None]:
        """CPU seconds of each server so far; None of those that are elsewhere."""
        if not self._clocks:
            self._clocks.update({name: ServerClock(one) for name, one in self.settings.items()})
        if any(clock.seen for clock in self._clocks.values()):
            time.sleep(SETTLE_SECONDS)
        return {name: clock.seconds() for name, clock in self._clocks.items()}

    def pid(self, system: str) -> int | None:
        """The process of a server, if it is on this machine and may be looked at."""
        self.clocks()
        return self._clocks[system].pid

    def described(self) -> dict[str, str]:
        """What each server says it is, and whether its CPU time can be told."""
        self.clocks()
        found = {}
        for name in self.settings:
            where = "on this machine" if self._clocks[name].seen else "elsewhere"
            found[name] = f"{getattr(self, name).ping()}, {where}"
        return found


@contextmanager
def servers(work: Path | None = None) -> Iterator[Servers]:
    """The servers that the environment names, or else a local stack that is removed at the end.

    Args:
        work: where to make the folder for files, which goes at the end; the system's by default.

    Raises:
        InputError: no server is named, and tableferry-local is not installed.
        ConnectionFailed: PostgreSQL or ClickHouse does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="ferry-bench-", dir=work) as name:
        environment = _environment()
        if any(environment.get(variable) for variable in VARIABLES.values()):
            yield _answering(Servers(environment, Path(name)))
            return
        with temporary_stack() as settings:
            yield _answering(Servers({**environment, **settings}, Path(name)))


def _environment() -> dict[str, str]:
    """This process's, with the URLs that files hold (`TABLEFERRY_..._URL_FILE`) in their places."""
    files = {variable + passwords.SUFFIX for variable in VARIABLES.values()}
    found = {name: value for name, value in os.environ.items() if name not in files}
    urls = {variable: passwords.from_environment(variable) for variable in VARIABLES.values()}
    return found | {variable: url for variable, url in urls.items() if url}


def _answering(found: Servers) -> Servers:
    for name in ("postgres", "clickhouse"):
        if not found.environment.get(VARIABLES[name]):
            raise ConnectionFailed(f"{VARIABLES[name]} is not set; the bench needs it")
        getattr(found, name).ping()
    return found


def machine() -> dict[str, str | int | float]:
    """What the measurement runs on, as far as it matters for speed."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": psutil.cpu_count() or 0,
        "memory_mb": psutil.virtual_memory().total // 1_000_000,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def load_average() -> float:
    """Processes that wanted a core, on average of the last minute."""
    return round(psutil.getloadavg()[0], 2)


def dropping(found: Servers, *tables: TableRef) -> None:
    """Drop what a measurement leaves; what cannot be dropped does not hide what went wrong."""
    for table in tables:
        with suppress(TableferryError):
            found.drop(table)
