"""What each source type becomes: reads like the type map."""

from __future__ import annotations

import pytest

from tableferry.resources import registry
from tableferry.resources.columns.planner import ColumnOverride, incompatibility, plan_copy
from tableferry.resources.errors import InputError, NamesClash, TypeRefused
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

POSTGRES = TableRef("postgres", "public", "t")
SQLSERVER = TableRef("sqlserver", "dbo", "t")
CLICKHOUSE = TableRef("clickhouse", "warehouse", "t")


def target_of(source, type_, target, **override):
    columns = [Column("id", "integer", False), Column("x", type_)]
    if source is SQLSERVER:
        columns[0] = Column("id", "int", False)
    plan = plan_copy(source, columns, target, key="id", overrides={"x": ColumnOverride(**override)})
    return plan.columns[1].target.type


FROM_POSTGRES = [
    # type, SQL Server, ClickHouse
    ("smallint", "smallint", "Int16"),
    ("integer", "int", "Int32"),
    ("bigint", "bigint", "Int64"),
    ("oid", "bigint", "UInt32"),
    ("numeric(10,2)", "decimal(10,2)", "Decimal(10, 2)"),
    ("numeric(38,38)", "decimal(38,38)", "Decimal(38, 38)"),
    ("numeric(5,-2)", "decimal(7,0)", "Decimal(7, 0)"),
    ("numeric(3,5)", "decimal(5,5)", "Decimal(5, 5)"),
    ("real", "real", "Float32"),
    ("double precision", "float(53)", "Float64"),
    ("money", "decimal(19,2)", "Decimal(19, 2)"),
    ("boolean", "bit", "Bool"),
    ("character(5)", "nvarchar(5)", "String"),
    ("character varying(20)", "nvarchar(20)", "String"),
    ("character varying(4001)", "nvarchar(max)", "String"),
    ("character varying", "nvarchar(max)", "String"),
    ("text", "nvarchar(max)", "String"),
    ("citext", "nvarchar(max)", "String"),
    ("bytea", "varbinary(max)", "String"),
    ("date", "date", "Date32"),
    ("time without time zone", "time(6)", "String"),
    ("time(3) without time zone", "time(3)", "String"),
    ("time with time zone", "nvarchar(24)", "String"),
    ("timestamp without time zone", "datetime2(6)", "DateTime64(6, 'UTC')"),
    ("timestamp(0) without time zone", "datetime2(0)", "DateTime64(0, 'UTC')"),
    ("timestamp with time zone", "datetimeoffset(6)", "DateTime64(6, 'UTC')"),
    ("timestamp(3) with time zone", "datetimeoffset(3)", "DateTime64(3, 'UTC')"),
    ("interval", "nvarchar(80)", "String"),
    ("interval day to second(3)", "nvarchar(80)", "String"),
    ("uuid", "uniqueidentifier", "UUID"),
    ("json", "nvarchar(max)", "String"),
    ("jsonb", "nvarchar(max)", "String"),
    ("xml", "nvarchar(max)", "String"),
    ("inet", "nvarchar(49)", "String"),
    ("cidr", "nvarchar(49)", "String"),
    ("macaddr", "nvarchar(17)", "String"),
    ("enum", "nvarchar(63)", "String"),
    ("int4range", "nvarchar(max)", "String"),
    ("tstzmultirange", "nvarchar(max)", "String"),
    ("bit(8)", "nvarchar(8)", "String"),
    ("bit varying", "nvarchar(max)", "String"),
    ("integer[]", "nvarchar(max)", "Array(Nullable(Int32))"),
    ("text[]", "nvarchar(max)", "Array(Nullable(String))"),
    ("numeric(10,2)[]", "nvarchar(max)", "Array(Nullable(Decimal(10, 2)))"),
    ("timestamp with time zone[]", "nvarchar(max)", "Array(Nullable(DateTime64(6, 'UTC')))"),
    ("enum[]", "nvarchar(max)", "Array(Nullable(String))"),
]


@pytest.mark.parametrize(("type_", "sqlserver", "clickhouse"), FROM_POSTGRES)
def test_postgres_types(type_, sqlserver, clickhouse):
    assert target_of(POSTGRES, type_, SQLSERVER) == sqlserver
    assert target_of(POSTGRES, type_, CLICKHOUSE) == clickhouse


