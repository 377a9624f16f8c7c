"""Moves a table as a pandas user would; reads what to do from its standard input."""

from __future__ import annotations

import json
import sys

import clickhouse_connect
import pandas as pd
import psycopg

CHUNK_ROWS = 50_000


def main() -> None:
    """Move it."""
    told = json.load(sys.stdin)
    client = clickhouse_connect.get_client(**told["clickhouse"])
    # where to is in libpq's variables
    with psycopg.connect("") as connection, connection.cursor("rows") as cursor:
        cursor.itersize = CHUNK_ROWS
        cursor.execute(f"SELECT * FROM {told['table']}")
        names = [column.name for column in cursor.description or ()]
        while rows := cursor.fetchmany(CHUNK_ROWS):
            client.insert_df(told["target"], pd.DataFrame(rows, columns=names))


if __name__ == "__main__":
    main()
