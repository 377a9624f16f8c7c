"""What `on_overflow` makes of values: the source's SQL and the export come to the same, and what a
target holds is compared with that, at every level."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from tableferry.checks import refused_values as refused_values_module
from tableferry.checks.refused_values import EXAMPLES, refused_values
from tableferry.checks.table_side import TableSide
from tableferry.resources.columns.conform import conform
from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.digest.client import digests
from tableferry.resources.digest.expressions import DigestSql
from tableferry.resources.digest.fields import fields, not_compared
from tableferry.resources.digest.guards import Guard, guards
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import ValueRefused
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import OverflowPolicy
from tableferry.resources.types.type_map import Column
from tests.chance import chance
from tests.integration.support.typed_servers import (
    EVERYTHING,
    SHORT_CALENDAR,
    ClickHouseEnd,
    PostgresEnd,
    SqlServerEnd,
)
from tests.servers import Servers

LONG_CALENDAR = "26.9"
RANDOM = chance("overflow")
BLANKS, EMOJI, ACCENTED = "a      b  ", "😀a😀😀bc😀", "äöüÄÖÜß€"


@dataclass(frozen=True)
class Case:
    """A source's type, values around the limits of a target's type, and what may be done."""

    type: str
    values: Sequence[str]
    """In the source's SQL, or COPY's text for PostgreSQL."""
    target: str
    override: str
    policies: Sequence[OverflowPolicy] = ("null", "clamp")
    version: str = SHORT_CALENDAR

    def __str__(self) -> str:
        return f"{self.type} -> {self.target} {self.override} {self.version}"


def around(*limits: int, step: int = 1) -> list[str]:
    near = [limit + step * off for limit in limits for off in (-2, -1, 0, 1, 2)]
    return [*map(str, near), *(str(RANDOM.choice(near) + RANDOM.randint(-9, 9)) for _ in range(6))]


def quoted(*values: str) -> list[str]:
    return ["'" + value.replace("'", "''") + "'" for value in values]


def wide(*values: str) -> list[str]:
    return [f"N{value}" for value in quoted(*values)]


DATES = ["0001-01-01", "1899-12-31", "1900-01-01", "1969-12-31", "2299-12-31", "2300-01-01"]
DATES += ["9999-12-31", "2024-02-29", "1582-10-10"]
ODD_DATES = ["infinity", "-infinity", "0044-03-15 BC", "4713-11-24 BC", "5874897-12-31"]
MOMENTS = [f"{date} {time}" for date in DATES for time in ("00:00:00", "23:59:59.999999")]
MOMENTS += [
    "1969-12-31 23:59:59.123456",
    "2024-02-29 12:00:00.500500",
    "1901-01-01 00:00:00.000001",
]
ODD_MOMENTS = ["infinity", "-infinity", "294276-12-31 23:59:59.999999", "294247-01-10 04:00:54.7"]
ODD_MOMENTS += ["294246-12-31 23:59:59", "0044-03-15 10:00:00 BC"]
DECIMALS = ["0", "-0.5", "0.125", "0.135", "0.145", "-0.125", "9.994", "9.995", "9.996", "-9.999"]
DECIMALS += ["10", "-10.001", "9999999.99999", "1.10", "2.50", "7.000001", "3.00500"]
WHOLES = [
    "0",
    "1.5",
    "2.5",
    "-0.5",
    "127",
    "127.5",
    "127.4999",
    "128",
    "-128.5",
    "-129",
    "999999999999999",
]
TEXTS = ["", "short", "exactlyten", "elevenchars", BLANKS + "c", EMOJI, EMOJI * 2, ACCENTED * 3]
TEXTS += ["123456789😀", "12345678😀", "12345678😀9", "           ", "x\u0301" * 7, "\ufffd"]

POSTGRES = [
    Case("bigint", around(-(2**15), 2**15 - 1, 0), "sqlserver", "smallint"),
    Case("integer", around(0, 255), "sqlserver", "tinyint"),
    Case("bigint", around(-128, 127, 2**62), "clickhouse", "Int8"),
    Case("integer", around(-999, 999), "sqlserver", "decimal(5,2)"),
    Case("numeric(12,5)", DECIMALS, "sqlserver", "decimal(3,2)"),
    Case("numeric(12,2)", DECIMALS, "clickhouse", "Decimal(3, 2)"),
    Case("numeric", [*DECIMALS, "NaN", "Infinity", "1e40"], "clickhouse", "Decimal(9, 3)"),
    Case("numeric(20,4)", WHOLES, "sqlserver", "smallint"),
    Case("numeric", [*WHOLES, "NaN"], "clickhouse", "Int8"),
    Case("numeric(20,0)", around(0, 2**64 - 1), "clickhouse", "UInt64", ("null",)),
    Case("money", ["1.50", "92.33", "-99.99", "100.00"], "sqlserver", "decimal(4,2)"),
    Case("double precision", ["NaN", "Infinity", "-0.0", "1.5"], "sqlserver", "float", ("null",)),
    Case("date", [*DATES, *ODD_DATES], "sqlserver", "date"),
    Case("date", [*DATES, *ODD_DATES], "clickhouse", "Date32"),
    Case("date", [*DATES, *ODD_DATES], "clickhouse", "Date", version=LONG_CALENDAR),
    Case("date", [*DATES, *ODD_DATES], "clickhouse", "Date32", version=LONG_CALENDAR),
    Case("timestamp", [*MOMENTS, *ODD_MOMENTS], "sqlserver", "datetime2(3)"),
    Case("timestamp", [*MOMENTS, *ODD_MOMENTS], "sqlserver", "datetime2(7)"),
    Case("timestamp", [*MOMENTS, *ODD_MOMENTS], "clickhouse", "DateTime64(0, 'UTC')"),
    Case("timestamptz", [*MOMENTS, *ODD_MOMENTS], "clickhouse", "DateTime64(4, 'UTC')"),
    Case("timestamptz", [*MOMENTS, *ODD_MOMENTS], "sqlserver", "datetimeoffset(6)"),
    Case("timestamp", [*MOMENTS, *ODD_MOMENTS], "files", "TIMESTAMP"),
    Case("time", ["24:00:00", "23:59:59.999999", "00:00:00.5", "12:00"], "sqlserver", "time(0)"),
    Case("text", TEXTS, "sqlserver", "nvarchar(10)"),
    Case("char(24)", TEXTS, "sqlserver", "nvarchar(10)"),
    Case("char(24)", TEXTS, "sqlserver", "nchar(10)"),
    Case("text", TEXTS, "postgres", "varchar(10)"),
    Case("interval", ["1 day", "1 year 2 mons 3 days 04:05:06"], "sqlserver", "nvarchar(10)"),
    Case("integer", around(99_999, -9_999), "sqlserver", "nvarchar(5)"),
    Case("integer", around(99_999, -9_999), "postgres", "varchar(5)"),
    Case("money", ["1.50", "92.33", "12345.67"], "postgres", "varchar(6)"),
    Case("uuid", [str(uuid.UUID(int=number)) for number in (0, 2**64)], "postgres", "varchar(9)"),
    Case("bytea", ["\\\\x", "\\\\x00ff", "\\\\x0102030405"], "sqlserver", "varbinary(2)"),
    Case("bytea", ["\\\\x", "\\\\x00ff", "\\\\x0102030405"], "sqlserver", "binary(2)", ("null",)),
    Case("integer[]", ["{1,-200,NULL,127}", "{}", "{300}"], "clickhouse", "Array(Nullable(Int8))"),
    Case(
        "date[]", ["{infinity,2024-01-01,NULL}", "{}", "{1800-01-01,2400-01-01}"], "clickhouse",
        "Array(Nullable(Date32))",
    ),
]  # fmt: skip

SQLSERVER = [
    Case("bigint", around(-128, 127), "clickhouse", "Int8"),
    Case("int", around(-(2**15), 2**15 - 1), "postgres", "smallint"),
    Case("decimal(12,5)", DECIMALS, "clickhouse", "Decimal(3, 2)", ("null",)),
    Case("decimal(38,10)", [*DECIMALS, "1" * 28], "postgres", "numeric(9,3)", ("null",)),
    Case("money", [*DECIMALS[:-1], "922337203685477.5807"], "postgres", "numeric(9,2)", ("null",)),
    Case("decimal(20,4)", [*WHOLES, "99999999999999"], "postgres", "smallint"),
    Case("date", quoted(*DATES), "clickhouse", "Date32"),
    Case("datetime2(6)", [*quoted(*MOMENTS)], "clickhouse", "DateTime64(3, 'UTC')"),
    Case("datetime", quoted("1753-01-01", "2024-02-29 12:00:00.007", "9999-12-31 23:59:59.997"),
         "clickhouse", "DateTime64(0, 'UTC')"),
    Case("datetime2(7)", quoted(*(f"{one}0" if "." in one else one for one in MOMENTS)),
         "postgres", "timestamp(3)"),
    Case("datetimeoffset(6)",
         quoted("2024-02-29 12:00:00.123456 +02:00", "2024-02-29 12:00 +00:00",
                "0001-01-02 00:00 -05:00", "9999-12-30 00:00 +14:00"),
         "clickhouse", "DateTime64(6, 'UTC')", version=LONG_CALENDAR),
    Case("datetimeoffset(3)",
         quoted("2024-02-29 12:00:00.123 +02:00", "1850-02-28 12:00 +00:00", "9998-01-01 +00:00"),
         "clickhouse", "DateTime64(3, 'UTC')"),
    Case("time(6)", quoted("23:59:59.999999", "00:00:00.5", "12:00"), "postgres", "time(0)"),
    Case("nvarchar(40)", wide(*TEXTS), "postgres", "varchar(10)"),
    Case("nvarchar(40)", wide(*TEXTS), "clickhouse", "String"),
    Case("nchar(14)", wide(*TEXTS[:5]), "postgres", "varchar(10)"),
    Case("varchar(40)", quoted(*TEXTS[:5]), "postgres", "varchar(10)"),
    Case("int", around(99_999, -9_999), "postgres", "varchar(5)"),
    Case("money", ["1.5", "-99.99", "12345.6789"], "postgres", "varchar(6)"),
    Case("varbinary(9)", ["0x", "0x00FF", "0x0102030405"], "sqlserver", "varbinary(2)"),
]  # fmt: skip

CLICKHOUSE = [
    Case("Nullable(Int64)", around(-(2**15), 2**15 - 1), "postgres", "smallint"),
    Case("UInt64", around(99, 2**63 - 1), "postgres", "bigint"),
    Case("Int16", around(2, 255), "sqlserver", "tinyint"),
    Case("Nullable(Decimal(12, 5))", DECIMALS, "sqlserver", "decimal(3,2)", ("null",)),
    Case("Decimal(38, 4)", WHOLES, "postgres", "smallint"),
    Case("Nullable(Float64)", ["nan", "inf", "-inf", "0.5"], "sqlserver", "float", ("null",)),
    Case("Date32", quoted("1900-01-01", "1969-12-31", "2149-06-07"), "clickhouse", "Date"),
    Case("DateTime64(6, 'UTC')", quoted("1969-12-31 23:59:59.123456", "2024-01-01 00:00:00"),
         "postgres", "timestamptz(3)"),
    Case("Nullable(String)", [*quoted(*TEXTS), "unhex('ff61')", "'a\\0b'"],
         "postgres", "varchar(10)"),
    Case("Nullable(String)", [*quoted(*TEXTS), "unhex('ff61')"], "sqlserver", "nvarchar(10)"),
    Case("FixedString(4)", quoted("ab", "abcd"), "sqlserver", "varbinary(2)"),
]  # fmt: skip

FILES = [
    Case("BIGINT", around(-(2**15), 2**15 - 1), "postgres", "smallint"),
    Case("UBIGINT", around(99, 2**63 - 1), "clickhouse", "Int64"),
    Case("DECIMAL(12,5)", DECIMALS, "postgres", "numeric(3,2)", ("null",)),
    Case("DECIMAL(20,4)", [*WHOLES[:-1], "99999999999999"], "clickhouse", "Int8"),
    Case("DOUBLE", ["'NaN'::DOUBLE", "'-inf'::DOUBLE", "1.5::DOUBLE"],
         "sqlserver", "float", ("null",)),
    Case("DATE", quoted(*DATES), "clickhouse", "Date32"),
    Case("TIMESTAMP", quoted(*MOMENTS), "sqlserver", "datetime2(3)"),
    Case("TIMESTAMPTZ", quoted(*(f"{one}+00" for one in MOMENTS)), "clickhouse",
         "DateTime64(4, 'UTC')"),
    Case("TIME", quoted("23:59:59.999999", "00:00:00.5"), "postgres", "time(0)"),
    Case("VARCHAR", [*quoted(*TEXTS), "'a' || chr(0)"], "postgres", "varchar(10)"),
    Case("VARCHAR", quoted(*TEXTS), "sqlserver", "nvarchar(10)"),
    Case("BLOB", ["''::BLOB", "'\\x00\\xFF'::BLOB", "'\\x01\\x02\\x03'::BLOB"],
         "sqlserver", "varbinary(2)"),
    Case("INTEGER[]", ["[1, 400, NULL]", "[]", "[-200]"], "clickhouse", "Array(Nullable(Int8))"),
    Case("DATE[]", ["['1800-01-01'::DATE, NULL]", "[]"], "clickhouse", "Array(Nullable(Date32))"),
]  # fmt: skip


class FilesEnd:
    """A folder with one Parquet file of rows `(id, x)`."""

    def __init__(self, folder: str) -> None:
        self.resource = FilesResource(url=f"file://{folder}")
        self.folder = folder
        self.table = TableRef("files", "t", "*.parquet")

    def fill(self, type_: str, literals: Sequence[str]) -> None:
        import duckdb

        rows = ", ".join(f"({n}, {x})" for n, x in enumerate(literals, start=1))
        duckdb.execute(
            f"COPY (SELECT id::INTEGER AS id, x::{type_} AS x FROM (VALUES {rows}) AS v(id, x)) "
            f"TO '{self.folder}/t/a.parquet'"
        )

    def close(self) -> None:
        """The folder goes by itself."""


End = PostgresEnd | SqlServerEnd | ClickHouseEnd | FilesEnd


@pytest.fixture(scope="module")
def ends(
    stack: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], End]]:
    made: dict[str, End] = {}

    def end(system: str) -> End:
        if system not in made:
            if system == "files":
                folder = tmp_path_factory.mktemp("files")
                (folder / "t").mkdir()
                made[system] = FilesEnd(str(folder))
            else:
                makers = {
                    "postgres": (PostgresEnd, stack.postgres_url),
                    "sqlserver": (SqlServerEnd, stack.sqlserver_url),
                    "clickhouse": (ClickHouseEnd, stack.clickhouse_url),
                }
                maker, url = makers[system]
                made[system] = maker(url)  # type: ignore[abstract]
        return made[system]

    yield end
    for one in made.values():
        one.close()


CASES = [
    *(("postgres", case) for case in POSTGRES),
    *(("sqlserver", case) for case in SQLSERVER),
    *(("clickhouse", case) for case in CLICKHOUSE),
    *(("files", case) for case in FILES),
]


def by_client(plan: CopyPlan, endpoint: Endpoint) -> tuple[dict[int, int], dict[str, int]]:
    """The digest of each row as the export makes it, by id, without refused ones; and how many
    values it has changed."""
    (field,) = [one for one in fields(plan) if one.name == "x"]
    found: dict[int, int] = {}
    counts: dict[str, int] = {}
    with endpoint.read_arrow(plan.select(EVERYTHING, "arrow")) as reader:
        for batch in reader:
            for row in range(batch.num_rows):
                try:
                    one = conform(batch.slice(row, 1), plan, counts)
                except ValueRefused:
                    continue
                position = one.schema.get_field_index("x")
                values = digests([field], [pa.array(one.column(position))], "md5")
                found[one.column("id")[0].as_py()] = values.to_list()[0]
    return found, counts


@pytest.mark.parametrize(("system", "case"), CASES, ids=str)
def test_the_source_makes_the_same_of_values_as_the_export(
    ends: Callable[[str], End], system: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ends(system)
    source.fill(case.type, case.values)
    columns = source.resource.columns(source.table)
    own: DigestSql = dialect(source.resource, "md5")
    for policy in case.policies:
        override = ColumnOverride(type=case.override, on_overflow=policy)
        target = TableRef(case.target, "public", "t")
        plan = plan_copy(
            source.table, columns, target, key="id", overrides={"x": override},
            target_version=case.version,
        )  # fmt: skip
        assert not_compared(plan) == ()
        (field,) = [one for one in fields(plan) if one.name == "x"]
        relaxed = field.relaxed[own.variant]
        changed = f"CASE WHEN {relaxed.changed or '1 = 0'} THEN 1 ELSE 0 END"
        rows = source.resource.query(
            f"SELECT id, {own.digest([field], 'source')}, {changed}, {own.shown(field, 'source')} "
            f"FROM {qualified(source.table)}"
        )
        expected, counts = by_client(plan, source.resource)
        assert expected, "some are not refused"
        for number, digest, _, shown in rows:
            if number in expected:
                value = case.values[int(number) - 1]
                assert int(digest) == expected[number], (policy, value, shown)
        assert sum(int(row[2]) for row in rows if row[0] in expected) == counts.get("x", 0), policy
        require_foreseen(plan, source.resource, len(case.values) - len(expected))
    require_all_foreseen(source, columns, case, monkeypatch)


def require_all_foreseen(
    source: End, columns: Sequence[Column], case: Case, patch: pytest.MonkeyPatch
) -> None:
    """Require that what is refused without a policy is foreseen, by SQL and by the client."""
    plan = plan_copy(
        source.table,
        columns,
        TableRef(case.target, "public", "t"),
        key="id",
        overrides={"x": ColumnOverride(type=case.override)},
        target_version=case.version,
    )
    accepted, _ = by_client(plan, source.resource)
    refused = set(range(1, len(case.values) + 1)) - set(accepted)
    keys = require_foreseen(plan, source.resource, len(refused))
    assert set(keys) <= refused and len(keys) == min(len(refused), EXAMPLES)

    def without_sql(*arguments: object) -> dict[str, tuple[Guard, ...]]:
        return {
            name: tuple(replace(guard, condition=None) for guard in written)
            for name, written in guards(*arguments).items()  # type: ignore[arg-type]
        }

    patch.setattr(refused_values_module, "guards", without_sql)
    assert require_foreseen(plan, source.resource, len(refused))


def require_foreseen(plan: CopyPlan, endpoint: Endpoint, refused: int) -> list[int]:
    """Require that as many values are foreseen to be refused; return the keys of the examples."""
    found = refused_values(TableSide(plan, "source", endpoint), "arrow")
    assert found.not_examined == ()
    assert sum(column.rows for column in found.columns) == refused
    examples = [example for column in found.columns for example in column.examples]
    # a file's rows are known by their numbers
    return [int(str(list(example.key.values())[-1])) for example in examples]
