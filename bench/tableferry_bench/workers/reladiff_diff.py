"""Compares two tables with reladiff; reads what to do from its standard input."""

from __future__ import annotations

import json
import sys

from reladiff import connect, connect_to_table, diff_tables


def main() -> None:
    """Print how many rows differ."""
    told = json.load(sys.stdin)
    threads, algorithm = told.get("threads", 1), told.get("algorithm", "hashdiff")
    joined = algorithm == "joindiff"
    places = [url for url, *_ in told["tables"]]
    servers = [connect(url, thread_count=threads) for url in places[: 1 if joined else 2]]
    tables = [
        connect_to_table(
            servers[0 if joined else at],
            tuple(name),
            told["key"],
            extra_columns=tuple(told["columns"]),
        )
        for at, (_, *name) in enumerate(told["tables"])
    ]
    # its documentation recommends twice as many
    pool = threads if threads == 1 else 2 * threads
    different = diff_tables(*tables, algorithm=algorithm, max_threadpool_size=pool)
    print(len({row[0] for _, row in different}))


if __name__ == "__main__":
    main()
