"""Moves a table with dlt; reads what to do from its standard input."""

from __future__ import annotations

import json
import os
import sys

import dlt
from dlt.sources.sql_database import sql_table

from tableferry_bench.contenders.peers import DATASET, NATIVE_PORT


def main() -> None:
    """Move it."""
    told = json.load(sys.stdin)
    place = told["clickhouse"]
    destination = dlt.destinations.clickhouse(
        credentials={
            "host": place["host"],
            "port": int(os.environ[NATIVE_PORT]),
            "http_port": place["port"],
            "username": place["username"],
            "password": place["password"],
            "database": place["database"],
            "secure": int(place["secure"]),
        },
        dataset_table_separator="_",
    )
    rows = sql_table(
        credentials="postgresql+psycopg://", schema="public", table=told["name"], backend="pyarrow"
    )
    name = told["target"].removeprefix(f"{DATASET}_")
    rows.apply_hints(table_name=name, write_disposition="replace")
    pipeline = dlt.pipeline("ferry_bench", destination=destination, dataset_name=DATASET)
    pipeline.run(rows)


if __name__ == "__main__":
    main()
