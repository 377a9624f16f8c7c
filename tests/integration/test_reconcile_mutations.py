"""Every damage of `docs.tools.detection_matrix`, done to a real target, and who notices it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from checks.drilldown import drill_down
from checks.in_flight import FLOWN, Flight
from checks.reconcile import COMPARED, reconcile
from checks.verdict import LEVELS, Verdict
from docs.tools.detection_matrix import CLAIMS, Claim
from resources.clickhouse.resource import ClickHouseResource
from resources.clickhouse.target import ClickHouseTarget
from resources.digest.measure import Taken
from resources.endpoint import Endpoint
from resources.keys.range import KeyRange
from resources.plan import CopyPlan
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.sqlserver.target import SqlServerTarget
from resources.tables import TableRef
from resources.target import Target, TargetOptions
from resources.types.conform import conform, schema
from resources.types.planner import plan_copy
from tests.servers import own

pytestmark = pytest.mark.integration

EVERYTHING = KeyRange("integer")
TABLE = own("mutations")
WIDE = "9876543210987654321098765432.1098765432"
LONG = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich"
"""63 characters."""

COLUMNS = {
    "n": ("bigint", "1000 + i"),
    "n0": ("integer", "NULL"),
    "yes": ("boolean", "i % 2 = 0"),
    "yes0": ("boolean", "NULL"),
    "price": ("numeric(12,2)", "i * 10.01"),
    "wide": ("numeric(38,10)", f"{WIDE} - i"),
    "ratio": ("double precision", "0.1 * i"),
    "zero": ("double precision", "0"),
    "tiny": ("double precision", "i * 5e-324"),
    "huge": ("double precision", "1.7976931348623157e308 - i * 1e293"),
    "single": ("real", "0.1::real * i"),
    "note": ("text", f"'{LONG} ' || i"),
    "long": ("text", "repeat('abcdefghij', 1000)"),
    "code": ("varchar(8)", "'abcdefg' || i % 10"),
    "blank": ("text", "'x '"),
    "lines": ("text", "E'a\\nb'"),
    "face": ("text", "'😀 smile'"),
    "nothing": ("text", "''"),
    "unknown": ("text", "NULL"),
    "raw": ("bytea", "decode('00ff1000', 'hex')"),
    "raw0": ("bytea", "''"),
    "day": ("date", "date '2024-02-28' + i"),
    "clock": ("time", "time '23:59:59.999990' - i * interval '1 s'"),
    "moment": ("timestamp", "timestamp '2024-02-28 23:59:59.999990' + i * interval '1 day'"),
    "instant": ("timestamptz", "timestamptz '1901-02-28 23:59:59.999990+00' + i * interval '1 s'"),
    "ident": ("uuid", "('11112222-3333-4444-8555-66667777888' || i % 10)::uuid"),
    "items": ("integer[]", "ARRAY[i, 2, 3]"),
}

CLICKHOUSE = {
    ("rows", "a row is missing"): "DELETE",
    ("rows", "a row is there twice"): "DUPLICATE",
    ("rows", "a row is replaced by a copy of another"): "REPLACE",
    ("rows", "two rows have exchanged a value"): "n = if(id = 5, 1006, 1005) @ id IN (5, 6)",
    ("integer", "NULL instead of a value"): "n = NULL",
    ("integer", "0 instead of NULL"): "n0 = 0",
    ("integer", "the last digit"): "n = n + 1",
    ("integer", "the sign"): "n = -n",
    ("boolean", "the other value"): "yes = NOT yes",
    ("boolean", "false instead of NULL"): "yes0 = false",
    ("decimal, up to 18 digits", "the last digit"): "price = price + toDecimal64('0.01', 2)",
    ("decimal, up to 18 digits", "the sign"): "price = -price",
    ("decimal, 38 digits", "the last digit"): "wide = wide + toDecimal128('0.0000000001', 10)",
    (
        "decimal, 38 digits",
        "the first digit",
    ): "wide = wide - toDecimal128('1' || repeat('0', 27), 10)",
    ("decimal, 38 digits", "the sign"): "wide = -wide",
    ("double", "the last bit"): "ratio = reinterpretAsFloat64(reinterpretAsUInt64(ratio) + 1)",
    ("double", "the sign"): "ratio = -ratio",
    ("double", "-0.0 instead of 0.0"): "zero = toFloat64('-0.0')",
    ("double", "the last bit of the least and of the greatest magnitudes"): (
        "tiny = reinterpretAsFloat64(reinterpretAsUInt64(tiny) + 1), "
        "huge = reinterpretAsFloat64(reinterpretAsUInt64(huge) + 1)"
    ),
    ("real", "the last bit"): "single = reinterpretAsFloat32(reinterpretAsUInt32(single) + 1)",
    ("text", "NULL instead of ''"): "nothing = NULL",
    ("text", "'' instead of NULL"): "unknown = ''",
    ("text", "the first character"): "note = 'X' || substringUTF8(note, 2)",
    (
        "text",
        "upper instead of lower case of the first character",
    ): "code = 'A' || substring(code, 2)",
    ("text", "one code point in the middle"): (
        "note = substringUTF8(note, 1, 32) || 'X' || substringUTF8(note, 34)"
    ),
    ("text", "one code point of a short text"): ("code = replace(code, 'f', 'ф')"),
    (
        "text",
        "one code point elsewhere in a long text",
    ): "note = replace(note, 'Sylter', 'Sylt€r')",
    ("text", "one letter deep inside a text of 10,000"): (
        "long = concat(substring(long, 1, 7000), 'X', substring(long, 7002))"
    ),
    ("text", "two letters exchanged there"): (
        "long = concat(substring(long, 1, 7000), 'ba', substring(long, 7003))"
    ),
    ("text", "a supplementary character (emoji)"): "face = replace(face, '😀', '😁')",
    ("text", "two characters at the front exchanged"): "code = 'ba' || substring(code, 3)",
    ("text", "a trailing blank added"): "code = code || ' '",
    ("text", "a trailing blank lost"): "blank = 'x'",
    ("text", "CR LF instead of LF"): "lines = 'a\\r\\nb'",
    ("bytes", "one bit"): "raw = unhex('00ff1001')",
    ("bytes", "a trailing zero byte lost"): "raw = unhex('00ff10')",
    ("bytes", "NULL instead of no bytes"): "raw0 = NULL",
    ("date", "one day"): "day = day + 1",
    ("time", "one microsecond"): "clock = replace(clock, '999990', '999991')",
    ("timestamp", "one microsecond"): "moment = addMicroseconds(moment, 1)",
    ("timestamp", "one hour"): "moment = addHours(moment, 1)",
    ("timestamp with time zone", "one microsecond"): "instant = addMicroseconds(instant, -1)",
    ("uuid", "one digit"): "ident = toUUID(replace(toString(ident), '2222', '2223'))",
    ("uuid", "both halves exchanged"): (
        "ident = UUIDNumToString(toFixedString("
        "substring(UUIDToNum(ident), 9) || substring(UUIDToNum(ident), 1, 8), 16))::UUID"
    ),
    ("array", "one item"): "items = [5, 2, 4]",
    ("array", "two items exchanged"): "items = [2, 5, 3]",
    ("array", "an item NULL"): "items = [5, NULL, 3]",
    ("array", "an item more"): "items = [5, 2, 3, NULL]",
}
"""Damage -> `column = expression [@ condition]` in the target's SQL; by default done to row 5."""

SQLSERVER = {
    ("rows", "a row is missing"): "DELETE",
    ("rows", "a row is there twice"): "DUPLICATE",
    ("rows", "a row is replaced by a copy of another"): "REPLACE",
    ("rows", "two rows have exchanged a value"): (
        "n = CASE WHEN id = 5 THEN 1006 ELSE 1005 END @ id IN (5, 6)"
    ),
    ("integer", "NULL instead of a value"): "n = NULL",
    ("integer", "0 instead of NULL"): "n0 = 0",
    ("integer", "the last digit"): "n = n + 1",
    ("integer", "the sign"): "n = -n",
    ("boolean", "the other value"): "yes = 1 - yes",
    ("boolean", "false instead of NULL"): "yes0 = 0",
    ("decimal, up to 18 digits", "the last digit"): "price = price + 0.01",
    ("decimal, up to 18 digits", "the sign"): "price = -price",
    ("decimal, 38 digits", "the last digit"): "wide = 9876543210987654321098765427.1098765433",
    ("decimal, 38 digits", "the first digit"): "wide = 8876543210987654321098765427.1098765432",
    ("decimal, 38 digits", "the sign"): "wide = -wide",
    ("double", "the last bit"): "ratio = 0.5000000000000001E0",
    ("double", "the sign"): "ratio = -ratio",
    ("double", "-0.0 instead of 0.0"): "zero = -zero",
    ("double", "the last bit of the least and of the greatest magnitudes"): (
        "tiny = tiny + 5E-324, huge = huge + 1.99584030953472E292"
    ),
    ("real", "the last bit"): "single = CAST(0.50000006E0 AS real)",
    ("text", "NULL instead of ''"): "nothing = NULL",
    ("text", "'' instead of NULL"): "unknown = N''",
    ("text", "the first character"): "note = N'X' + SUBSTRING(note, 2, 100)",
    ("text", "upper instead of lower case of the first character"): (
        "code = N'A' + SUBSTRING(code, 2, 100)"
    ),
    ("text", "one code point in the middle"): (
        "note = SUBSTRING(note, 1, 32) + N'X' + SUBSTRING(note, 34, 100)"
    ),
    ("text", "one code point of a short text"): ("code = REPLACE(code, N'f', N'ф')"),
    ("text", "one code point elsewhere in a long text"): (
        "note = REPLACE(note, N'Sylter', N'Sylt€r')"
    ),
    ("text", "one letter deep inside a text of 10,000"): (
        "long = SUBSTRING(long, 1, 7000) + N'X' + SUBSTRING(long, 7002, 10000)"
    ),
    ("text", "two letters exchanged there"): (
        "long = SUBSTRING(long, 1, 7000) + N'ba' + SUBSTRING(long, 7003, 10000)"
    ),
    ("text", "a supplementary character (emoji)"): "face = N'😁 smile'",
    ("text", "two characters at the front exchanged"): "code = N'ba' + SUBSTRING(code, 3, 100)",
    ("text", "a trailing blank added"): "nothing = N' '",
    ("text", "a trailing blank lost"): "blank = N'x'",
    ("text", "CR LF instead of LF"): "lines = N'a' + NCHAR(13) + NCHAR(10) + N'b'",
    ("bytes", "one bit"): "raw = 0x00ff1001",
    ("bytes", "a trailing zero byte lost"): "raw = 0x00ff10",
    ("bytes", "NULL instead of no bytes"): "raw0 = NULL",
    ("date", "one day"): "day = DATEADD(day, 1, day)",
    ("time", "one microsecond"): "clock = DATEADD(microsecond, 1, clock)",
    ("timestamp", "one microsecond"): "moment = DATEADD(microsecond, 1, moment)",
    ("timestamp", "one hour"): "moment = DATEADD(hour, 1, moment)",
    ("timestamp with time zone", "one microsecond"): (
        "instant = DATEADD(microsecond, -1, instant)"
    ),
    ("uuid", "one digit"): "ident = '11112223-3333-4444-8555-666677778885'",
    ("uuid", "both halves exchanged"): "ident = '85556666-7777-8885-1111-222233334444'",
    ("array", "one item"): "items = N'[5,2,4]'",
    ("array", "two items exchanged"): "items = N'[2,5,3]'",
    ("array", "an item NULL"): "items = N'[5,null,3]'",
    ("array", "an item more"): "items = N'[5,2,3,4]'",
}
"""The same in T-SQL; arrays are JSON texts there."""


