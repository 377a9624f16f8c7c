"""Moves a table with dlt; reads what to do from its standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import clickhouse_connect
import dlt
from dlt.sources.sql_database import sql_table

from tableferry_bench.contenders.peers import DATASET, NATIVE_PORT

FILE_ROWS = 250_000
"""The rows of a Parquet file: ClickHouse keeps all of one in memory before it reads it."""


def main() -> None:
    """Move it."""
    told = json.load(sys.stdin)
    port = os.environ.get(NATIVE_PORT)
    destination = native(told, int(port)) if port else http(told)
    rows = sql_table(
        credentials="postgresql+psycopg://", schema="public", table=told["name"], backend="pyarrow"
    )
    name = told["target"].removeprefix(f"{DATASET}_")
    rows.apply_hints(table_name=name, write_disposition="replace")
    pipeline = dlt.pipeline("ferry_bench", destination=destination, dataset_name=DATASET)
    pipeline.run(rows)


def native(told: Mapping[str, Any], port: int) -> Any:
    """dlt's own destination, which makes the table."""
    place = told["clickhouse"]
    return dlt.destinations.clickhouse(
        credentials={
            "host": place["host"],
            "port": port,
            "http_port": place["port"],
            "username": place["username"],
            "password": place["password"],
            "database": place["database"],
            "secure": int(place["secure"]),
        },
        dataset_table_separator="_",
    )


def http(told: Mapping[str, Any]) -> Any:
    """A custom destination, into a table that is there."""
    # jobs run side by side, which a session forbids
    client = clickhouse_connect.get_client(**told["clickhouse"], autogenerate_session_id=False)
    dlt.config["data_writer.file_max_items"] = FILE_ROWS

    @dlt.destination(batch_size=0, loader_file_format="parquet")
    def clickhouse_http(file: Any, table: Any) -> None:
        with Path(file).open("rb") as body:
            client.raw_insert(told["target"], insert_block=body, fmt="Parquet")

    return clickhouse_http()


if __name__ == "__main__":
    main()