FROM_SQLSERVER = [
    ("tinyint", "UInt8"),
    ("smallint", "Int16"),
    ("int", "Int32"),
    ("bigint", "Int64"),
    ("bit", "Bool"),
    ("decimal(38,10)", "Decimal(38, 10)"),
    ("numeric(9,0)", "Decimal(9, 0)"),
    ("money", "Decimal(19, 4)"),
    ("smallmoney", "Decimal(10, 4)"),
    ("float", "Float64"),
    ("float(24)", "Float32"),
    ("real", "Float32"),
    ("char(3)", "String"),
    ("varchar(max)", "String"),
    ("nchar(3)", "String"),
    ("nvarchar(100)", "String"),
    ("nvarchar(max)", "String"),
    ("text", "String"),
    ("ntext", "String"),
    ("xml", "String"),
    ("binary(3)", "String"),
    ("varbinary(max)", "String"),
    ("image", "String"),
    ("date", "Date32"),
    ("time(7)", "String"),
    ("datetime", "DateTime64(3, 'UTC')"),
    ("smalldatetime", "DateTime64(0, 'UTC')"),
    ("datetime2(3)", "DateTime64(3, 'UTC')"),
    ("datetime2(7)", "DateTime64(7, 'UTC')"),
    ("datetimeoffset(7)", "DateTime64(7, 'UTC')"),
    ("uniqueidentifier", "UUID"),
]


@pytest.mark.parametrize(("type_", "clickhouse"), FROM_SQLSERVER)
def test_sqlserver_types(type_, clickhouse):
    assert target_of(SQLSERVER, type_, CLICKHOUSE) == clickhouse


INTO_POSTGRES = [
    # source, type, target type
    (SQLSERVER, "tinyint", "smallint"),
    (SQLSERVER, "bit", "boolean"),
    (SQLSERVER, "money", "numeric(19,4)"),
    (SQLSERVER, "decimal(38,10)", "numeric(38,10)"),
    (SQLSERVER, "float", "double precision"),
    (SQLSERVER, "char(10)", "character varying(10)"),
    (SQLSERVER, "nvarchar(100)", "character varying(100)"),
    (SQLSERVER, "nvarchar(max)", "text"),
    (SQLSERVER, "xml", "text"),
    (SQLSERVER, "varbinary(8)", "bytea"),
    (SQLSERVER, "time(7)", "time(6) without time zone"),
    (SQLSERVER, "datetime", "timestamp(3) without time zone"),
    (SQLSERVER, "datetime2(7)", "timestamp(6) without time zone"),
    (SQLSERVER, "datetimeoffset(7)", "timestamp(6) with time zone"),
    (SQLSERVER, "uniqueidentifier", "uuid"),
    (POSTGRES, "numeric", "numeric"),
    (POSTGRES, "jsonb", "jsonb"),
    (POSTGRES, "integer[]", "integer[]"),
    (POSTGRES, "timestamp(3) without time zone", "timestamp(3) without time zone"),
    (POSTGRES, "hstore", "hstore"),
]


@pytest.mark.parametrize(("source", "type_", "postgres"), INTO_POSTGRES)
def test_types_into_postgres(source, type_, postgres):
    assert target_of(source, type_, TableRef("postgres", "copies", "t")) == postgres


def test_a_type_of_ones_own_keeps_its_name():
    columns = [
        Column("id", "integer", False),
        Column("mood", "enum", own_type="shop.mood"),
        Column("moods", "enum[]", own_type="shop.mood[]"),
        Column("pair", "composite", own_type="shop.pair"),
        Column("doc", "xml"),
    ]
    plan = plan_copy(POSTGRES, columns, TableRef("postgres", "copies", "t"), key="id")
    found = [(one.target.type, one.binary_sql, one.text_sql) for one in plan.columns[1:]]
    assert found == [
        ("shop.mood", '"mood"', '"mood"'),
        ("shop.mood[]", None, '"moods"'),
        ("shop.pair", None, '"pair"'),
        ("xml", None, '"doc"::text'),
    ]
    actual = Column("mood", "enum", own_type="shop.mood")
    assert incompatibility(registry.system("postgres"), plan.columns[1].target, actual) is None
    other = Column("mood", "enum", own_type="shop.temper")
    assert incompatibility(registry.system("postgres"), plan.columns[1].target, other) == (
        "is shop.temper, which cannot hold every shop.mood"
    )


