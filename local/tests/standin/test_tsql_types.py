"""T-SQL's type rules, names and error numbers, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry_local.sqlserver.catalog.tables import ObjectName, object_name, pg_name
from tableferry_local.sqlserver.errors import ErrorContext, PgFailure, SqlError, from_postgres
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import (
    DECIMALS,
    INTEGERS,
    arithmetic,
    as_decimal,
    common_type,
    parse_type,
)
from tableferry_local.sqlserver.types.value import texts_apart

TYPES = [
    ("int", "int"),
    ("INTEGER", "int"),
    ("[nvarchar](MAX)", "nvarchar(max)"),
    ("varchar", "varchar(1)"),
    ("varbinary( 10 )", "varbinary(10)"),
    ("decimal", "decimal(18,0)"),
    ("dec(10)", "decimal(10,0)"),
    ("numeric(38,10)", "numeric(38,10)"),
    ("float(24)", "real"),
    ("float(53)", "float"),
    ("datetime2", "datetime2(7)"),
    ("time(0)", "time(0)"),
    ("rowversion", "timestamp"),
    ("sysname", "nvarchar(128)"),
]


@pytest.mark.parametrize(("text", "expected"), TYPES, ids=[row[0] for row in TYPES])
def test_a_type_is_parsed_with_its_defaults(text: str, expected: str) -> None:
    assert str(parse_type(text)) == expected


def test_in_a_cast_text_has_thirty_characters() -> None:
    assert str(parse_type("varchar", in_cast=True)) == "varchar(30)"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("nothing", 2715),
        ("varchar(8001)", 131),
        ("nvarchar(4001)", 131),
        ("decimal(39)", 2750),
        ("time(8)", 1002),
    ],
)
def test_an_impossible_type_is_an_error(text: str, number: int) -> None:
    with pytest.raises(SqlError) as caught:
        parse_type(text)
    assert caught.value.number == number


# The documentation's table and examples of precision and scale.
RESULTS = [
    ("+", "decimal(10,2)", "decimal(5,4)", "numeric(13,4)"),
    ("-", "int", "decimal(10,2)", "numeric(13,2)"),
    ("*", "decimal(10,2)", "decimal(5,4)", "numeric(16,6)"),
    ("/", "decimal(10,2)", "decimal(5,4)", "numeric(20,8)"),
    ("*", "decimal(38,10)", "decimal(38,10)", "numeric(38,6)"),
    ("/", "decimal(38,10)", "decimal(38,10)", "numeric(38,6)"),
    ("%", "decimal(10,2)", "decimal(5,4)", "numeric(5,4)"),
    ("+", "int", "bigint", "bigint"),
    ("+", "tinyint", "tinyint", "tinyint"),
    ("*", "decimal(5,2)", "float", "float"),
    ("+", "money", "int", "money"),
]


@pytest.mark.parametrize(("operator", "left", "right", "expected"), RESULTS)
def test_arithmetic_has_the_type_of_the_documentation(
    operator: str, left: str, right: str, expected: str
) -> None:
    assert str(arithmetic(operator, parse_type(left), parse_type(right))) == expected


exact = st.one_of(
    st.sampled_from([SqlType(name) for name in INTEGERS]),
    st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda s: SqlType("decimal", precision=p, scale=s))
    ),
)


@given(left=exact, right=exact, operator=st.sampled_from("+-*/%"))
def test_arithmetic_never_leaves_the_decimals(left: SqlType, right: SqlType, operator: str) -> None:
    result = arithmetic(operator, left, right)
    precision, scale = as_decimal(result)
    assert 0 <= scale <= precision <= 38
    assert result.name in {*INTEGERS, *DECIMALS}


@given(left=exact, right=exact)
def test_the_common_type_does_not_depend_on_the_order(left: SqlType, right: SqlType) -> None:
    assert common_type(left, right) == common_type(right, left)


COMMON = [
    ("varchar(5)", "nvarchar(3)", "nvarchar(5)"),
    ("char(5)", "char(5)", "char(5)"),
    ("char(5)", "varchar(max)", "varchar(max)"),
    ("int", "varchar(5)", "int"),
    ("date", "datetime2(3)", "datetime2(3)"),
    ("datetime2(3)", "datetime2(5)", "datetime2(5)"),
    ("binary(4)", "varbinary(2)", "varbinary(4)"),
    ("int", "decimal(5,2)", "decimal(12,2)"),
]


@pytest.mark.parametrize(("left", "right", "expected"), COMMON)
def test_common_types(left: str, right: str, expected: str) -> None:
    assert str(common_type(parse_type(left), parse_type(right))) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["t"], '"db.dbo"."t"'),
        (["Sales", "Order Lines"], '"db.sales"."order lines"'),
        (["Other", "", "t"], '"other.dbo"."t"'),
        (["#t"], '"pg_temp"."#t"'),
        (["tempdb", "", "#T"], '"pg_temp"."#t"'),
        (['a"b'], '"db.dbo"."a""b"'),
    ],
)
def test_a_name_is_completed_and_quoted(parts: list[str], expected: str) -> None:
    assert object_name(parts, "DB").sql == expected


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_every_name_fits_postgresql(name: str) -> None:
    found = pg_name(name)
    assert 1 <= len(found.encode()) <= 63
    assert found == pg_name(name.lower())
    assert found not in ("ctid", "xmin", "tableoid")


def test_long_names_that_differ_at_their_end_stay_apart() -> None:
    assert pg_name("x" * 127 + "a") != pg_name("x" * 127 + "b")


def test_a_linked_server_is_refused() -> None:
    with pytest.raises(SqlError, match="Could not find server 'there'"):
        object_name(["there", "db", "dbo", "t"], "db")


FAILURES = [
    (PgFailure("23505", "", "Key (id)=(1) already exists.", constraint="ix_1"), 2627),
    (PgFailure("23502", "", column="a"), 515),
    (PgFailure("23514", "", constraint="ts_len_1"), 2628),
    (PgFailure("23514", "", constraint="ts_range_1"), 8115),
    (PgFailure("40P01", ""), 1205),
    (PgFailure("40001", ""), 3960),
    (PgFailure("55P03", ""), 1222),
    (PgFailure("22012", ""), 8134),
    (PgFailure("22003", "integer out of range"), 8115),
    (PgFailure("22P02", 'invalid input syntax for type integer: "x"'), 245),
    (PgFailure("22P02", 'invalid input syntax for type numeric: "x"'), 8114),
    (PgFailure("22P02", 'invalid input syntax for type uuid: "x"'), 8169),
    (PgFailure("TS000", "535|16|The datediff function overflowed"), 535),
    (PgFailure("57P01", "terminating connection"), 596),
    (PgFailure("XX000", "anything else"), 50000),
]


@pytest.mark.parametrize(("failure", "number"), FAILURES)
def test_postgresql_errors_get_sql_servers_numbers(failure: PgFailure, number: int) -> None:
    context = ErrorContext("INSERT", lambda _: {"kind": "PRIMARY KEY", "type": "money"})
    assert from_postgres(failure, context).number == number


def test_a_duplicate_key_in_an_index_has_another_number() -> None:
    context = ErrorContext("INSERT", lambda _: {"kind": "unique index"})
    found = from_postgres(PgFailure("23505", "", "Key (a)=(x) already exists."), context)
    assert found.number == 2601
    assert found.message.endswith("The duplicate key value is (x).")


def test_names_print_as_in_messages() -> None:
    assert str(ObjectName("db", "dbo", "t")) == "dbo.t"


def test_only_constant_texts_of_a_statement_become_parameters() -> None:
    sql = """SELECT 'it''s'::text, "a'b'::text", E'\\''::text, 'x'::text[], ''::text, $1::int"""
    assert texts_apart(f"{sql} || 'it''s'::text", 1) == (
        """SELECT $2::text, "a'b'::text", E'\\''::text, 'x'::text[], $3::text, $1::int"""
        " || $2::text",
        ["it's", ""],
    )
