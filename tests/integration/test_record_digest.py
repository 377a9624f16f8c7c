"""Between PostgreSQL servers: their own hash of a record sees what the canonical form sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import fields, observed
from tableferry.resources.digest.probe import preferred, shared
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.catalog import unique_by
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.planner import plan_copy
from tests.servers import own

pytestmark = pytest.mark.integration

ALIKE = [
    ("bigint", "-1", "4294967295"),
    ("integer", "NULL", "0"),
    ("double precision", "0", "'-0'"),
    ("real", "'NaN'", "NULL"),
    ("numeric", "1.5", "1.50"),
    ("numeric(12,2)", "1.50", "-1.50"),
    ("text", "''", "NULL"),
    ("character varying(5)", "'a'", "'a '"),
    ("character(3)", "'a'", "'b'"),
    ("boolean", "true", "false"),
    ("date", "'-infinity'", "'infinity'"),
    ("time", "'00:00'", "'24:00'"),
    ("timestamp", "'2020-01-01'", "'infinity'"),
    ("timestamptz", "'2020-01-01 00:00:00.000001Z'", "'2020-01-01Z'"),
    ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'", "'00112233-4455-6677-8899-aabbccddeefe'"),
    ("bytea", "'\\x00'", "'\\x0000'"),
    ("interval", "'1 mon'", "'30 days'"),
    ("inet", "'10.0.0.1'", "'10.0.0.1/31'"),
    ("jsonb", "'{\"a\": 1}'", "'{\"a\": 1.0}'"),
    ("bytea[]", "ARRAY['\\x00'::bytea]", "ARRAY[NULL::bytea]"),
    ("integer[]", "'{1,2}'", "'[0:1]={1,2}'"),
]
"""Of a type, two values that differ, some of which PostgreSQL calls equal or hashes alike."""


class Older(PostgresResource):
    """A server without the hash, as before version 14."""

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        if "hash_record_extended" in sql:
            raise StatementFailed("postgres", "function hash_record_extended does not exist")
        return super().query(sql, snapshot=snapshot)


@pytest.fixture
def tables(pg_url: str) -> Iterator[tuple[TableRef, TableRef]]:
    """A table with a row of the first values, and per type one with the other value; its copy."""
    name = own("alike")
    source, target = (TableRef("postgres", "public", name + suffix) for suffix in ("", "_copy"))
    columns = ", ".join(f"c{number} {type_}" for number, (type_, *_) in enumerate(ALIKE))
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, {columns})".encode())
        for changed in range(-1, len(ALIKE)):
            values = [two[number == changed] for number, (_, *two) in enumerate(ALIKE)]
            row = f"({changed}, {', '.join(values)})"
            connection.execute(f"INSERT INTO {name} VALUES {row}".encode())
        connection.execute(f"CREATE TABLE {name}_copy AS TABLE {name}".encode())
        yield source, target
        connection.execute(f"DROP TABLE {name}, {name}_copy".encode())


def test_every_difference_of_every_type_shows_on_both_sides(
    pg_url: str, tables: tuple[TableRef, TableRef]
) -> None:
    source, target = tables
    server = PostgresResource(url=pg_url)
    plan = observed(plan_copy(source, server.columns(source), target, key="id"), server)
    found = []
    for side, dialect in zip(("source", "target"), shared(server, server), strict=True):
        assert dialect.algorithm == "record"
        digest = RowDigest(dialect, fields(plan)[1:], side)  # type: ignore[arg-type]
        table = plan.source if side == "source" else plan.target
        found.append(server.query(f"SELECT id, {digest} FROM public.{table.name} ORDER BY id"))
    assert found[0] == found[1]
    assert len({value for _, value in found[0]}) == len(ALIKE) + 1


def test_servers_that_do_not_share_it_take_another_hash(
    pg_url: str, ch_url: str, nothing_known: Callable[[], None]
) -> None:
    server, clickhouse = PostgresResource(url=pg_url), ClickHouseResource(url=ch_url)
    assert {one.algorithm for one in shared(server, clickhouse)} == {"md5"}
    assert {one.algorithm for one in shared(server, server, streamed=True)} == {"md5"}
    nothing_known()
    older = Older(url=pg_url)
    assert {one.algorithm for one in shared(older, older)} == {"md5"}
    assert preferred(older, "postgres").algorithm == "md5"
    nothing_known()
    assert preferred(server, "postgres").algorithm == "record"


def test_only_a_primary_key_over_the_whole_table_is_believed(
    pg_url: str, tables: tuple[TableRef, TableRef]
) -> None:
    source, target = tables
    server = PostgresResource(url=pg_url)
    assert unique_by(server, source, ["id"]) == f"{source.name}_pkey"
    assert unique_by(server, source, ["c0"]) is None
    assert unique_by(server, target, ["id"]) is None
    server.execute(f"CREATE TABLE public.{source.name}_heir () INHERITS (public.{source.name})")
    assert unique_by(server, source, ["id"]) is None
    server.execute(f"DROP TABLE public.{source.name}_heir")