REFUSED = [
    # source, type, target, what the message offers
    (POSTGRES, "composite", CLICKHOUSE, '{x: {type: "String"}}'),
    (POSTGRES, "composite", SQLSERVER, '{x: {type: "nvarchar(max)"}}'),
    (POSTGRES, "composite[]", CLICKHOUSE, '{x: {type: "String"}}'),
    (POSTGRES, "point", CLICKHOUSE, '{x: {type: "String"}}'),
    (POSTGRES, "numeric", CLICKHOUSE, '{x: {type: "Decimal(76, 10)"}}'),
    (POSTGRES, "numeric", SQLSERVER, '{x: {type: "decimal(38,10)"}}'),
    (POSTGRES, "numeric[]", CLICKHOUSE, '{x: {type: "Array(Nullable(Decimal(76, 10)))"}}'),
    (POSTGRES, "numeric(39,0)", SQLSERVER, '{x: {type: "nvarchar(max)"}}'),
    (POSTGRES, "numeric(77,0)", CLICKHOUSE, '{x: {type: "String"}}'),
    (SQLSERVER, "sql_variant", CLICKHOUSE, 'CAST("x" AS nvarchar(4000))'),
    (SQLSERVER, "hierarchyid", CLICKHOUSE, '"x".ToString()'),
    (SQLSERVER, "geometry", CLICKHOUSE, 'CAST("x" AS nvarchar(max))'),
    (SQLSERVER, "geography", CLICKHOUSE, 'CAST("x" AS nvarchar(max))'),
    (SQLSERVER, "timestamp", CLICKHOUSE, 'CAST(CAST("x" AS bigint) AS nvarchar(20))'),
    (SQLSERVER, "rowversion", CLICKHOUSE, '{x: {type: "String"}}'),
]


@pytest.mark.parametrize(("source", "type_", "target", "offer"), REFUSED)
def test_refused_types_name_what_works(source, type_, target, offer):
    with pytest.raises(TypeRefused) as refused:
        target_of(source, type_, target)
    message = str(refused.value)
    assert f"column 'x' of type {type_}" in message
    assert offer in message
    assert "\n" not in message


@pytest.mark.parametrize(("source", "type_", "target", "offer"), REFUSED)
def test_the_text_that_is_offered_is_taken(source, type_, target, offer):
    text = "String" if target is CLICKHOUSE else "nvarchar(max)"
    assert target_of(source, type_, target, type=text) == text


@pytest.mark.parametrize(
    ("source", "type_", "declared", "casts"),
    [
        (POSTGRES, "double precision", "Float32", True),
        (POSTGRES, "bigint", "Float64", True),
        (POSTGRES, "numeric(10,2)", "Float32", True),
        (SQLSERVER, "datetime2(7)", "Date32", True),
        (POSTGRES, "uuid", "Int64", False),
    ],
)
def test_a_cast_is_named_where_it_would_do(source, type_, declared, casts):
    with pytest.raises(TypeRefused) as refused:
        target_of(source, type_, CLICKHOUSE, type=declared)
    assert ("cast: true" in str(refused.value)) == casts
    assert ("no values in common" in str(refused.value)) != casts


@pytest.mark.parametrize(("exclude", "named"), [((), True), (("line",), False)])
def test_a_row_is_named_by_its_primary_key(exclude, named):
    columns = [Column("id", "int", primary_key=1), Column("line", "int", primary_key=2)]
    source, target = TableRef("sqlserver", "dbo", "t"), TableRef("clickhouse", "w", "t")
    columns.append(Column("x", "datetime2(7)"))
    plan = plan_copy(source, columns, target, key="id", exclude=exclude)
    assert ('CONCAT("id", \', \', "line")' in plan.columns[-1].sql("text")) == named
    assert plan.row_key == ([0, 1] if named else [0])


def test_every_refused_column_is_named_at_once():
    columns = [Column("id", "integer"), Column("a", "point"), Column("b", "numeric")]
    with pytest.raises(TypeRefused, match=r"'a' of type point.*'b' of type numeric"):
        plan_copy(POSTGRES, columns, CLICKHOUSE, key="id")


