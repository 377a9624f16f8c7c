"""Between PostgreSQL servers: their own hash of a record sees what the canonical form sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import fields, observed
from tableferry.resources.digest.probe import dialect, preferred, shared
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.catalog import unique_by
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
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
    ("text COLLATE {folding}", "'a'", "'A'"),
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
"""Two values of a type that differ, some of which PostgreSQL calls equal or hashes alike."""


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
        folding = f"{name}_folding"
        try:
            connection.execute(
                f"CREATE COLLATION {folding}"
                " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)".encode()
            )
        except psycopg.errors.FeatureNotSupported:
            folding = '"C"'  # the server was built without collations that take texts for equal
        columns = columns.replace("{folding}", folding)
        connection.execute(f"CREATE TABLE {name} (id integer PRIMARY KEY, {columns})".encode())
        for changed in range(-1, len(ALIKE)):
            values = [two[number == changed] for number, (_, *two) in enumerate(ALIKE)]
            row = f"({changed}, {', '.join(values)})"
            connection.execute(f"INSERT INTO {name} VALUES {row}".encode())
        connection.execute(f"CREATE TABLE {name}_copy AS TABLE {name}".encode())
        yield source, target
        connection.execute(f"DROP TABLE {name}, {name}_copy".encode())
        connection.execute(f"DROP COLLATION IF EXISTS {name}_folding".encode())


def test_every_difference_of_every_type_shows_on_both_sides(
    pg_url: str, tables: tuple[TableRef, TableRef]
) -> None:
    source, target = tables
    server = PostgresResource(url=pg_url)
    plan = observed(plan_copy(source, server.columns(source), target, key="id"), server)
    found = []
    for side, digests in zip(("source", "target"), shared(server, server), strict=True):
        assert digests.algorithm == "record"
        digest = RowDigest(digests, fields(plan)[1:], side)  # type: ignore[arg-type]
        table = plan.source if side == "source" else plan.target
        found.append(server.query(f"SELECT id, {digest} FROM public.{table.name} ORDER BY id"))
    assert found[0] == found[1]
    assert len({value for _, value in found[0]}) == len(ALIKE) + 1


INTEGERS = ("-1", "0", "1", "2", "32767")
TEXTS = (
    "",
    " ",
    "a",
    "a ",
    "A",
    "1",
    "1:a",
    "~",
    ",",
    "0",
    "t",
    "\\N",
    "NULL",
    "é",
    "e\u0301",
    "😀",
)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "smallint": st.sampled_from(INTEGERS),
    "integer": st.sampled_from((*INTEGERS, "-2147483648", "2147483647")),
    "bigint": st.sampled_from((*INTEGERS, "4294967295", "4294967296", "-9223372036854775808")),
    "numeric(12,2)": st.sampled_from((*INTEGERS, "0.01", "1.50", "-1.50", "NaN")),
    "numeric": st.sampled_from((*INTEGERS, "1.0", "1.50", "1.5", "1e30")),
    "real": st.sampled_from((*INTEGERS, "-0", "0.1", "NaN", "Infinity", "1e-45")),
    "double precision": st.sampled_from((*INTEGERS, "-0", "0.1", "NaN", "-Infinity", "5e-324")),
    "text": st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "character varying(9)": st.sampled_from(TEXTS),
    "character(3)": st.sampled_from(("", "a", "1", "ab", "~")),
    "boolean": st.sampled_from(("true", "false")),
    "date": st.sampled_from(("0001-01-01", "1970-01-01", "1970-01-02", "infinity", "-infinity")),
    "time without time zone": st.sampled_from(("00:00", "24:00", "00:00:00.000001", "01:00")),
    "timestamp without time zone": st.sampled_from(("1970-01-01", "infinity", "2000-01-01")),
    "timestamp with time zone": st.sampled_from(("1970-01-01Z", "1970-01-01+01", "-infinity")),
    "uuid": st.sampled_from([f"{'0' * 8}-{'0000-' * 3}{'0' * 11}{one}" for one in "01a"]),
    "bytea": st.binary(max_size=3).map(lambda some: "\\x" + some.hex()),
    "interval": st.sampled_from(("0", "1 mon", "30 days", "720:00")),
    "jsonb": st.sampled_from(('{"a": 1}', '{"a": 1.0}', '{"b": 1}', "null", '"1"', "1", "[]")),
    "integer[]": st.sampled_from(("{}", "{1}", "{NULL}", "{1,2}", "{2,1}", "[0:1]={1,2}")),
}
"""By type, texts of values: near each other, equal for PostgreSQL, or alike in texts."""

WIDER = {
    "smallint": "bigint",
    "integer": "numeric(20,0)",
    "numeric(12,2)": "numeric(14,4)",
    "real": "double precision",
    "character varying(9)": "text",
}
"""Types of targets that make the columns go by their canonical forms."""

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Pair:
    """Two tables of the same columns, which differ by little or in the order of their rows."""

    types: tuple[str, ...]
    wider: tuple[bool, ...]
    tables: tuple[list[Row], list[Row]]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    types = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=5))
    types += draw(st.lists(st.sampled_from(types), max_size=2))  # columns that can be exchanged
    row = st.tuples(*(st.none() | VALUES[one] for one in types))
    before = draw(st.lists(row, min_size=1, max_size=6))
    after = list(before)
    match draw(st.sampled_from(("values", "shuffled", "columns", "rows", "order"))):
        case "values":
            at = draw(st.integers(0, len(after) - 1))
            column = draw(st.integers(0, len(types) - 1))
            value = draw(st.none() | VALUES[types[column]])
            after[at] = (*after[at][:column], value, *after[at][column + 1 :])
        case "shuffled":
            columns = zip(*after, strict=True)
            after = [*zip(*(draw(st.permutations(one)) for one in columns), strict=True)]
        case "columns":
            order = sorted(range(len(types)), key=lambda at: (types[at], draw(st.integers(0, 9))))
            places = sorted(range(len(types)), key=lambda at: types[at])
            moved = dict(zip(places, order, strict=True))
            after = [tuple(one[moved[at]] for at in range(len(types))) for one in after]
        case "rows":
            after.append(draw(st.sampled_from(after)))
            if draw(st.booleans()):
                after.pop(0)
        case "order":
            after = draw(st.permutations(after))
    wider = tuple(draw(st.booleans()) and one in WIDER for one in types)
    return Pair(tuple(types), wider, (before, after))


@settings(max_examples=120, deadline=None)
@given(pair=pairs())
def test_tables_have_one_sum_if_and_only_if_their_rows_are_the_same(
    pg_url: str, pair: Pair
) -> None:
    """Held against the other definition, row by row and as sums, on both sides of a hop."""
    server, table = PostgresResource(url=pg_url), TableRef("postgres", "public", "t")
    columns = [Column("id", "bigint", nullable=False)]
    columns += [Column(f"c{at}", type_) for at, type_ in enumerate(pair.types)]
    wider = {
        f"c{at}": ColumnOverride(type=WIDER[pair.types[at]])
        for at, chosen in enumerate(pair.wider)
        if chosen
    }
    plan = plan_copy(table, columns, replace(table, name="copy"), key="id", overrides=wider)
    compared = fields(plan)[1:]
    asked = []
    for side in ("source", "target"):
        selected = ", ".join(
            f"v.c{at}::{field.source.type}::{field.column(side).type} AS c{at}"  # type: ignore[arg-type]
            for at, field in enumerate(compared)
        )
        digests = ", ".join(
            str(RowDigest(dialect(server, algorithm), compared, side))  # type: ignore[arg-type]
            for algorithm in ("record", "md5")
        )
        asked.append(f"SELECT '{side}', n, {digests} FROM (SELECT n, {selected} FROM {{v}}) AS r")
    rows = [*pair.tables[0], *pair.tables[1]]
    literals = [
        ["NULL" if one is None else system("postgres").dialect.literal(one) for one in row]
        for row in rows
    ]
    constants = ", ".join(f"({n}, {', '.join(row)})" for n, row in enumerate(literals))
    names = ", ".join(f"c{at}" for at in range(len(compared)))
    union = " UNION ALL ".join(asked).replace("{v}", "v")
    found = server.query(f"WITH v (n, {names}) AS (VALUES {constants}) {union} ORDER BY 1, 2")
    own, other = ([row[1:] for row in found if row[0] == side] for side in ("source", "target"))
    assert own == other, "both sides"
    by_record, by_text = ([row[at] for row in own] for at in (1, 2))
    assert len({*by_record}) == len({*by_text}) == len({*zip(by_record, by_text, strict=True)})
    first = len(pair.tables[0])
    same = Counter(by_text[:first]) == Counter(by_text[first:])
    assert (sum(by_record[:first]) == sum(by_record[first:])) is same


def test_servers_that_do_not_share_it_take_another_hash(
    pg_url: str, ch_url: str, nothing_known: Callable[[], None]
) -> None:
    server, clickhouse = PostgresResource(url=pg_url), ClickHouseResource(url=ch_url)
    assert {one.algorithm for one in shared(server, clickhouse)} == {"md5"}
    nothing_known()
    older = Older(url=pg_url)
    assert {one.algorithm for one in shared(older, older)} == {"md5"}
    assert preferred(older, system("postgres")).algorithm == "md5"
    nothing_known()
    assert preferred(server, system("postgres")).algorithm == "record"


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
