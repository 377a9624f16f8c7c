"""How declared types are read for the comparison."""

from __future__ import annotations

import itertools
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest

from tableferry.checks.verdict import Verdict, with_limits
from tableferry.resources import registry
from tableferry.resources.columns.conversions import NoConversion
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.fields import Field, Kind, Side
from tableferry.resources.digest.fields import (
    DigestedType,
    all_fields,
    declared,
    fields,
    not_compared,
    relaxed_fields,
)
from tableferry.resources.errors import InputError
from tableferry.resources.files import digest as in_files
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


@pytest.mark.parametrize(
    ("system", "text", "expected"),
    [
        ("postgres", "bigint", DigestedType("integer", "bigint")),
        ("postgres", "numeric(12,2)", DigestedType("decimal", "numeric", 12, 2)),
        ("postgres", "numeric", DigestedType("decimal", "numeric", None, 0)),
        ("postgres", "money", DigestedType("decimal", "money", 19, 2)),
        ("postgres", "character(3)", DigestedType("text", "character", 3, padded=True)),
        ("postgres", "character varying(8)", DigestedType("text", "character varying", 8)),
        (
            "postgres",
            "timestamp(3) with time zone",
            DigestedType("timestamp", "timestamp with time zone", None, 3, zoned=True),
        ),
        (
            "postgres",
            "timestamp without time zone",
            DigestedType("timestamp", "timestamp without time zone", None, 6),
        ),
        (
            "postgres",
            "time without time zone",
            DigestedType("time", "time without time zone", None, 6),
        ),
        ("postgres", "time with time zone", DigestedType(None, "time with time zone")),
        ("postgres", "integer[]", DigestedType("array", "integer[]")),
        ("postgres", "interval", DigestedType(None, "interval")),
        ("sqlserver", "nvarchar(max)", DigestedType("text", "nvarchar")),
        ("sqlserver", "nchar(5)", DigestedType("text", "nchar", 5, padded=True)),
        ("sqlserver", "decimal(38,10)", DigestedType("decimal", "decimal", 38, 10)),
        ("sqlserver", "decimal", DigestedType("decimal", "decimal", 18, 0)),
        ("sqlserver", "smallmoney", DigestedType("decimal", "smallmoney", 10, 4)),
        ("sqlserver", "datetime2(7)", DigestedType("timestamp", "datetime2", None, 7)),
        ("sqlserver", "datetime", DigestedType("timestamp", "datetime", None, 3)),
        (
            "sqlserver",
            "datetimeoffset(6)",
            DigestedType("timestamp", "datetimeoffset", None, 6, zoned=True),
        ),
        ("sqlserver", "varbinary(16)", DigestedType("bytes", "varbinary", 16)),
        ("clickhouse", "Decimal(38, 10)", DigestedType("decimal", "Decimal", 38, 10)),
        ("clickhouse", "Decimal64(4)", DigestedType("decimal", "Decimal64", 18, 4)),
        ("clickhouse", "LowCardinality(Nullable(String))", DigestedType("text", "String")),
        (
            "clickhouse",
            "DateTime64(6, 'UTC')",
            DigestedType("timestamp", "DateTime64", None, 6, zoned=True),
        ),
        ("clickhouse", "FixedString(3)", DigestedType("bytes", "FixedString", 3)),
        ("clickhouse", "Array(Nullable(Int32))", DigestedType("array", "Array")),
        ("clickhouse", "UInt256", DigestedType("decimal", "UInt256", 76, 0)),
    ],
)
def test_declared(system: str, text: str, expected: DigestedType) -> None:
    assert declared(registry.system(system).types, text) == expected


def column(source: str, target: str, arrow: pa.DataType, policy: str = "refuse") -> ColumnPlan:
    return ColumnPlan(Column("x", source), Column("y", target), 'f("x")', arrow, on_overflow=policy)  # type: ignore[arg-type]


def plan_of(one: ColumnPlan) -> CopyPlan:
    return CopyPlan(
        TableRef("postgres", "public", "t"), TableRef("clickhouse", "warehouse", "t"), (one,), one
    )


@pytest.mark.parametrize(
    ("source", "target", "arrow", "kind", "rendered"),
    [
        ("bytea", "String", pa.binary(), "bytes", False),
        ("bytea", "String", pa.string(), "text", True),
        ("time without time zone", "String", pa.string(), "time", False),
        ("interval", "String", pa.string(), "text", True),
        ("text", "String", pa.string(), "text", False),
        ("integer", "String", pa.string(), "text", True),
        ("integer", "Decimal(20, 0)", pa.decimal128(20, 0), "decimal", False),
        ("date", "Int32", pa.int32(), "date", False),
    ],
)
def test_what_is_compared_follows_what_travels(
    source: str, target: str, arrow: pa.DataType, kind: str, rendered: bool
) -> None:
    (field,) = fields(plan_of(column(source, target, arrow)))
    assert (field.name, field.kind) == ("y", kind)
    assert (field.rendered is not None) is rendered


def test_arrays_are_compared_by_their_items() -> None:
    (field,) = fields(
        plan_of(column("numeric(10,2)[]", "Array(Nullable(Decimal(10, 2)))", pa.list_(pa.string())))
    )
    assert field.kind == "array"
    assert field.item is not None
    assert (field.item.kind, field.item.source.type, field.item.scale) == (
        "decimal",
        "numeric(10,2)",
        2,
    )