OVERRIDES = [
    (POSTGRES, "text", SQLSERVER, "nvarchar(400)"),
    (POSTGRES, "bigint", SQLSERVER, "int"),
    (POSTGRES, "numeric", SQLSERVER, "decimal(20,4)"),
    (POSTGRES, "date", CLICKHOUSE, "Int32"),
    (POSTGRES, "date", CLICKHOUSE, "String"),
    (POSTGRES, "timestamp without time zone", CLICKHOUSE, "Int64"),
    (POSTGRES, "timestamp without time zone", CLICKHOUSE, "DateTime64(3, 'UTC')"),
    (POSTGRES, "uuid", SQLSERVER, "nvarchar(36)"),
    (POSTGRES, "integer[]", CLICKHOUSE, "String"),
    (POSTGRES, "integer[]", CLICKHOUSE, "Array(Nullable(Int64))"),
    (SQLSERVER, "datetimeoffset(7)", CLICKHOUSE, "String"),
    (SQLSERVER, "money", CLICKHOUSE, "String"),
    (SQLSERVER, "bigint", CLICKHOUSE, "Decimal(10, 0)"),
]


@pytest.mark.parametrize(("source", "type_", "target", "wanted"), OVERRIDES)
def test_overrides_that_can_hold_values(source, type_, target, wanted):
    assert target_of(source, type_, target, type=wanted) == wanted


BAD_OVERRIDES = [
    (POSTGRES, "text", CLICKHOUSE, "Int32", TypeRefused),
    (POSTGRES, "bytea", SQLSERVER, "int", TypeRefused),
    (POSTGRES, "double precision", CLICKHOUSE, "Float32", TypeRefused),
    (POSTGRES, "timestamp with time zone", SQLSERVER, "datetime2(6)", TypeRefused),
    (POSTGRES, "text", SQLSERVER, "varchar(20)", InputError),
    (POSTGRES, "text", SQLSERVER, "nvarchar(4001)", InputError),
    (POSTGRES, "integer", CLICKHOUSE, "Int31", InputError),
    (
        POSTGRES,
        "timestamp with time zone",
        CLICKHOUSE,
        "DateTime64(6, 'Europe/Berlin')",
        InputError,
    ),
    (SQLSERVER, "datetime2(7)", CLICKHOUSE, "DateTime64(6, 'UTC')", TypeRefused),
]


@pytest.mark.parametrize(("source", "type_", "target", "wanted", "error"), BAD_OVERRIDES)
def test_overrides_that_cannot(source, type_, target, wanted, error):
    with pytest.raises(error, match="'x'"):
        target_of(source, type_, target, type=wanted)


def test_on_overflow_text_makes_the_column_text():
    assert target_of(POSTGRES, "numeric(100,2)", CLICKHOUSE, on_overflow="text") == "String"
    assert target_of(POSTGRES, "date", SQLSERVER, on_overflow="text") == "nvarchar(max)"


def test_names_nullability_and_primary_key():
    columns = [
        Column("b", "integer", False, primary_key=2),
        Column("a", "integer", False, primary_key=1),
        Column("select", "text", True),
        Column("größe %s ]]", "text", False, generated=True),
        Column("arr", "integer[]", True),
    ]
    plan = plan_copy(
        POSTGRES,
        columns,
        CLICKHOUSE,
        key="a",
        overrides={"a": ColumnOverride(rename="first")},
    )
    assert [(column.name, column.nullable) for column in plan.target_columns] == [
        ("b", False),
        ("first", False),
        ("select", True),
        ("größe %s ]]", False),
        ("arr", False),  # ClickHouse has no Nullable(Array)
    ]
    assert plan.primary_key == ("first", "b")
    assert plan.key.target.name == "first"
    assert plan.columns[2].arrow_sql == '"select"'


def test_a_null_opt_in_makes_the_target_nullable():
    columns = [Column("id", "integer", False), Column("d", "date", False)]
    plan = plan_copy(
        POSTGRES, columns, CLICKHOUSE, key="id", overrides={"d": ColumnOverride(on_overflow="null")}
    )
    assert plan.columns[1].target.nullable
    assert plan.columns[1].text_sql is None


