"""Plain SQL of each system: what certifying makes, changes and reads by its own statements."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.types.kinds import Array, Binary, Float, Kind, Text
from tableferry.resources.types.samples import meaning

COLUMNS = ("id", "version", "note", "amount", "at", "flag")
"""The columns of the table of many rows: a key, an integer, a nullable text, a decimal, a timestamp
and a boolean."""
ROW = (
    "{id}, 1, CASE WHEN {id} % 7 = 0 THEN NULL WHEN {id} % 5 = 0 THEN '' "
    "ELSE CONCAT({wide}'note \U0001f600 ', {id}) END, CAST({id} * 0.0625 AS decimal(18,4)), "
)
"""The values of such a row, but for the last two."""
TABLES = (
    "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES "
    "WHERE TABLE_SCHEMA = {schema} AND TABLE_TYPE = 'BASE TABLE'"
)
"""Lists the tables of the schema `{schema}`, a constant."""


@dataclass(frozen=True)
class Plain:
    """In what the SQL of one system differs from that of the others."""

    types: Mapping[str, Sequence[str]]
    """Types of its tables besides those of `Source.examples`, and constants of any type besides
    those of `types.samples`."""
    rows: Sequence[str]
    """The types of `COLUMNS`, with NOT NULL and NULL as far as they need it."""
    row: str
    """The last two values of `ROW`."""
    reads: Mapping[str, str]
    """How columns are read, by patterns of the kind of the values that were put into the source and
    the declared type; the first that is found holds."""
    misfits: Sequence[tuple[str, str]]
    """Types with constants that most other systems do not hold."""
    settings: Mapping[str, str]
    """Queries of what a certificate says about a server, by name; each has one row and column."""
    unneeded: Mapping[str, str]
    """Queries that tell, by 1 or 0, whether a login has a right that no move needs."""
    create_table: str = "CREATE TABLE {table} ({columns}, PRIMARY KEY (id))"
    null: str = " NULL"
    """What stands behind the type of a column that may be NULL."""
    wide: str = ""
    """What stands before constants with any characters."""
    mark: str = ""
    """What `reads` puts before texts, because the driver changes the beginning of some."""
    create_schema: str = "CREATE SCHEMA {schema}"
    drop_schema: str = "DROP SCHEMA {schema}"
    update: str = "UPDATE {table} SET {assignment} WHERE {condition}"
    delete: str = "DELETE FROM {table} WHERE {condition}"

    def create_rows(self, table: str) -> str:
        """Return the statement that creates the table of many rows."""
        columns = ", ".join(map(" ".join, zip(COLUMNS, self.rows, strict=True)))
        return self.create_table.format(table=table, columns=columns)

    def create_types(self, table: str, columns: Mapping[str, str]) -> str:
        """Return the statement that creates a table of a key and some columns that may be NULL."""
        of_key = self.rows[1]
        every = [f"id {of_key}", *(f"{name} {columns[name]}{self.null}" for name in columns)]
        return self.create_table.format(table=table, columns=", ".join(every))

    def insert_row(self, table: str, id_: str) -> str:
        """Return the statement that inserts a row into the table of many rows."""
        values = (ROW + self.row).format(id=id_, wide=self.wide)
        return f"INSERT INTO {table} SELECT {values}"

    def fill_rows(self, table: str, rows: int) -> Iterator[str]:
        """Yield the statements that fill it; each doubles the rows. The version is 1 in all."""
        yield self.insert_row(table, "CAST(1 AS bigint)")
        there = 1
        while there < rows:
            yield self.insert_row(table, f"(id + {there})") + (
                f" FROM {table} WHERE id <= {rows - there}"
            )
            there *= 2

    def text(self, name: str, declared: str, kind: Kind | None) -> str:
        """Return the SQL by which a column is read, given its quoted name."""
        of = f"{type(kind).__name__} {declared}"
        read = next(sql for pattern, sql in self.reads.items() if re.search(pattern, of))
        return read.replace("{}", name)


def _granted(right: str) -> str:
    return (
        "SELECT count() > 0 FROM system.grants WHERE user_name = currentUser() "
        f"AND access_type = '{right}'"
    )


def _setting(name: str) -> str:
    return f"SELECT setting FROM pg_catalog.pg_settings WHERE name = '{name}'"


def _role(attribute: str) -> str:
    return f"SELECT {attribute}::int FROM pg_catalog.pg_roles WHERE rolname = current_user"


def _database(column: str) -> str:
    return f"SELECT {column} FROM sys.databases WHERE name = DB_NAME()"


ZONES = ("without", "with")
RANGES = {
    "int4range": "'[1,5)'",
    "int8range": "'[1,5)'",
    "numrange": "'[1.5,2.5]'",
    "tsrange": "'[2024-01-01 00:00:00,2024-02-01 00:00:00)'",
    "tstzrange": "'[2024-01-01 00:00:00+00,2024-02-01 00:00:00+00)'",
    "daterange": "'[2024-01-01,2024-02-01)'",
}

POSTGRES = Plain(
    types={
        **dict.fromkeys(("oid", "numeric(12,2)"), ()),
        "numeric": ("1.5",),
        "money": ("'-92233720368547758.08'", "'0.01'", "'92233720368547758.07'"),
        **dict.fromkeys(("real", "double precision"), ("'-0'", "'1e-30'")),
        "bytea": ("''", r"'\x00'", r"'\x5c090a0d00ff'", "decode(repeat('ab', 5000), 'hex')"),
        **dict.fromkeys(("time without time zone", "time(0) without time zone"), ()),
        **{f"timestamp({digits}) {zone} time zone": () for digits in (0, 3) for zone in ZONES},
        "uuid": ("'00000000-0000-0000-0000-000000000000'",),
        "text": ("repeat('\u00df\U0001f600', 10000)", "chr(1) || chr(127)"),
        "name": ("'a'", "repeat('n', 63)"),
        '"char"': ("'a'",),
        "json": ("""'{"a":  [1, null, "\U0001f600"]}'""", "'null'"),
        "jsonb": ("""'{"a":  [1, null, "\U0001f600"]}'""", "'null'"),
        "xml": ("'<a b=\"c\">d</a>'",),
        "bit(8)": ("B'00000000'", "B'11111111'"),
        "bit varying": ("B''", "B'101'"),
        "interval": ("'-1 year 2 mons -3 days 04:05:06.789'", "'0'"),
        "time with time zone": ("'12:34:56.123456+05:30'", "'00:00:00-12'"),
        "inet": ("'192.168.0.1'", "'10.1.2.3/8'", "'2001:db8::1'"),
        "cidr": ("'10.0.0.0/8'", "'2001:db8::/32'"),
        "macaddr": ("'08:00:2b:01:02:03'",),
        "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
        "pg_lsn": ("'0/0'", "'FFFFFFFF/FFFFFFFF'"),
        **{name: (literal, "'empty'") for name, literal in RANGES.items()},
        **{
            name.replace("range", "multirange"): (f"'{{{literal[1:-1]}}}'", "'{}'")
            for name, literal in RANGES.items()
        },
        "integer[]": ("'{}'", "'{-2147483648,NULL,2147483647}'"),
        "text[]": ("'{}'", """'{"",NULL,"a\\"b"}'"""),
        "numeric(12,2)[]": ("'{0.01,NULL,-9999999999.99}'",),
        "boolean[]": ("'{true,NULL,false}'",),
    },
    rows=("bigint", "integer NOT NULL", "text", "numeric(18,4)", "timestamp", "boolean"),
    row="timestamp '2024-01-01' + {id} * interval '1.000001 s', {id} % 2 = 0",
    reads={
        r"\[\]$": "array_to_json({})::text",
        " bytea": "encode({}, 'hex')",
        " money": "{}::numeric::text",
        r" timestamp.* with time zone": (
            "CASE WHEN {} IS NOT NULL THEN format('%s', {} AT TIME ZONE 'UTC') END"
        ),
        "": "CASE WHEN {} IS NOT NULL THEN format('%s', {}) END",  # with the padding of a character
    },
    misfits=(("date", "'infinity'"), ("double precision", "'NaN'")),
    settings={
        "version": _setting("server_version"),
        "encoding": _setting("server_encoding"),
        "collation": "SELECT datcollate FROM pg_catalog.pg_database "
        "WHERE datname = current_database()",
        "time zone": _setting("TimeZone"),
        "isolation": _setting("default_transaction_isolation"),
        "read only": "SELECT pg_is_in_recovery()::text",
        "ssl": _setting("ssl"),
        "wal_level": _setting("wal_level"),
        "statement_timeout": _setting("statement_timeout"),
    },
    unneeded={
        "SUPERUSER": _role("rolsuper"),
        "CREATEROLE": _role("rolcreaterole"),
        "CREATEDB": _role("rolcreatedb"),
        "REPLICATION": _role("rolreplication"),
        "BYPASSRLS": _role("rolbypassrls"),
    },
    drop_schema="DROP SCHEMA {schema} CASCADE",
)

SQLSERVER = Plain(
    types={
        "decimal(12,2)": (),
        "nvarchar(max)": ("REPLICATE(CAST(N'\u00df\U0001f600' AS nvarchar(max)), 5000)",),
        **dict.fromkeys(("varbinary(40)", "varbinary(max)"), ("0x", "0x00", "0x5C090A0D00FF")),
        "binary(4)": ("0x00000000", "0x5C0900FF"),
        "xml": ("N'<a b=\"c\">d</a>'",),
    },
    rows=(
        *("bigint NOT NULL", "int NOT NULL", "nvarchar(100) NULL", "decimal(18,4) NULL"),
        *("datetime2(6) NULL", "bit NULL"),
    ),
    row=(
        "DATEADD(second, {id}, CAST('2024-01-01T00:00:00.000001' AS datetime2(6))), "
        "CAST({id} % 2 AS bit)"
    ),
    reads={
        # the driver drops a byte order mark at the beginning
        r" n?(var)?char\b": "N'.' + CAST({} AS nvarchar(max))",
        " datetimeoffset": "CAST(SWITCHOFFSET({}, '+00:00') AS nvarchar(34))",
        " datetime2": "CAST({} AS nvarchar(27))",
        " datetime": "CAST(CAST({} AS datetime2(3)) AS nvarchar(27))",
        " smalldatetime": "CAST(CAST({} AS datetime2(0)) AS nvarchar(27))",
        " time": "CAST({} AS nvarchar(16))",
        " date": "CAST({} AS nvarchar(10))",
        "": "{}",
    },
    misfits=(("nvarchar(40)", "NCHAR(0)"), ("date", "'0001-01-01'")),
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
    wide="N",
    mark=".",
)

OF_CLICKHOUSE: Mapping[str, Sequence[str]] = {
    **{f"{sign}Int{bits}": ("0", "1") for sign in ("", "U") for bits in (8, 16, 32)},
    "Int64": ("-9223372036854775808", "0", "9223372036854775807"),
    "UInt64": ("0", "18446744073709551615"),
    "Bool": ("false", "true"),
    **dict.fromkeys(("Float32", "Float64"), ("0.1", "-1.5", "1e30", "1e-30")),
    "Decimal(18, 4)": ("'-99999999999999.9999'", "'0.0001'"),
    "Decimal(38, 10)": ("'-9999999999999999999999999999.9999999999'", "'0.0000000001'"),
    "String": ("''", "' '", r"'a\tb\n\r\\N'", "'\u00df\U0001f600'", "repeat('ab', 10000)"),
    "FixedString(4)": ("'abcd'",),
    "UUID": ("'00112233-4455-6677-8899-aabbccddeeff'",),
    "Date": ("'1970-01-01'", "'2149-06-06'"),
    "Date32": ("'1900-01-01'", "'2299-12-31'"),
    "DateTime('UTC')": ("'1970-01-01 00:00:00'", "'2106-02-07 06:28:15'"),
    "DateTime64(3, 'UTC')": ("'1900-01-01 00:00:00.000'", "'2299-12-31 23:59:59.999'"),
    "DateTime64(6, 'UTC')": ("'1900-01-01 00:00:00.000000'", "'2262-01-01 23:59:59.999999'"),
    "Enum8('a' = 1, 'b' = 2)": ("'a'", "'b'"),
}

CLICKHOUSE = Plain(
    types={
        **{f"Nullable({name})": literals for name, literals in OF_CLICKHOUSE.items()},
        "LowCardinality(Nullable(String))": ("''", "'a'"),
    },
    rows=(
        *("Int64", "Int32", "Nullable(String)", "Nullable(Decimal(18, 4))"),
        *("Nullable(DateTime64(6, 'UTC'))", "Nullable(Bool)"),
    ),
    row=(
        "addMicroseconds(toDateTime64('2024-01-01 00:00:00', 6, 'UTC'), {id} * 1000001), "
        "{id} % 2 = 0"
    ),
    reads={
        "^Binary ": "hex({})",
        "^Array .*Array": "toJSONString({})",
        "DateTime": "toString(toTimeZone({}, 'UTC'))",
        "String": "{}",
        "": "toString({})",
    },
    misfits=(("Nullable(String)", "unhex('FF00')"), ("Nullable(Float64)", "nan")),
    settings={
        "version": "SELECT version()",
        "time zone": "SELECT timezone()",
        "changed settings": "SELECT arrayStringConcat(groupArray(concat(name, '=', value)), ', ') "
        "FROM system.settings WHERE changed",
        "engine of the database": "SELECT engine FROM system.databases "
        "WHERE name = currentDatabase()",
    },
    unneeded={
        "ACCESS MANAGEMENT": _granted("CREATE USER"),
        "SYSTEM": _granted("SYSTEM"),
        "SOURCES": _granted("SOURCES"),
    },
    create_table="CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id",
    null="",
    create_schema="CREATE DATABASE {schema}",
    drop_schema="DROP DATABASE {schema} SYNC",
    update="ALTER TABLE {table} UPDATE {assignment} WHERE {condition} SETTINGS mutations_sync = 2",
    delete="ALTER TABLE {table} DELETE WHERE {condition} SETTINGS mutations_sync = 2",
)

PLAIN = {"postgres": POSTGRES, "sqlserver": SQLSERVER, "clickhouse": CLICKHOUSE}


def plain_of(system: System) -> Plain:
    """Return the SQL of a system.

    Raises:
        InputError: it cannot be certified.
    """
    if system.name not in PLAIN:
        raise InputError(f"{system} cannot be certified, as it is no server")
    return PLAIN[system.name]


def types_of(system: System) -> dict[str, Sequence[str]]:
    """Return the types that tables of a system may have, with constants."""
    return {**dict.fromkeys(source_of(system).examples, ()), **plain_of(system).types}


def as_text(value: object) -> str | None:
    """Write what a driver returns as text."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case list() | tuple():
            return json.dumps([as_text(item) for item in value])
    return str(value)


def normal(kind: Kind | None, text: str | None) -> object:
    """Make the texts of equal values equal, however the systems write them.

    Args:
        kind: what the values are; None for those that only a text represents.
        text: what was read.
    """
    if text is None or kind is None or isinstance(kind, Text):
        return text
    try:
        match kind:
            case Binary():
                return text.lower()
            case Array(item):
                return [normal(item, _item(each)) for each in json.loads(text)]
            case Float(bits) if text.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
                return struct.pack("<d" if bits == 64 else "<f", float(text))
        return meaning(kind, text)
    except ValueError:
        return text


def _item(value: Any) -> str | None:
    """Write an item of a JSON array as text."""
    return as_text(value) if not isinstance(value, float) else repr(value)
