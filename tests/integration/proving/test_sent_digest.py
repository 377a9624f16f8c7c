"""The bytes of COPY have the digest that the server computes: the client need not ask for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tableferry.resources import registry
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.digest import native
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import all_fields
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.digest.probe import dialect
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.source import PostgresSource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.constants import TypePair, plan_of, rows_of, table_of
from tests.integration.support import looking
from tests.servers import own

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(native.extension() is None, reason="the extension was not built"),
]

NAME = own("sent")
SOURCE, TARGET = TableRef("postgres", "public", NAME), TableRef("clickhouse", "warehouse", NAME)
EVERYTHING = KeyRange("integer")
NEW = "26.9"
"""A release that reads floats of text."""

EDGES: dict[str, list[str]] = {
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "boolean": ["true", "false"],
    "numeric(12,2)": ["-0.01", "9999999999.99", "NaN", "0"],
    "numeric(10,0)": ["-5"],
    "money": ["-0.05", "92233720368547758.07"],
    "double precision": [
        *("0.1", "-0.0", "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity"),
        *("1e22", "1e23", "9007199254740993", "123456789.123456789", "2.2250738585072014e-308"),
    ],
    "real": ["0.1", "-0.0", "1e-45", "16777217", "NaN", "-Infinity", "3.4028235e38"],
    "date": [
        *("infinity", "-infinity", "4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "1900-02-28"),
        *("2000-02-29", "9999-12-31", "10000-01-01", "5874897-12-31"),
    ],
    "time": ["00:00:00", "24:00:00", "23:59:59.999999", "12:00:00.5"],
    "time(3)": ["01:02:03.004"],
    "timestamp": [
        *("infinity", "-infinity", "4714-11-24 00:00:00 BC", "0044-03-15 12:00:00.5 BC"),
        *("1969-12-31 23:59:59.999999", "10000-01-01 00:00:00", "294247-01-10 04:00:54.775806"),
        *("294247-01-10 04:00:54.775807", "294276-12-31 23:59:59.999999"),
    ],
    "timestamptz": [
        *("infinity", "0044-03-15 12:00:00+05:30 BC", "1970-01-01 00:00:00.1+00"),
        *("294276-12-31 23:59:59.999999+00", "2024-07-01 00:00:00-08"),
    ],
    "uuid": ["0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0"],
    "text": ["", "\\", "\\N", "a\tb\nc\rd", "\b\f\v", " a  ", "ä€😀", "~,:", "x" * 70],
    "character varying(5)": ["a ", ""],
    "char(5)": ["x", "ä \t", ""],
    "bpchar": ["x  ", "", " y"],
    "citext": ["Ab"],
    "name": ["n"],
    "jsonb": ['{"a": "\\\\ \\n"}'],
    "interval": ["-1 day 00:00:01.5", "178000000 years"],
    "inet": ["10.0.0.1/8"],
}
"""By type, what a target refuses as well."""


def both_ways(resource: PostgresResource, plan: CopyPlan) -> None:
    """Compare the digest of what the server sends with the one that it computes."""
    digest = RowDigest(dialect(resource, "md5"), all_fields(plan), "source")
    layout = native.layout(plan, digest)
    assert layout is not None, [
        (field.source.type, field.kind)
        for field, column in zip(digest.fields, plan.columns, strict=True)
        if PostgresSource().sent_form(field, column.text_sql) is None
    ]
    sent = native.SentRows(layout)
    with resource.read_text(plan.select(EVERYTHING, "text")) as chunks:
        for chunk in chunks:
            sent.add(chunk)
    sent.end()
    grouped = Grouped.by_range([EVERYTHING], plan.key.source, registry.system("postgres"))
    asked = measure(resource, plan.source, "source", grouped, digest=digest)[0]
    assert (sent.rows, str(sent.total)) == (asked["rows"], asked["digest"])


@pytest.mark.parametrize("type_", EDGES)
def test_edges_have_the_digest_that_the_server_computes(pg_url: str, type_: str) -> None:
    resource = PostgresResource(url=pg_url)
    if type_ == "citext":
        looking.ask_postgres(pg_url, "CREATE EXTENSION IF NOT EXISTS citext")
    values = ", ".join(
        f"({number}, {literal(value)}::{type_})"
        for number, value in enumerate(EDGES[type_], start=1)
    )
    looking.ask_postgres(
        pg_url,
        f"CREATE TABLE public.{NAME} (n int PRIMARY KEY, x {type_})",
        f"INSERT INTO public.{NAME} VALUES {values}, (0, NULL)",
    )
    try:
        plan = plan_copy(SOURCE, resource.columns(SOURCE), TARGET, key="n", target_version=NEW)
        both_ways(resource, replace(plan, columns=tuple(map(unguarded, plan.columns))))
    finally:
        looking.ask_postgres(pg_url, f"DROP TABLE public.{NAME}")


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def unguarded(column: ColumnPlan) -> ColumnPlan:
    """The column without what refuses values that the target cannot hold."""
    sql = str(column.text_sql)
    if sql.startswith("CASE WHEN"):
        sql = sql.rpartition(" ELSE ")[2].removesuffix(" END")
    return replace(column, text_sql=sql)


PAIRS = [
    TypePair("bigint", "Int64"),
    TypePair("integer", "Int64"),
    TypePair("numeric(18,4)", "Decimal(38, 6)"),
    TypePair("numeric(18,4)", "String"),
    TypePair("double precision", "Float64"),
    TypePair("real", "Float32"),
    TypePair("real", "Float64"),
    TypePair("text", "String"),
    TypePair("character(10)", "String"),
    TypePair("character varying(40)", "String"),
    TypePair("date", "Date32"),
    TypePair("timestamp without time zone", "DateTime64(6, 'UTC')"),
    TypePair("timestamp(3) without time zone", "DateTime64(3, 'UTC')"),
    TypePair("timestamp with time zone", "DateTime64(7, 'UTC')"),
    TypePair("timestamp with time zone", "String"),
    TypePair("time without time zone", "String"),
    TypePair("time(3) without time zone", "String"),
    TypePair("uuid", "UUID"),
    TypePair("uuid", "String"),
    TypePair("boolean", "Bool"),
    TypePair("boolean", "String"),
]


def test_the_values_that_wires_are_probed_with(pg_url: str) -> None:
    resource = PostgresResource(url=pg_url)
    hop = plan_copy(SOURCE, [Column("n", "integer", False)], TARGET, key="n", target_version=NEW)
    plan = plan_of(PAIRS, hop)
    rows, _ = rows_of(plan)
    assert len(rows) > 10
    looking.ask_postgres(
        pg_url,
        f"CREATE TABLE public.{NAME} AS SELECT * FROM {table_of(plan, rows)}".replace("%", "%%"),
    )
    try:
        both_ways(resource, replace(plan, source=SOURCE))
    finally:
        looking.ask_postgres(pg_url, f"DROP TABLE public.{NAME}")


@pytest.mark.parametrize(
    ("source", "target"), [("bytea", "String"), ("integer[]", "String"), ("boolean", "UInt8")]
)
def test_kinds_that_are_not_sent_in_a_form_are_asked_of_the_server(
    pg_url: str, source: str, target: str
) -> None:
    resource = PostgresResource(url=pg_url)
    columns = [Column("n", "integer", False), Column("x", source)]
    into = {"x": ColumnOverride(type=target)}
    plan = plan_copy(SOURCE, columns, TARGET, key="n", overrides=into, target_version=NEW)
    digest = RowDigest(dialect(resource, "md5"), all_fields(plan), "source")
    assert native.layout(plan, digest) is None
    by_sha = RowDigest(dialect(resource, "sha256"), all_fields(plan)[:1], "source")
    assert native.layout(replace(plan, columns=plan.columns[:1]), by_sha) is None