def test_low_cardinality_by_opt_in():
    assert target_of(POSTGRES, "text", CLICKHOUSE, low_cardinality=True) == "LowCardinality(String)"
    with pytest.raises(InputError, match="low_cardinality"):
        target_of(POSTGRES, "text", SQLSERVER, low_cardinality=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "nope"}, "no column 'nope'; there are ID, id, x"),
        ({"overrides": {"nope": ColumnOverride()}}, "no column 'nope'"),
        ({"exclude": ["nope"]}, "no column 'nope'"),
        ({"exclude": ["id"]}, "key column 'id' cannot be excluded"),
        (
            {"exclude": ["ID"], "overrides": {"x": ColumnOverride(rename="id")}},
            "both be named 'id'",
        ),
        ({}, "columns 'id' and 'ID' would both be named 'ID'"),
    ],
)
def test_declarations_that_do_not_fit_the_table(arguments, message):
    columns = [Column("id", "integer"), Column("ID", "integer"), Column("x", "text")]
    with pytest.raises(InputError, match=message):
        plan_copy(POSTGRES, columns, SQLSERVER, **{"key": "id", **arguments})


@pytest.mark.parametrize(
    ("source", "target", "types", "existing", "renames"),
    [
        (POSTGRES, CLICKHOUSE, {"_range": "text"}, (), {"_range": "_range_2"}),
        (POSTGRES, CLICKHOUSE, {"_part": "text"}, (), {"_part": "_part_2"}),
        (POSTGRES, CLICKHOUSE, {"_range": "text"}, ("_range",), {}),
        (CLICKHOUSE, CLICKHOUSE, {"_range": "String"}, (), {"_range": "_range_2"}),
        (POSTGRES, CLICKHOUSE, {"p.x": "text[]"}, (), {}),
        (POSTGRES, CLICKHOUSE, {"p": "text", "p.x": "text"}, (), {}),
        (POSTGRES, CLICKHOUSE, {"P": "text", "p.x": "text[]"}, (), {}),
        (POSTGRES, CLICKHOUSE, {"p": "text", "p.x": "text[]"}, (), {"p.x": "p_x"}),
        (
            POSTGRES,
            CLICKHOUSE,
            {"p.x": "text[]", "p.y": "text[]", "p_x": "text"},
            (),
            {"p.x": "p_x_2", "p.y": "p_y"},
        ),
        (POSTGRES, CLICKHOUSE, {"p.x": "text[]", "p.y": "text[]"}, ("p.x", "p.y"), {}),
        (CLICKHOUSE, POSTGRES, {"ö" * 32: "String"}, (), {"ö" * 32: "ö" * 31}),
        (
            CLICKHOUSE,
            POSTGRES,
            {"a" * 63: "String", "a" * 64: "String"},
            (),
            {"a" * 64: f"{'a' * 61}_2"},
        ),
        (POSTGRES, POSTGRES, {"a" * 63: "text"}, (), {}),
        (CLICKHOUSE, SQLSERVER, {"a" * 129: "String"}, (), {"a" * 129: "a" * 128}),
        (CLICKHOUSE, SQLSERVER, {"𝄞" * 65: "String"}, (), {"𝄞" * 65: "𝄞" * 64}),
    ],
)
def test_names_that_a_target_cannot_have(source, target, types, existing, renames):
    integer = "Int32" if source == CLICKHOUSE else "integer"
    columns = [Column("id", integer, False), *(Column(*each) for each in types.items())]
    try:
        plan_copy(source, columns, target, key="id", existing=existing)
    except NamesClash as error:
        assert error.renames == renames
        assert error.problems.keys() == error.reasons.keys() == renames.keys()
        overrides = {name: ColumnOverride(rename=new) for name, new in renames.items()}
        plan_copy(source, columns, target, key="id", overrides=overrides)
    else:
        assert not renames


def test_one_column_and_five_hundred():
    plan = plan_copy(POSTGRES, [Column("id", "bigint", False)], CLICKHOUSE, key="id")
    assert len(plan.columns) == 1
    columns = [Column(f"c{n}", FROM_POSTGRES[n % len(FROM_POSTGRES)][0]) for n in range(500)]
    assert len(plan_copy(POSTGRES, columns, SQLSERVER, key="c1").columns) == 500


