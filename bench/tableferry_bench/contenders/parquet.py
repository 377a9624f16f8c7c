"""The rows of a workload as Parquet files, and the bare way to get them into ClickHouse."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.types import FILE
from tableferry.resources.keys.range import ROW
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import (
    PARQUET_CLICKHOUSE,
    Contender,
    Outcome,
    create_in_clickhouse,
    needs,
    planned,
)
from tableferry_bench.contenders.pipes import CURL, EVERYTHING, bash, curl_config
from tableferry_bench.meter import Command, Finished
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import Table

FILE_ROWS = 250_000
"""As many as Tableferry's ranges have by default."""


def parquet_files(servers: Servers, table: Table) -> TableRef:
    """The files of a workload's rows."""
    return TableRef("files", str(servers.folder / f"parquet-{table.name}"), "*.parquet")


def write_parquet(servers: Servers, table: Table) -> None:
    """Write them, unless they are there already."""
    folder = Path(parquet_files(servers, table).schema)
    if folder.exists():
        return
    source = servers.table("postgres", table.name)
    plan = planned(servers, source, servers.table("clickhouse", table.name), table.key)
    filling = folder.with_name(f"{folder.name}-filling")
    filling.mkdir(mode=0o700)
    sql = plan.select(EVERYTHING, "arrow")
    with servers.postgres.read_arrow(sql) as reader, ExitStack() as stack:
        room, number = 0, 0
        for batch in reader:
            if room < batch.num_rows:
                stack.close()
                path = filling / f"{number:04}.parquet"
                writer = stack.enter_context(pq.ParquetWriter(path, schema(plan)))
                room, number = FILE_ROWS, number + 1
            writer.write_batch(conform(batch, plan, {}))
            room -= batch.num_rows
    os.rename(filling, folder)


class CurlParquet(Contender):
    """`curl` of the files, one after the other, for ClickHouse to read by itself."""

    name = "curl-parquet"
    route = PARQUET_CLICKHOUSE

    def missing(self, servers: Servers) -> str | None:
        return super().missing(servers) or needs("bash", "curl")

    def set_up(self, servers: Servers, table: Table) -> None:
        """Write the files."""
        write_parquet(servers, table)

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        files = parquet_files(servers, table)
        found = [one for one in FilesResource().columns(files) if one.name not in (FILE, ROW)]
        # files declare nothing NOT NULL, and what a table is sorted by has to be
        columns = [replace(one, nullable=one.name != table.key) for one in found]
        version = servers.clickhouse.ping()
        target = self.target(servers, table)
        plan = plan_copy(files, columns, target, key=table.key, target_version=version)
        create_in_clickhouse(servers, plan)
        names = ", ".join(system("clickhouse").quote(column.name) for column in plan.target_columns)
        query = f"INSERT INTO {qualified(target)} ({names}) FORMAT Parquet"
        config = curl_config(servers, self.name, query)
        script = f'for file in "$FILES"/*.parquet; do {CURL} < "$file" || exit; done'
        return [bash(script, servers, CURL_CONFIG=str(config), FILES=files.schema)]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table)
