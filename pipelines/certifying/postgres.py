"""Plain SQL for PostgreSQL, see `Plain`."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.pipelines.certifying.plain import Plain
from tableferry.resources.types.kinds import Binary, Kind, Timestamp

NOTE = "CASE WHEN g % 7 = 0 THEN NULL WHEN g % 5 = 0 THEN '' ELSE 'note \U0001f600 ' || g END"
RANGES = {
    "int4range": "'[1,5)'",
    "int8range": "'[1,5)'",
    "numrange": "'[1.5,2.5]'",
    "tsrange": "'[2024-01-01 00:00:00,2024-02-01 00:00:00)'",
    "tstzrange": "'[2024-01-01 00:00:00+00,2024-02-01 00:00:00+00)'",
    "daterange": "'[2024-01-01,2024-02-01)'",
}


def text(name: str, declared: str, kind: Kind | None) -> str:
    """See `Plain.text`. `format` prints what psql prints, also the padding of a `character`."""
    if declared.endswith("[]"):
        return f"array_to_json({name})::text"
    if isinstance(kind, Binary):
        return f"encode({name}, 'hex')"
    if declared == "money":
        return f"{name}::numeric::text"
    if isinstance(kind, Timestamp) and declared.startswith("timestamp") and "with time" in declared:
        name = f"({name} AT TIME ZONE 'UTC')"
    return f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"


def fill(table: str, rows: int) -> Sequence[str]:
    """See `Plain.fill_rows`."""
    return [
        f"INSERT INTO {table} SELECT g, 1, {NOTE}, g * 0.0625, "
        "timestamp '2024-01-01' + g * interval '1.000001 s', g % 2 = 0 "
        f"FROM generate_series(1, {rows}) g"
    ]


def _setting(name: str) -> str:
    return f"SELECT setting FROM pg_catalog.pg_settings WHERE name = '{name}'"


def _role(attribute: str) -> str:
    return f"SELECT {attribute}::int FROM pg_catalog.pg_roles WHERE rolname = current_user"


PLAIN = Plain(
    types={
        **dict.fromkeys(("smallint", "integer", "bigint", "oid"), ()),
        **dict.fromkeys(("numeric(38,10)", "numeric(18,0)", "numeric(12,2)", "numeric"), ("1.5",)),
        "money": ("'-92233720368547758.08'", "'0.01'", "'92233720368547758.07'"),
        **dict.fromkeys(("real", "double precision"), ("'-0'", "0.1", "'1e-30'")),
        "boolean": (),
        "bytea": ("''", r"'\x00'", r"'\x5c090a0d00ff'", "decode(repeat('ab', 5000), 'hex')"),
        "date": (),
        **dict.fromkeys(
            ("time without time zone", "time(0) without time zone", "time(3) without time zone"), ()
        ),
        **{
            f"timestamp{digits} {zone} time zone": ()
            for digits in ("", "(0)", "(3)")
            for zone in ("without", "with")
        },
        "uuid": ("'00000000-0000-0000-0000-000000000000'",),
        **dict.fromkeys(("character(10)", "character varying(40)"), ()),
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
    create_rows=(
        "CREATE TABLE {table} (id bigint PRIMARY KEY, version integer NOT NULL, note text, "
        "amount numeric(18,4), at timestamp, flag boolean)"
    ),
    fill_rows=fill,
    insert_row="INSERT INTO {table} VALUES ({id}, 1, '', 0, timestamp '2200-01-01', NULL)",
    create_types="CREATE TABLE {table} (id integer PRIMARY KEY, {columns})",
    text=text,
    tables="SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = {schema}",
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