@dataclass
class Hop:
    """A loaded and reconciled target, and a copy of it to damage."""

    plan: CopyPlan
    source: Endpoint
    target: Endpoint
    taken: Taken | None = None
    """Of the rows as they streamed."""

    @property
    def damaged(self) -> CopyPlan:
        return replace(self.plan, target=replace(self.plan.target, name=f"{TABLE}_damaged"))


@pytest.fixture(scope="module")
def postgres(pg_url: str) -> Iterator[PostgresResource]:
    resource = PostgresResource(url=pg_url)
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
    values = ", ".join(value for _, value in COLUMNS.values())
    resource.execute(f"DROP TABLE IF EXISTS {TABLE}")
    resource.execute(f"CREATE TABLE {TABLE} (id integer PRIMARY KEY, {declared})")
    resource.execute(f"INSERT INTO {TABLE} SELECT i, {values} FROM generate_series(1, 40) i")
    yield resource
    resource.execute(f"DROP TABLE {TABLE}")


@pytest.fixture(scope="module")
def clickhouse_hop(postgres: PostgresResource, ch_url: str) -> Iterator[Hop]:
    resource = ClickHouseResource(url=ch_url)
    source, target = (
        TableRef("postgres", "public", TABLE),
        TableRef("clickhouse", "warehouse", TABLE),
    )
    plan = plan_copy(source, postgres.columns(source), target, key="id")
    hop = Hop(plan, postgres, resource)
    for name in (TABLE, f"{TABLE}_damaged"):
        resource.execute(f"DROP TABLE IF EXISTS {name}")
    load(hop, ClickHouseTarget(resource))
    resource.execute(f"CREATE TABLE {TABLE}_damaged AS {TABLE} ENGINE = MergeTree ORDER BY id")
    yield hop
    for name in (TABLE, f"{TABLE}_damaged"):
        resource.execute(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def sqlserver_hop(postgres: PostgresResource, mssql_url: str) -> Iterator[Hop]:
    resource = SqlServerResource(url=mssql_url)
    source, target = (
        TableRef("postgres", "public", TABLE),
        TableRef("sqlserver", "dbo", TABLE),
    )
    plan = plan_copy(source, postgres.columns(source), target, key="id")
    hop = Hop(plan, postgres, resource)
    drop = "; ".join(
        f"IF OBJECT_ID('dbo.{name}', 'U') IS NOT NULL DROP TABLE dbo.{name}"
        for name in (TABLE, f"{TABLE}_damaged")
    )
    resource.execute(drop)
    load(hop, SqlServerTarget(resource))
    SqlServerTarget(resource).prepare(replace(hop.damaged, primary_key=()), TargetOptions())
    yield hop
    resource.execute(drop)


@pytest.fixture(scope="module")
def second_hop(sqlserver_hop: Hop, ch_url: str) -> Iterator[Hop]:
    """From SQL Server on to ClickHouse, under another name."""
    resource, source = ClickHouseResource(url=ch_url), sqlserver_hop.target
    target = TableRef("clickhouse", "warehouse", f"{TABLE}_second")
    plan = plan_copy(
        sqlserver_hop.plan.target, source.columns(sqlserver_hop.plan.target), target, key="id"
    )
    resource.execute(f"DROP TABLE IF EXISTS {target.name}")
    hop = Hop(plan, source, resource)
    load(hop, ClickHouseTarget(resource))
    yield hop
    resource.execute(f"DROP TABLE {target.name}")


def load(hop: Hop, target: Target) -> None:
    options = TargetOptions()
    target.prepare(hop.plan, options)
    with (
        target.attempt(hop.plan, EVERYTHING, options, owner="test", data_version="1") as attempt,
        hop.source.read_arrow(hop.plan.select(EVERYTHING, "arrow")) as reader,
    ):
        flight = Flight(hop.plan, hop.source, hop.target, "arrow")
        batches = flight.watched(conform(batch, hop.plan, {}) for batch in reader)
        attempt.load_arrow(batches, schema(hop.plan))
        attempt.finalise()
    hop.taken = flight.taken()


def damage_clickhouse(resource: Endpoint, how: str) -> None:
    table = f"{TABLE}_damaged"
    resource.execute(f"TRUNCATE TABLE {table}")
    resource.execute(f"INSERT INTO {table} SELECT * FROM {TABLE}")
    if how == "DUPLICATE":
        resource.execute(f"INSERT INTO {table} SELECT * FROM {TABLE} WHERE id = 5")
    if how in ("DELETE", "REPLACE"):
        resource.execute(f"DELETE FROM {table} WHERE id = 5")
    if how == "REPLACE":
        resource.execute(f"INSERT INTO {table} SELECT * FROM {TABLE} WHERE id = 6")
    if "=" in how:
        change, _, condition = how.partition(" @ ")
        resource.execute(
            f"ALTER TABLE {table} UPDATE {change} WHERE {condition or 'id = 5'} "
            "SETTINGS mutations_sync = 2"
        )


def damage_sqlserver(resource: Endpoint, how: str) -> None:
    table, columns = f"dbo.{TABLE}_damaged", ", ".join(f"[{name}]" for name in ("id", *COLUMNS))
    copy = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM dbo.{TABLE}"
    resource.execute(f"TRUNCATE TABLE {table}")
    resource.execute(copy)
    if how == "DUPLICATE":
        resource.execute(f"{copy} WHERE id = 5")
    if how in ("DELETE", "REPLACE"):
        resource.execute(f"DELETE FROM {table} WHERE id = 5")
    if how == "REPLACE":
        resource.execute(f"{copy} WHERE id = 6")
    if "=" in how:
        change, _, condition = how.partition(" @ ")
        resource.execute(f"UPDATE {table} SET {change} WHERE {condition or 'id = 5'}")


def test_every_claim_has_its_damage() -> None:
    assert SQLSERVER.keys() == CLICKHOUSE.keys()
    assert CLICKHOUSE.keys() == {(claim.subject, claim.damage) for claim in CLAIMS}


@pytest.mark.parametrize("name", ["clickhouse_hop", "sqlserver_hop", "second_hop"])
def test_an_undamaged_target_agrees(name: str, request: pytest.FixtureRequest) -> None:
    hop: Hop = request.getfixturevalue(name)
    for level in LEVELS:
        verdict = reconcile(hop.plan, hop.source, hop.target, EVERYTHING, level)
        assert verdict.passed, (level, verdict.disagreeing, verdict)
        assert verdict.source["rows"] == verdict.target["rows"] == 40
    assert in_flight(hop, hop.plan).passed


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.subject}: {claim.damage}")
def test_damage_in_clickhouse(clickhouse_hop: Hop, claim: Claim) -> None:
    how = CLICKHOUSE[claim.subject, claim.damage]
    damage_clickhouse(clickhouse_hop.target, how)
    assert_noticed(clickhouse_hop, claim, how)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.subject}: {claim.damage}")
