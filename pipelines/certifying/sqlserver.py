"""Plain SQL for SQL Server, see `Plain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.pipelines.certifying.plain import Plain
from tableferry.resources.types.kinds import Kind

DATES = {
    "datetimeoffset": "CAST(SWITCHOFFSET({}, '+00:00') AS nvarchar(34))",
    "datetime2": "CAST({} AS nvarchar(27))",
    "datetime": "CAST(CAST({} AS datetime2(3)) AS nvarchar(27))",
    "smalldatetime": "CAST(CAST({} AS datetime2(0)) AS nvarchar(27))",
    "time": "CAST({} AS nvarchar(16))",
    "date": "CAST({} AS nvarchar(10))",
}
ROW = (
    "{id}, 1, CASE WHEN {id} % 7 = 0 THEN NULL WHEN {id} % 5 = 0 THEN N'' "
    "ELSE CONCAT(N'note \U0001f600 ', {id}) END, CAST({id} * 0.0625 AS decimal(18,4)), "
    "DATEADD(second, {id}, CAST('2024-01-01T00:00:00.000001' AS datetime2(6))), "
    "CAST({id} % 2 AS bit)"
)


def text(name: str, declared: str, kind: Kind | None) -> str:
    """See `Plain.text`. Other values than times come from the driver as they are, but for a byte
    order mark at the beginning of a text, which it drops."""
    if declared.partition("(")[0] in ("char", "varchar", "nchar", "nvarchar"):
        return f"N'.' + {name}"
    return DATES.get(declared.partition("(")[0], "{}").replace("{}", name)


def fill(table: str, rows: int) -> Iterator[str]:
    """See `Plain.fill_rows`. Each statement doubles the rows."""
    yield f"INSERT INTO {table} SELECT {ROW.format(id='CAST(1 AS bigint)')}"
    there = 1
    while there < rows:
        values = ROW.format(id=f"(id + {there})")
        yield f"INSERT INTO {table} SELECT {values} FROM {table} WHERE id <= {rows - there}"
        there *= 2


def _database(column: str) -> str:
    return f"SELECT {column} FROM sys.databases WHERE name = DB_NAME()"


def _texts(*literals: str) -> Sequence[str]:
    return literals


PLAIN = Plain(
    types={
        **dict.fromkeys(("bit", "tinyint", "smallint", "int", "bigint"), ()),
        **dict.fromkeys(("decimal(38,10)", "decimal(18,0)", "decimal(12,2)"), ()),
        **dict.fromkeys(("money", "smallmoney", "float(53)", "real"), ()),
        **dict.fromkeys(("char(10)", "varchar(40)", "varchar(max)"), ()),
        **dict.fromkeys(("nchar(10)", "nvarchar(40)"), ()),
        "nvarchar(max)": ("REPLICATE(CAST(N'\u00df\U0001f600' AS nvarchar(max)), 5000)",),
        **dict.fromkeys(("varbinary(40)", "varbinary(max)"), ("0x", "0x00", "0x5C090A0D00FF")),
        "binary(4)": ("0x00000000", "0x5C0900FF"),
        **dict.fromkeys(("date", "time(0)", "time(3)", "time(7)", "datetime", "smalldatetime"), ()),
        **{f"datetime2({digits})": () for digits in (0, 3, 6, 7)},
        **{f"datetimeoffset({digits})": () for digits in (0, 3, 6, 7)},
        "uniqueidentifier": (),
        "xml": ("N'<a b=\"c\">d</a>'",),
    },
    create_rows=(
        "CREATE TABLE {table} (id bigint NOT NULL PRIMARY KEY, version int NOT NULL, "
        "note nvarchar(100) NULL, amount decimal(18,4) NULL, at datetime2(6) NULL, flag bit NULL)"
    ),
    fill_rows=lambda table, rows: [*fill(table, rows)],
    insert_row=(
        "INSERT INTO {table} (id, version, note, amount, at, flag) "
        "VALUES ({id}, 1, N'', 0, CAST('2200-01-01T00:00:00' AS datetime2(6)), NULL)"
    ),
    create_types="CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, {columns})",
    text=text,
    tables="SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = {schema}",
    misfits=(("nvarchar(40)", "NCHAR(0)"),),
    mark=".",
    settings={
        "version": "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128))",
        "edition": "SELECT CAST(SERVERPROPERTY('Edition') AS nvarchar(128))",
        "collation of the server": "SELECT CAST(SERVERPROPERTY('Collation') AS nvarchar(128))",
        "collation": _database("collation_name"),
        "compatibility level": _database("compatibility_level"),
        "snapshot isolation": _database("snapshot_isolation_state_desc"),
        "read committed snapshot": _database("is_read_committed_snapshot_on"),
        "recovery model": _database("recovery_model_desc"),
    },
    unneeded={
        "sysadmin": "SELECT IS_SRVROLEMEMBER('sysadmin')",
        "securityadmin": "SELECT IS_SRVROLEMEMBER('securityadmin')",
        "db_owner": "SELECT IS_MEMBER('db_owner')",
    },
)
