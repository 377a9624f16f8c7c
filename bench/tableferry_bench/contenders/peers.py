"""Other programs that move tables, each as its own documentation would have it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote as percent

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import (
    Contender,
    Outcome,
    create_in_clickhouse,
    planned,
    private,
)
from tableferry_bench.contenders.pipes import libpq
from tableferry_bench.meter import Command, Finished
from tableferry_bench.servers import PREFIX, Servers
from tableferry_bench.workloads import EXTRA, Table

NATIVE_PORT = "TABLEFERRY_BENCH_CLICKHOUSE_NATIVE_PORT"
"""Environment variable: where ClickHouse speaks its own protocol, which dlt's destination for it
cannot do without."""


DATASET = f"{PREFIX}dlt"
"""dlt's dataset; on ClickHouse it is a prefix of tables."""


class Peer(Contender):
    """A package of the extra `peers`."""

    module: str

    def missing(self, servers: Servers) -> str | None:
        if importlib.util.find_spec(self.module) is None:
            return f"{self.module} is not installed: {EXTRA}"
        return super().missing(servers)

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table)

    def worker(self, servers: Servers, table: Table) -> Command:
        """`workers/<module>.py`, told all in one JSON document."""
        clickhouse = servers.settings["clickhouse"]
        told = {
            "table": qualified(servers.table("postgres", table.name)),
            "name": servers.table("postgres", table.name).name,
            "target": self.target(servers, table).name,
            "clickhouse": {
                "host": clickhouse.host,
                "port": clickhouse.port,
                "username": clickhouse.user or "default",
                "password": clickhouse.password or "",
                "database": clickhouse.database,
                "secure": clickhouse.options.get("secure") == "yes",
            },
        }
        folder = private(servers.folder / self.name)
        environment = {
            **servers.environment,
            **libpq(servers.settings["postgres"]),
            "HOME": str(folder),
            "DLT_DATA_DIR": str(folder),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        }
        command = [sys.executable, "-m", f"tableferry_bench.workers.{self.module}_move"]
        return Command(command, environment, json.dumps(told), folder)


class Pandas(Peer):
    """`read_sql` from a server-side cursor in chunks of 50,000 rows, `insert_df`."""

    name = "pandas"
    module = "pandas"

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        source, target = servers.table("postgres", table.name), self.target(servers, table)
        create_in_clickhouse(servers, planned(servers, source, target, table.key))
        return [self.worker(servers, table)]


class Dlt(Peer):
    """dlt's `sql_database` source with PyArrow, into its ClickHouse destination.

    Where no port of ClickHouse's native protocol is named, into a custom destination instead, which
    gets the same Parquet files and posts them over HTTP.
    """

    name = "dlt"
    module = "dlt"

    def __init__(self) -> None:
        self.native = bool(os.environ.get(NATIVE_PORT))
        self.options = {"by": "native protocol" if self.native else "HTTP"}

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        self.clean_up(servers, table)
        if not self.native:
            source, target = servers.table("postgres", table.name), self.target(servers, table)
            create_in_clickhouse(servers, planned(servers, source, target, table.key))
        return [self.worker(servers, table)]

    def target(self, servers: Servers, table: Table, system: str = "clickhouse") -> TableRef:
        """dlt puts its dataset before the names of all tables, also of those of its own."""
        return servers.table(system, f"dlt_{table.name}")

    def clean_up(self, servers: Servers, table: Table) -> None:
        """Drop the dataset: the target, and dlt's own tables."""
        database = servers.settings["clickhouse"].database
        found = servers.clickhouse.query(
            "SELECT name FROM system.tables WHERE startsWith(name, "
            f"{system('clickhouse').dialect.literal(f'{DATASET}_')}) "
            f"AND database = {system('clickhouse').dialect.literal(database)}"
        )
        for (name,) in found:
            servers.drop(TableRef("clickhouse", database, str(name)))


class Sling(Peer):
    """`sling run` in its mode `full-refresh`, over ClickHouse's HTTP interface."""

    name = "sling"
    module = "sling_linux_amd64"

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        servers.drop(self.target(servers, table))
        return [sling_command(servers, table, self.target(servers, table), "full-refresh")]


def sling_command(
    servers: Servers, table: Table, target: TableRef, mode: str, *more: str
) -> Command:
    """`sling run` of a table in one of its modes, from PostgreSQL into any system.

    Args:
        servers: the servers.
        table: the table of the source.
        target: the table to fill.
        mode: as sling calls it.
        more: further arguments.
    """
    from importlib import import_module

    folder = private(servers.folder / "sling")
    environment = {
        **servers.environment,
        "HOME": str(folder),
        "SLING_HOME_DIR": str(folder),
        "SLING_DISABLE_TELEMETRY": "true",
        "BENCH_SOURCE": _sling_address(servers, "postgres"),
        "BENCH_TARGET": _sling_address(servers, target.system_name),
    }
    stream = servers.table("postgres", table.name)
    command = [
        str(Path(import_module(Sling.module).SLING_BIN)),
        *("run", "--src-conn", "BENCH_SOURCE", "--src-stream", f"{stream.schema}.{stream.name}"),
        *("--tgt-conn", "BENCH_TARGET", "--mode", mode),
        *("--tgt-object", f"{target.schema}.{target.name}", *more),
    ]
    return Command(command, environment, folder=folder)


def _sling_address(servers: Servers, name: str) -> str:
    settings = servers.settings[name]
    user, password = percent(settings.user or ""), percent(settings.password or "", safe="")
    address = f"{settings.host}:{settings.port}"
    if name == "postgres":
        return f"postgresql://{user}:{password}@{address}/{settings.database}?sslmode=disable"
    if name == "sqlserver":
        more = "encrypt=true&trustservercertificate=true"
        return f"sqlserver://{user}:{password}@{address}?database={settings.database}&{more}"
    scheme = "https" if settings.options.get("secure") == "yes" else "http"
    place = f"{user or 'default'}:{password}@{address}/{settings.database}"
    return json.dumps({"type": "clickhouse", "http_url": f"{scheme}://{place}"})


PEERS = (Pandas, Dlt, Sling)
