"""Updates rows of a small table again and again, and times each statement; elsewhere than on
PostgreSQL it reads them.

Its arguments are the URL of the source, by the name of its variable; the table; its rows; how many
sessions; and how many statements each begins per second. It says `ready`, goes on until its input
ends, and prints when each statement was due, in seconds since 1970, and how long after that it was
done: who waits for the one before waits as well.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import psycopg

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.sqlserver.resource import SqlServerResource

RESOURCES = {
    "TABLEFERRY_SQLSERVER_URL": SqlServerResource,
    "TABLEFERRY_CLICKHOUSE_URL": ClickHouseResource,
}


def main() -> None:
    """Write until the input ends."""
    variable, table, rows, sessions, rate = sys.argv[1:]
    url = os.environ[variable]
    timed: list[tuple[float, float]] = []
    over = threading.Event()
    with ExitStack() as opened:
        writers = [_writer(variable, url, table, opened) for _ in range(int(sessions))]
        threads = [
            threading.Thread(target=_write, args=(one, int(rows), float(rate), timed, over))
            for one in writers
        ]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        over.set()
        for thread in threads:
            thread.join()
    json.dump(timed, sys.stdout)


def _writer(variable: str, url: str, table: str, opened: ExitStack) -> Callable[[int], object]:
    """A session of its own, and what it does to the row of a number."""
    if variable == "TABLEFERRY_POSTGRES_URL":
        connection = psycopg.connect(url, autocommit=True, application_name="ferry_bench_beside")
        opened.callback(connection.close)
        update = f"UPDATE {table} SET n = n + 1 WHERE id = "
        return lambda row: connection.execute(f"{update}{row}".encode())
    resource = RESOURCES[variable](url=url)
    return lambda row: resource.query(f"SELECT n FROM {table} WHERE id = {row}")


def _write(
    write: Callable[[int], object],
    rows: int,
    rate: float,
    timed: list[tuple[float, float]],
    over: threading.Event,
) -> None:
    chosen = random.Random(threading.get_ident())
    due = time.time() + chosen.random() / rate
    while not over.is_set():
        time.sleep(max(0.0, due - time.time()))
        write(chosen.randint(1, rows))
        timed.append((due, time.time() - due))
        due += 1 / rate


if __name__ == "__main__":
    main()
