"""Renders docs/types.md from the type map: `python -m docs.tools.types_page > docs/types.md`."""

from __future__ import annotations

import sys

from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import ColumnPlan
from tableferry.resources.errors import InputError, TypeRefused
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.export import Refusal

POSTGRES = [
    "smallint",
    "integer",
    "bigint",
    "oid",
    "numeric(38,10)",
    "numeric(5,-2)",
    "numeric(50,10)",
    "numeric(77,0)",
    "numeric",
    "money",
    "real",
    "double precision",
    "boolean",
    "character(10)",
    "character varying(100)",
    "character varying(5000)",
    "text",
    "citext",
    "name",
    '"char"',
    "bytea",
    "date",
    "time without time zone",
    "time(3) without time zone",
    "time with time zone",
    "timestamp without time zone",
    "timestamp(3) without time zone",
    "timestamp with time zone",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "xml",
    "inet",
    "cidr",
    "macaddr",
    "macaddr8",
    "enum",
    "bit(8)",
    "bit varying",
    "pg_lsn",
    "int4range",
    "tstzmultirange",
    "integer[]",
    "numeric(10,2)[]",
    "text[]",
    "timestamp with time zone[]",
    "numeric[]",
    "composite",
    "point",
]
SQLSERVER = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "bit",
    "decimal(38,10)",
    "numeric(9,0)",
    "money",
    "smallmoney",
    "float",
    "real",
    "char(10)",
    "varchar(100)",
    "text",
    "nchar(10)",
    "nvarchar(100)",
    "nvarchar(max)",
    "ntext",
    "xml",
    "binary(8)",
    "varbinary(max)",
    "image",
    "date",
    "time(7)",
    "datetime",
    "smalldatetime",
    "datetime2(3)",
    "datetime2(7)",
    "datetimeoffset(7)",
    "uniqueidentifier",
    "rowversion",
    "sql_variant",
    "hierarchyid",
    "geometry",
    "geography",
]
FROM_CLICKHOUSE = [
    "Int8",
    "UInt32",
    "UInt64",
    "Int256",
    "Bool",
    "Float32",
    "Decimal(38, 10)",
    "String",
    "LowCardinality(String)",
    "FixedString(8)",
    "Enum8('a' = 1)",
    "UUID",
    "Date",
    "Date32",
    "DateTime('Europe/Berlin')",
    "DateTime64(6, 'UTC')",
    "DateTime64(9, 'UTC')",
    "Array(String)",
    "Map(String, Int32)",
    "IPv6",
    "JSON",
]
CLICKHOUSE = "26.7"
"""The release that the tables show: floats travel as text, dates are held to the short calendar."""

NEVER = "cannot be converted"
"""The reason of steps that every value passes."""

INTRODUCTION = """# Types

<!-- Made by `python -m docs.tools.types_page > docs/types.md`; a test fails when it is stale. -->

What each column becomes, how it is selected, and which of its values the target cannot hold. A
value that arrives arrives exactly. One that cannot stops its key range before the commit, with an
error that names table, column, key and value.

- **Another target type**: `columns: {x: {type: ...}}` takes any type that can hold values of the
  source type exactly; those that do not fit are refused by name. A text type takes every column.
- **All of them at once**: `ferry plan T --values` lists
  [every value](commands.md#values-that-do-not-fit) that would be refused;
  [a chapter](values-that-do-not-fit.md) goes through what can be done about them.
- **Less strict**: `columns: {x: {on_overflow: null}}` writes NULL for a value that does not fit,
  `clamp` the nearest value that fits, `text` makes the whole column text. What `null` and `clamp`
  changed is counted in the range's metadata and in each verdict, and [proven to be what they should
  make of it](reconciliation.md#values-that-on_overflow-changes). NaN has no nearest value, and a
  NULL array has no place in ClickHouse, so that these stay refused under `clamp`.
- **NULL** is allowed in the target where the source allows it, or where `on_overflow: null` asks
  for it. ClickHouse's arrays cannot be NULL; their elements can. `Variant` and `Dynamic` have a
  NULL of their own, which stays NULL. `NOT NULL` counts where no row can break it: not on a foreign
  table of PostgreSQL, before it is validated (18), where tables that inherit may have NULL, or in a
  domain.
- **`datetime`** of SQL Server counts in 1/300 s, and shows .000, .003 and .007. What it shows is
  copied, compared, and what bounds of ranges and watermarks go by.
- **Domains** travel as the type they are based on, **generated** and **identity** columns by value.
- **Names** stay as they are, in every script, with blanks and reserved words, unless renamed. SQL
  Server's usual collations do not tell names apart by case; two that differ in nothing else are
  refused there. So are names, of tables too, that a server would cut or does not take: 63 bytes in
  PostgreSQL, 128 characters in SQL Server, 255 bytes of a path's part; `_range`, `_part`,
  `_row_exists`, `_block_number` and `_block_offset` in ClickHouse; arrays there with a dot in their
  names beside a column or another array that begins alike (`a.x` with `a` or `a.y`), which
  ClickHouse takes for one Nested column. The error proposes a name. How many columns a
  table may have, and how long its rows may be, the server says where it is made.
- **Wire formats**: `arrow` carries everything. `text` carries the columns marked so, without `null`
  and `clamp`, which could not be counted. Out of SQL Server, text with a NUL character is refused
  under it too.
- **Floats as `text`** are exact into ClickHouse from 26.7 on. Older releases get the last bits of a
  float wrong in every text format, so that planning refuses `text` for floats there. SQL Server
  prints them by `CONVERT` with style 3 (17 digits, documented as lossless; Babelfish has it too). A
  value that the server itself does not read back out of that is refused: `arrow` carries it.
- **Bytes as `text`** go into SQL Server, but not into ClickHouse, which would have to be told how
  they are encoded; and the hexadecimal styles of `CONVERT` are ignored by Babelfish. Exclude such
  columns, or use `arrow`.
- **Between two PostgreSQL servers** every type is kept as it is declared, with all values, infinite
  and early ones too, and travels unread: in COPY's binary format, or, where one of the columns is
  an array of enums, a row type, an `xml` or an extension's type, in COPY's text.
- **Into PostgreSQL** no value has more than six decimals of a second, and no text a NUL character:
  what has is refused, unless `clamp` cuts the decimals. Text keeps its declared length, as varchar,
  also where its source pads it.
- **Out of files**, see [what Parquet's types become](files.md#what-parquets-types-become) and
  [what texts become](files.md#what-texts-become).
- **Into files** (Parquet, by DuckDB's names of types): integers of their own size and sign,
  decimals of up to 38 digits, the years from 4713 BC to 294246, six decimals of a second, instants
  with an offset of +00:00, uuids, bytes, and arrays of all but times, uuids, bytes and arrays;
  JSON and the like are texts.
- **What looking costs**, for a table of 14 columns, five of them guarded, into ClickHouse: 4 % of
  the move over `text`, where PostgreSQL looks (12 % of its CPU time for the COPY), and 0.4 % over
  `arrow`, where the client does. `python -m tableferry_bench.guards` measures it.
- **Times without a zone** go into `DateTime64(n, 'UTC')` too: the column shows the same wall clock
  on every server, whatever its own zone.
- **Types that can be read, but not filled**: `DateTime`, `DateTime64` with more than seven
  decimals or in another zone than UTC, `Enum8` and `Enum16`, `Int128` and wider integers, and
  those that ClickHouse has for addresses, tuples and maps; `datetime`, `smalldatetime` and `money`
  of SQL Server. A target that has such a column is refused with the type that was planned; `ALTER`
  the column, or have the table made anew by `--recreate`.
- **ClickHouse's dates** are held to 1900-01-01 to 2299-12-31, or, from ClickHouse 26.9 on, to
  0001-01-01 to 9999-12-31; an older release would show another date. For others choose `Int32`
  (days since 1970-01-01), `Int64` (microseconds since then) or `String`.
- **Text in SQL Server** is nvarchar, never varchar, whose code page has no room for all of Unicode.
  Its length counts UTF-16 units, of which a character beyond U+FFFF takes two.
- **U+FFFD out of SQL Server** is refused, because the driver puts the same character in the place
  of half a surrogate pair. `on_overflow: clamp` takes it as it is.
"""


