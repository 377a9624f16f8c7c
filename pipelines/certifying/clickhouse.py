"""Plain SQL for ClickHouse, see `Plain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tableferry.pipelines.certifying.plain import Plain
from tableferry.resources.types.kinds import Array, Binary, Kind

ENGINE = "ENGINE = MergeTree ORDER BY id"
NOTE = (
    "multiIf(number % 7 = 0, NULL, number % 5 = 0, '', "
    "concat('note \U0001f600 ', toString(number)))"
)


def text(name: str, declared: str, kind: Kind | None) -> str:
    """See `Plain.text`."""
    if isinstance(kind, Binary):
        return f"hex({name})"
    if isinstance(kind, Array) and "Array" in declared:
        return f"toJSONString({name})"
    if "DateTime" in declared:
        return f"toString(toTimeZone({name}, 'UTC'))"
    return name if "String" in declared else f"toString({name})"


def fill(table: str, rows: int) -> Sequence[str]:
    """See `Plain.fill_rows`."""
    return [
        f"INSERT INTO {table} SELECT number, 1, {NOTE}, toDecimal64(number, 4) / 16, "
        "addMicroseconds(toDateTime64('2024-01-01 00:00:00', 6, 'UTC'), number * 1000001), "
        f"number % 2 = 0 FROM numbers(1, {rows})"
    ]


def _granted(right: str) -> str:
    return (
        "SELECT count() > 0 FROM system.grants WHERE user_name = currentUser() "
        f"AND access_type = '{right}'"
    )


TYPES: Mapping[str, Sequence[str]] = {
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

PLAIN = Plain(
    types={
        **{f"Nullable({name})": literals for name, literals in TYPES.items()},
        "LowCardinality(Nullable(String))": ("''", "'a'"),
    },
    create_rows=(
        "CREATE TABLE {table} (id Int64, version Int32, note Nullable(String), "
        "amount Nullable(Decimal(18, 4)), at Nullable(DateTime64(6, 'UTC')), flag Nullable(Bool)) "
        + ENGINE
    ),
    fill_rows=fill,
    insert_row="INSERT INTO {table} SELECT {id}, 1, '', 0, '2200-01-01 00:00:00', NULL",
    create_types="CREATE TABLE {table} (id Int32, {columns}) " + ENGINE,
    text=text,
    tables="SELECT name FROM system.tables WHERE database = {schema}",
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
    null="",
    create_schema="CREATE DATABASE {schema}",
    drop_schema="DROP DATABASE {schema} SYNC",
    update="ALTER TABLE {table} UPDATE {assignment} WHERE {condition} SETTINGS mutations_sync = 2",
    delete="ALTER TABLE {table} DELETE WHERE {condition} SETTINGS mutations_sync = 2",
)