EXISTING = [
    # system, planned, actual, the reason's beginning
    ("sqlserver", Column("x", "int"), Column("x", "int"), None),
    ("sqlserver", Column("x", "int"), Column("x", "bigint"), None),
    ("sqlserver", Column("x", "int"), Column("x", "decimal(10,0)"), None),
    ("sqlserver", Column("x", "int"), Column("x", "smallint"), "is smallint"),
    ("sqlserver", Column("x", "int"), Column("x", "int", False), "is NOT NULL"),
    ("sqlserver", Column("x", "int", False), Column("x", "int"), None),
    ("sqlserver", Column("x", "int"), Column("x", "int", generated=True), "is computed"),
    ("sqlserver", Column("x", "float(53)"), Column("x", "float"), None),
    ("sqlserver", Column("x", "nvarchar(20)"), Column("x", "nvarchar(max)"), None),
    ("sqlserver", Column("x", "nvarchar(20)"), Column("x", "nvarchar(19)"), "is nvarchar(19)"),
    ("sqlserver", Column("x", "nvarchar(20)"), Column("x", "varchar(20)"), "is varchar(20)"),
    ("sqlserver", Column("x", "decimal(10,2)"), Column("x", "numeric(11,3)"), None),
    ("sqlserver", Column("x", "decimal(10,2)"), Column("x", "decimal(10,3)"), "is decimal(10,3)"),
    ("sqlserver", Column("x", "datetime2(6)"), Column("x", "datetime2(7)"), None),
    ("sqlserver", Column("x", "datetime2(6)"), Column("x", "datetime"), "is datetime,"),
    ("sqlserver", Column("x", "datetime2(6)"), Column("x", "datetimeoffset"), "is datetimeoffset"),
    ("clickhouse", Column("x", "Int32"), Column("x", "Int64"), None),
    ("clickhouse", Column("x", "Int32"), Column("x", "UInt64"), "is UInt64"),
    ("clickhouse", Column("x", "String"), Column("x", "LowCardinality(String)"), None),
    ("clickhouse", Column("x", "String"), Column("x", "FixedString(3)"), "is FixedString(3)"),
    ("clickhouse", Column("x", "Date32"), Column("x", "Date"), "is Date,"),
    (
        "clickhouse",
        Column("x", "DateTime64(3, 'UTC')"),
        Column("x", "DateTime64(6, 'UTC')"),
        None,
    ),
    (
        "clickhouse",
        Column("x", "DateTime64(3, 'UTC')"),
        Column("x", "DateTime"),
        "is DateTime, which cannot be filled (DateTime64(3, 'UTC') was planned)",
    ),
    ("clickhouse", Column("x", "Array(Nullable(Int32))", False), Column("x", "Int32"), "is Int32"),
]


@pytest.mark.parametrize(("system", "planned", "actual", "reason"), EXISTING)
def test_incompatibility(system, planned, actual, reason):
    why = incompatibility(registry.system(system), planned, actual)
    assert why is None if reason is None else why.startswith(reason)


@pytest.mark.parametrize(
    ("version", "exact"),
    [(None, False), ("24.8.4.13", False), ("26.6.9", False), ("26.7.1", True), ("27.1", True)],
)
@pytest.mark.parametrize(
    ("source", "types"), [(POSTGRES, ("double precision", "real")), (SQLSERVER, ("float", "real"))]
)
def test_floats_are_text_where_clickhouse_reads_them_exactly(source, types, version, exact):
    columns = [Column("id", "int", False), *(Column(type_, type_) for type_ in types)]
    plan = plan_copy(source, columns, CLICKHOUSE, key="id", target_version=version)
    assert [column.text_sql is not None for column in plan.columns] == [True, exact, exact]


@pytest.mark.parametrize(
    ("version", "long_calendar"),
    [
        (None, False),
        ("24.8.4.13", False),
        ("26.8.9.9", False),
        ("26.9.2.1", True),
        ("27.1", True),
        ("?", False),
    ],
)
def test_dates_reach_as_far_as_the_clickhouse_release(version, long_calendar):
    columns = [Column("id", "integer", False), Column("d", "date")]
    plan = plan_copy(POSTGRES, columns, CLICKHOUSE, key="id", target_version=version)
    first = "0001-01-01" if long_calendar else "1900-01-01"
    assert f"\"d\" < date '{first}'" in plan.columns[1].text_sql