def render() -> str:
    """The page."""
    parts = [INTRODUCTION]
    for title, source, target, types in (
        ("PostgreSQL to SQL Server", "postgres", "sqlserver", POSTGRES),
        ("PostgreSQL to ClickHouse", "postgres", "clickhouse", POSTGRES),
        ("SQL Server to ClickHouse", "sqlserver", "clickhouse", SQLSERVER),
        ("SQL Server to PostgreSQL", "sqlserver", "postgres", SQLSERVER),
        ("ClickHouse to PostgreSQL", "clickhouse", "postgres", FROM_CLICKHOUSE),
    ):
        parts.append(_table(title, source, target, types))
    return "\n".join(parts)


def _table(title: str, source: str, target: str, types: list[str]) -> str:
    head = ["source type", "target type", "selected as", "wire `text`", "refused values"]
    lines = [f"## {title}", "", _row(head), _row(["---"] * len(head))]
    for type_ in types:
        cells = _cells(source, target, type_)
        lines.append(_row([cell.replace("|", "\\|") for cell in cells]))
    return "\n".join([*lines, ""])


def _cells(source: str, target: str, type_: str) -> list[str]:
    key = Column("id", "Int32" if source == "clickhouse" else "integer", False)
    table, into = TableRef(source, "s", "t"), TableRef(target, "s", "t")
    try:
        plan = plan_copy(
            table, [key, Column("x", type_)], into, key="id", target_version=CLICKHOUSE
        )
    except (TypeRefused, InputError):
        return [f"`{type_}`", "refused", _offer(source, type_), "no", "all"]
    column = plan.columns[1]
    conversion = conversion_of(column, plan)
    return [
        f"`{type_}`",
        f"`{column.target.type}`",
        _selected(conversion),
        _text(column),
        _refused(conversion),
    ]


def _offer(source: str, type_: str) -> str:
    export = system(source).types.export(type_)
    if export.as_text is None:
        return "leave it out"
    note = f" ({export.note})" if isinstance(export, Refusal) and export.note else ""
    other = "" if isinstance(export, Refusal) else ", or a decimal type of your choice"
    return f"with a text type: `{export.as_text.replace('{}', 'x')}`{note}{other}"


def _selected(conversion: Conversion) -> str:
    template = conversion.source.as_text if conversion.as_text else conversion.source.arrow
    return f"`{(template or '{}').replace('{}', 'x')}`"


def _text(column: ColumnPlan) -> str:
    return "yes" if column.text_sql else "no"


def _refused(conversion: Conversion) -> str:
    reasons = [step.reason for step in conversion.steps if not step.reason.endswith(NEVER)]
    refuse = conversion.source.refuse_text if conversion.as_text else conversion.source.refuse
    if refuse:
        reasons.append(conversion.source.refuse_reason)
    return "; ".join(reasons) or "none"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(render())