def test_damage_in_sqlserver(sqlserver_hop: Hop, claim: Claim) -> None:
    how = SQLSERVER[claim.subject, claim.damage]
    damage_sqlserver(sqlserver_hop.target, how)
    assert_noticed(sqlserver_hop, claim, how)


def assert_noticed(hop: Hop, claim: Claim, how: str) -> None:
    """By every level that is claimed to, in the right columns and nowhere else."""
    plan = hop.damaged
    for level in LEVELS:
        verdict = reconcile(plan, hop.source, hop.target, EVERYTHING, level)
        assert verdict.passed != claim.caught_by(level), (level, verdict)
        if not verdict.passed and level == "checksum":
            assert "digest" in verdict.disagreeing
        if not verdict.passed and "hash" in level and "=" in how:
            assert verdict.disagreeing == damaged_columns(how), level
    assert in_flight(hop, plan).passed != claim.caught_by("checksum")
    assert_found(hop, plan, how)


def in_flight(hop: Hop, plan: CopyPlan) -> Verdict:
    """What is in the target against the rows as they streamed."""
    verdict = reconcile(plan, hop.source, hop.target, EVERYTHING, "in_flight", taken=hop.taken)
    assert verdict.metadata[COMPARED] == FLOWN
    return verdict


def damaged_columns(how: str) -> tuple[str, ...]:
    return ("tiny", "huge") if how.startswith("tiny") else (how.partition(" = ")[0],)


def assert_found(hop: Hop, plan: CopyPlan, how: str) -> None:
    """The drill-down names the rows and the column."""
    found = drill_down(plan, hop.source, hop.target, EVERYTHING)
    shape = (found.missing_in_target, found.extra_in_target, found.different)
    assert found.examples[0].key == "5"
    if "=" not in how:
        assert shape == {"DELETE": (1, 0, 0), "DUPLICATE": (0, 1, 0), "REPLACE": (1, 1, 0)}[how]
        return
    columns = damaged_columns(how)
    assert shape == (0, 0, 2 if "@" in how else 1)
    assert tuple(found.by_column) == columns
    example = found.examples[0]
    assert (example.kind, example.column) == ("different", columns[0])
    assert example.source != example.target