def test_a_column_that_the_transfer_may_change_is_compared_as_it_makes_it() -> None:
    key = ColumnPlan(Column("k", "integer"), Column("k", "Int32"), '"k"', pa.int32())
    plan = plan_of(column("integer", "Int16", pa.int16(), "clamp"))
    plan = replace(plan, columns=(key, *plan.columns), key=key)
    assert [field.name for field in fields(plan)] == ["k", "y"]
    assert not_compared(plan) == ()
    *_, raw = all_fields(plan)
    (relaxed,) = relaxed_fields(plan)
    postgres, clickhouse = (registry.system(one).dialect for one in ("postgres", "clickhouse"))
    assert raw.value("source", postgres) == '"x"', "any change of it changes the fingerprint"
    limits = relaxed.value("source", postgres)
    assert "-32768" in limits and "32767" in limits
    assert relaxed.value("target", clickhouse) == raw.value("target", clickhouse)
    # a table that is there may have a wider column; what fits is what was planned
    wider = replace(plan.columns[1], target=Column("y", "Int64"), fitted="Int16")
    (relaxed,) = relaxed_fields(replace(plan, columns=(key, wider)))
    assert relaxed.value("source", postgres) == limits


def test_limits_that_t_sql_cannot_tell_are_not_compared() -> None:
    source, target = (TableRef("sqlserver", "dbo", name) for name in ("s", "t"))
    columns = [Column("id", "int", False), Column("x", "nvarchar(40)")]
    override = ColumnOverride(type="nvarchar(10)", on_overflow="clamp")
    plan = plan_copy(source, columns, target, key="id", overrides={"x": override}, exclude=())
    assert not_compared(plan) == ("x",)
    passed = Verdict("full_hash", True, {"rows": 3}, {"rows": 3}, 0.1)
    verdict = with_limits(passed, plan, "full_hash", {})
    assert verdict.summary() == (
        "full_hash passed: 3 rows agree; not compared: x (on_overflow: clamp)"
    )
    assert verdict.metadata == {"not_compared (on_overflow)": "x"}


POSTGRES_ITEMS = [
    "smallint", "bigint", "numeric(10,2)", "real", "boolean", "text", "character(5)", "bytea",
    "date", "time", "timestamp", "timestamptz", "uuid", "jsonb",
]  # fmt: skip
FILES_ITEMS = [
    "TINYINT", "UBIGINT", "HUGEINT", "DECIMAL(10,2)", "FLOAT", "BOOLEAN", "VARCHAR", "BLOB",
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "UUID", "INTEGER[]", "STRUCT(a INTEGER)",
]  # fmt: skip
CLICKHOUSE_ITEMS = [
    "Int8", "UInt64", "Decimal(10, 2)", "Float32", "Bool", "String", "FixedString(3)", "Date",
    "Date32", "DateTime64(3, 'UTC')", "UUID",
]  # fmt: skip
LISTS = {
    "postgres": [f"{item}[]" for item in POSTGRES_ITEMS],
    "files": [*(f"{item}[]" for item in FILES_ITEMS), "INTEGER[3]", "MAP(VARCHAR, INTEGER[])"],
    "clickhouse": [
        f"Array({item})"
        for plain in CLICKHOUSE_ITEMS
        for item in (plain, f"Nullable({plain})", f"Array({plain})", f"Tuple(Array({plain}))")
    ],
    "sqlserver": ["nvarchar(10)"],
}
SIDES: tuple[Side, Side] = ("source", "target")
KEYS = {"postgres": "integer", "files": "INTEGER", "clickhouse": "Int32"}


@pytest.mark.parametrize("source", KEYS)
@pytest.mark.parametrize("target", LISTS)
def test_every_list_with_a_policy_is_compared_or_refused(source: str, target: str) -> None:
    planned = 0
    for source_type, target_type in itertools.product(LISTS[source], (None, *LISTS[target])):
        columns = [Column("id", KEYS[source], False), Column("x", source_type)]
        for policy in ("null", "clamp"):
            override = ColumnOverride(type=target_type, on_overflow=policy)
            tables = TableRef(source, "a", "b"), TableRef(target, "c", "d")
            try:
                plan = plan_copy(
                    tables[0], columns, tables[1], key="id", overrides={"x": override},
                    target_version="26.9",
                )  # fmt: skip
            except (InputError, NoConversion):
                continue
            planned += 1
            assert not_compared(plan) == ()
            for field in fields(plan):
                for side, table in zip(SIDES, tables, strict=True):
                    table.system.digest.framed(field, field.column(side), "x", "md5", "")
    # ClickHouse's lists leave it as texts
    assert planned or source == "clickhouse"


@pytest.mark.parametrize("source", ["INTEGER[]", "VARCHAR[]", "DECIMAL(9,2)[]"])
def test_a_list_whose_elements_all_fit_takes_no_policy(source: str) -> None:
    columns = [Column("id", "INTEGER", False), Column("x", source)]
    with pytest.raises(InputError, match="column 'x': no value can overflow"):
        plan_copy(
            TableRef("files", "a", "b"),
            columns,
            TableRef("files", "c", "d"),
            key="id",
            overrides={"x": ColumnOverride(on_overflow="clamp")},
        )


@pytest.mark.parametrize("scale", [6, 7])
@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_infinite_times_of_files_are_neither_null_nor_without_an_order(
    type_: str, scale: int
) -> None:
    column = Column("t", type_)
    kind: Kind = "date" if type_ == "DATE" else "timestamp"
    field = Field("t", kind, column, column, scale=scale)
    form = in_files.framed(field, column, "t", "md5", "plain")
    number = in_files.whole(field, column, "t")
    sql = (
        f"SELECT {form}, {number} FROM (SELECT unnest(['infinity', '2024-01-01', '-infinity', "
        f"NULL])::{type_} AS t) ORDER BY t"
    )
    rows = duckdb.sql(sql).fetchall()
    assert [form for form, _ in rows if not str(form)[0].isdigit()] == [
        "-infinity",
        "infinity",
        None,
    ]
    assert rows[0][1] < rows[1][1] < rows[2][1] < 2**63
