"""Tables of Citus and TimescaleDB, told by the catalogs that these document; neither is at hand.

The catalogs are made by the tests, of the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from tableferry.resources.contract.catalog import Use
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError, NoBlocks, SourceMoved
from tableferry.resources.postgres.health import findings
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import _pool
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE public.plain (id int PRIMARY KEY, note text);
CREATE TABLE public.spread (id int PRIMARY KEY, note text);
CREATE TABLE public.everywhere (id int PRIMARY KEY, note text);
CREATE TABLE public.here (id int PRIMARY KEY, note text);
CREATE TABLE public.measured (id int NOT NULL, note text);
CREATE TABLE public.chunk () INHERITS (public.measured);
CREATE VIEW public.through AS
    SELECT s.id, p.note FROM public.spread s JOIN public.plain p USING (id);
INSERT INTO public.chunk SELECT g, 'note ' || g FROM generate_series(1, 50) g;
INSERT INTO public.here SELECT g, 'note ' || g FROM generate_series(1, 50) g;
CREATE VIEW public.hourly AS SELECT id, note FROM public.measured;
"""

CITUS = """
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (
    logicalrelid regclass, partmethod "char", partkey text, colocationid int, repmodel "char");
GRANT SELECT ON pg_catalog.pg_dist_partition TO public;
INSERT INTO pg_catalog.pg_dist_partition VALUES ('public.spread', 'h', '{VAR}', 1, 's'),
    ('public.everywhere', 'n', NULL, 2, 't'), ('public.here', 'n', NULL, 0, 's');
"""
"""A distributed table, a reference table, and one of the coordinator."""

TIMESCALE = """
CREATE SCHEMA timescaledb_information;
CREATE TABLE timescaledb_information.hypertables (hypertable_schema name, hypertable_name name);
CREATE TABLE timescaledb_information.continuous_aggregates (view_schema name, view_name name);
CREATE TABLE timescaledb_information.chunks (
    chunk_schema name, chunk_name name, is_compressed boolean);
INSERT INTO timescaledb_information.hypertables VALUES ('public', 'measured');
INSERT INTO timescaledb_information.continuous_aggregates VALUES ('public', 'hourly');
INSERT INTO timescaledb_information.chunks VALUES ('public', 'chunk', true);
"""


@pytest.fixture(scope="module")
def extended(stack: Servers) -> Iterator[str]:
    """The URL of a database with both."""
    name = own("extended")
    looking.ask_postgres(stack.postgres_url, f"CREATE DATABASE {name}")
    url = urlsplit(stack.postgres_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as admin:
        for statements in (TABLES, CITUS, TIMESCALE):
            admin.execute(statements.encode())
    yield url
    _pool.close()
    looking.ask_postgres(stack.postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("table", ["spread", "everywhere", "through"])
@pytest.mark.parametrize("declared", ["source", "target"])
def test_what_citus_distributes_is_refused_by_name(
    ferry: Callable[..., Ferry], stack: Servers, extended: str, table: str, declared: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TABLEFERRY_CONNECTION_CITUS", extended)
    one = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id int PRIMARY KEY)")
    if declared == "source":
        one.declare("['clickhouse://warehouse.{t}']", source=f"citus://public.{table}")
    else:
        one.declare(f"['citus://public.{table}']")
    at = "public.everywhere" if table == "everywhere" else "public.spread"
    for refused in (one.plan, one.run):
        with pytest.raises(InputError, match=f"public.{table}: {at} is distributed by Citus"):
            refused()


def test_a_table_of_the_coordinator_moves(
    ferry: Callable[..., Ferry], extended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_CITUS", extended)
    one = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id int PRIMARY KEY)")
    one.declare("['clickhouse://warehouse.{t}']", source="citus://public.here")
    view = one.run()
    assert view.good, view.errors


def test_hypertables_and_aggregates_are_told_and_moved(
    ferry: Callable[..., Ferry], extended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SERIES", extended)
    one = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id int PRIMARY KEY)")
    for table, says in (("measured", "a hypertable of"), ("hourly", "a continuous aggregate of")):
        one.declare("['clickhouse://warehouse.{t}']", source=f"series://public.{table}")
        assert sum(f"public.{table}: {says} TimescaleDB" in note for note in one.plan().notes) == 1
        view = one.run(recreate=True)
        assert view.good, view.errors
    server, table = PostgresResource(url=extended), TableRef("postgres", "public", "measured")
    with pytest.raises(NoBlocks, match="the parent of other tables"):
        source_of(server.system).blocks(server, table)


def test_a_chunk_that_is_decompressed_ends_a_snapshot(extended: str) -> None:
    server, table = PostgresResource(url=extended), TableRef("postgres", "public", "measured")
    compressed = "UPDATE timescaledb_information.chunks SET is_compressed = {}"
    with server.snapshot(table) as snapshot:
        snapshot.check()
        server.execute(compressed.format("false"))
        with pytest.raises(SourceMoved, match=r"the chunk public\.chunk"):
            snapshot.check()
    server.execute(compressed.format("true"))


def test_the_doctor_tells_of_both(extended: str) -> None:
    reads = [TableRef("postgres", "public", name) for name in ("spread", "measured", "plain")]
    found = findings(PostgresResource(url=extended), Use(reads))
    told = [one for one in found if one.subject == "tables"]
    tables = [(one.state, one.says.partition(" TimescaleDB")[0]) for one in told]
    assert [state for state, _ in tables] == ["problem", "note"]
    assert "public.spread is distributed by Citus" in tables[0][1]
    assert tables[1][1] == "postgres://public.measured is a hypertable of"
