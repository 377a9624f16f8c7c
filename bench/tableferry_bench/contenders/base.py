"""What takes part in a measurement: a way to get the rows of a table from one system to another."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tableferry.resources.clickhouse.types import declared_type
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry_bench.meter import Command, CommandFailed, CpuSeconds, Finished
from tableferry_bench.results import Skew, Stored
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import Table

POSTGRES_CLICKHOUSE = "PostgreSQL -> ClickHouse"
POSTGRES_POSTGRES = "PostgreSQL -> PostgreSQL"
PARQUET_CLICKHOUSE = "Parquet -> ClickHouse"
POSTGRES_SQLSERVER = "PostgreSQL -> SQL Server"
SQLSERVER_CLICKHOUSE = "SQL Server -> ClickHouse"
BOTH_HOPS = "PostgreSQL -> SQL Server -> ClickHouse"
NOTHING = "nothing"


@dataclass(frozen=True)
class Outcome:
    """What a run has done, besides taking time."""

    rows: int
    phases: Mapping[str, float] = field(default_factory=dict)
    skew: Skew | None = None
    seconds: float | None = None
    """By its own clock, where getting ready would take longer than what is looked at."""
    cpu_client: CpuSeconds | None = None
    """The same of its CPU time."""
    stored: Mapping[str, Stored] = field(default_factory=dict)
    """What its targets take on disk, by system."""


class Contender(ABC):
    """One way to do it. Every run of it is one or more programs."""

    name: str
    route: str = POSTGRES_CLICKHOUSE
    proves: str = NOTHING
    options: Mapping[str, str | int] = {}
    """That tell it from others of the same name."""

    def missing(self, servers: Servers) -> str | None:
        """Why it cannot take part; None if it can."""
        if "SQL Server" in self.route and servers.sqlserver is None:
            return "no SQL Server is named"
        return None

    def set_up(self, servers: Servers, table: Table) -> None:
        """Do once what all runs on a table rest on; not measured. Usually nothing."""
        return

    @abstractmethod
    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        """Get ready for one run, unmeasured, and say what it is."""

    @abstractmethod
    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        """What the programs have done, all of which ended well."""

    def clean_up(self, servers: Servers, table: Table) -> None:
        """Leave nothing on the servers."""
        for name in servers.settings:
            servers.drop(self.target(servers, table, name))

    def target(self, servers: Servers, table: Table, system: str = "clickhouse") -> TableRef:
        """The table that it fills."""
        return servers.table(system, f"{table.name}_{self.name.replace('-', '_')}")

    def arrived(self, servers: Servers, table: Table, system: str = "clickhouse") -> Outcome:
        """What is in its target.

        Raises:
            CommandFailed: other rows than the source has.
        """
        rows = servers.count(self.target(servers, table, system))
        if rows != table.rows:
            raise CommandFailed(f"{rows} of {table.rows} rows arrived, though it ended well")
        return Outcome(rows, stored=self.stored(servers, table, system))

    def stored(self, servers: Servers, table: Table, *systems: str) -> dict[str, Stored]:
        """What its targets take on disk, as far as their servers tell."""
        sizes = {name: servers.stored(self.target(servers, table, name)) for name in systems}
        return {name: size for name, size in sizes.items() if size}


def cpu_of(told: Mapping[str, Any]) -> CpuSeconds | None:
    """The CPU seconds that a worker of the bench tells of itself; None if it does not."""
    return (
        CpuSeconds(told["cpu_seconds"], told["system_seconds"]) if "cpu_seconds" in told else None
    )


def needs(*programs: str) -> str | None:
    """Why programs cannot be run; None if all are there."""
    absent = [name for name in programs if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def planned(servers: Servers, source: TableRef, target: TableRef, key: str) -> CopyPlan:
    """The types that Tableferry gives to the columns: all contenders fill the same tables."""
    columns = getattr(servers, source.system_name).columns(source)
    version = getattr(servers, target.system_name).ping()
    return plan_copy(source, columns, target, key=key, target_version=version)


def create_in_clickhouse(servers: Servers, plan: CopyPlan) -> None:
    """An empty target, sorted by the key, in the place of what is there."""
    columns = ", ".join(
        f"{system('clickhouse').quote(column.name)} {declared_type(column)}"
        for column in plan.target_columns
    )
    servers.drop(plan.target)
    servers.clickhouse.execute(
        f"CREATE TABLE {qualified(plan.target)} ({columns}) "
        f"ENGINE = MergeTree ORDER BY {system('clickhouse').quote(plan.key.target.name)}"
    )


def private(folder: Path) -> Path:
    """A folder, new and empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder
