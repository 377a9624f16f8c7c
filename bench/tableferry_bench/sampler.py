"""Looks at PostgreSQL's sessions while something else goes on there."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import psycopg

from tableferry_bench.servers import Servers

SAMPLE_SECONDS = 0.1
WRITER, SAMPLER = "ferry_bench_beside", "ferry_bench_sampler"

SAMPLE = f"""
SELECT pid, CASE WHEN state = 'active' THEN extract(epoch FROM clock_timestamp() - query_start) END,
    CASE WHEN backend_xmin IS NOT NULL THEN extract(epoch FROM clock_timestamp() - xact_start) END,
    age(backend_xmin), coalesce(wait_event_type = 'Lock', false), application_name = '{WRITER}'
FROM pg_stat_activity
WHERE backend_type IN ('client backend', 'parallel worker') AND application_name <> '{SAMPLER}'
"""
COUNTERS = """
SELECT temp_bytes, (SELECT sum(evictions) FROM pg_stat_io),
    (pg_current_wal_insert_lsn() - '0/0')::bigint
FROM pg_stat_database WHERE datname = current_database()
"""
"""pg_stat_io is there from PostgreSQL 16 on."""


@dataclass(frozen=True)
class Seen:
    """What was seen of the sessions other than the writer's, and of the server's counters."""

    longest_statement: float
    oldest_snapshot: float
    """Seconds, as sampled."""
    oldest_xmin: int
    """Transactions."""
    lock_waits: int
    """Sessions of the writer that were seen to wait for a lock."""
    temp_mb: float
    evicted: int | None
    wal_mb: float


class Sampler:
    """Looks at PostgreSQL's sessions again and again; at nothing of another source."""

    def __init__(self, servers: Servers, source: str) -> None:
        self._servers, self._of_postgres = servers, source == "postgres"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._longest = self._oldest = 0.0
        self._xmin = 0
        self._waited: set[int] = set()
        self.over_time: list[tuple[float, float]] = []
        """The age of the oldest snapshot, by the seconds since the beginning."""

    def __enter__(self) -> Sampler:
        if self._of_postgres:
            self._connection = connected(self._servers, SAMPLER)
            self._before = self._counters()
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()

    def _look(self) -> None:
        began = time.monotonic()
        while not self._over.wait(SAMPLE_SECONDS):
            ages = [0.0]
            for pid, statement, snapshot, xmin, waits, of_writer in self._rows(SAMPLE):
                if of_writer:
                    self._waited |= {pid} if waits else set()
                    continue
                self._longest = max(self._longest, float(statement or 0))
                ages.append(float(snapshot or 0))
                self._xmin = max(self._xmin, int(xmin or 0))
            self._oldest = max(self._oldest, *ages)
            self.over_time.append((round(time.monotonic() - began, 1), round(max(ages), 1)))

    def seen(self) -> Seen | None:
        """What was seen; after the end. None of another source than PostgreSQL."""
        if not self._of_postgres:
            return None
        time.sleep(1.2)  # sessions report their counters once a second
        temp_bytes, evicted, wal = (
            None if after is None else after - before
            for before, after in zip(self._before, self._counters(), strict=True)
        )
        self._connection.close()
        return Seen(
            longest_statement=self._longest,
            oldest_snapshot=self._oldest,
            oldest_xmin=self._xmin,
            lock_waits=len(self._waited),
            temp_mb=float(temp_bytes or 0) / 1e6,
            evicted=None if evicted is None else int(evicted),
            wal_mb=float(wal or 0) / 1e6,
        )

    def _counters(self) -> tuple[Any, ...]:
        sql = COUNTERS
        if self._connection.info.server_version < 160_000:
            sql = sql.replace("(SELECT sum(evictions) FROM pg_stat_io)", "NULL")
        return self._rows(sql)[0]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql.encode()).fetchall()


def connected(servers: Servers, name: str) -> psycopg.Connection[Any]:
    """A connection of the bench's own."""
    settings = servers.settings["postgres"]
    return psycopg.connect(
        host=settings.host,
        port=settings.port,
        dbname=settings.database,
        user=settings.user,
        password=settings.password,
        application_name=name,
        autocommit=True,
        **settings.options,  # type: ignore[arg-type]
    )
