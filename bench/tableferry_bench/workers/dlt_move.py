"""Moves a table with dlt; reads what to do from its standard input."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import dlt
from dlt.sources.sql_database import sql_table

from tableferry_bench.contenders.peers import NATIVE_PORT


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
        # tables then are named `<dataset>___<table>`; without a dataset, by the table alone
        dataset_table_separator="",
    )
    rows = sql_table(
        credentials="postgresql+psycopg://", schema="public", table=told["name"], backend="pyarrow"
    )
    rows.apply_hints(table_name=told["target"], write_disposition="replace")
    none: Any = None
    pipeline = dlt.pipeline("ferry_bench", destination=destination, dataset_name=none)
    pipeline.run(rows)


if __name__ == "__main__":
    main()
