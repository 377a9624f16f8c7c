"""Renders docs/types.md from the type map: `python -m docs.tools.types_page > docs/types.md`."""

from __future__ import annotations

import sys

from tableferry.resources.columns.conversions import conversion_of
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.errors import InputError, TypeRefused
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Conversion, Refusal
from tableferry.resources.types.type_map import Column

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

SHORT = 60
"""SQL of more characters is left to dry runs."""

ARROW_ALONE = {("sqlserver", "postgres"), ("clickhouse", "postgres")}
"""Routes that have no other wire."""
NEVER = "cannot be converted"
"""The reason of steps that every value passes."""

INTRODUCTION = """# Types

<!-- Made by `python -m docs.tools.types_page > docs/types.md`; a test fails when it is stale. -->

Look up here what each column type becomes, and which of its values are refused. [Values that do not
fit](values-that-do-not-fit.md) goes through your choices for them: another `type`, `on_overflow` or `cast`. Any type is
accepted that can hold the source type's values exactly, and a text type takes every column.

## All systems

- **NULL.** A target column is nullable if its source is, or under `on_overflow: null`. A `NOT NULL` of PostgreSQL counts
  only if no row can break it: not on a foreign table, not before it is validated (18), not if inheriting tables may have
  NULL, not in a domain. ClickHouse's arrays cannot be NULL, but their elements can.
- **Special columns.** Domains travel as their base type, generated and identity columns by value.
- **Names** stay as they are unless you rename them. A name that a server would cut or misread is refused, and the error
  proposes another: more than 63 bytes (PostgreSQL), 128 characters or two that differ only in case (SQL Server), 255 bytes
  in a part of a path (files). ClickHouse has reserved names (`_range`, `_part`, `_row_exists`, `_block_number`,
  `_block_offset`), and reads `a.x` next to a column `a` or an array `a.y` as Nested.
- **`clamp`** still refuses NaN, which has no nearest value, and a NULL array in ClickHouse.
- **Wires.** `arrow` carries everything. `text` carries no bytes out of SQL Server, no bytes or arrays into ClickHouse, and
  no column with `null` or `clamp`, which it could not count.

## By system

**PostgreSQL.** Between two PostgreSQL servers every type keeps its declaration and all values, infinite and early ones too.
Into PostgreSQL, seconds have at most six decimals and text has no NUL characters. Text keeps its declared length as varchar,
also where its source pads it.

**SQL Server.** Text becomes nvarchar, as the code page of varchar lacks most of Unicode. Its length counts UTF-16 units; a
character beyond U+FFFF takes two. From SQL Server:

- U+FFFD is refused, because the driver writes it for half a surrogate pair; `on_overflow: clamp` accepts it. The wire
  `text` refuses NUL characters.
- `datetime` counts 1/300 s and shows .000, .003 and .007. What it shows is copied, compared, and used for bounds.
- Over `text`, a float that the server does not read back from 17 digits is refused; use `arrow`.

**ClickHouse.**

- Dates are limited to 1900-01-01 to 2299-12-31, from ClickHouse 26.9 on to 0001-01-01 to 9999-12-31. For others choose `Int32`
  (days since 1970-01-01), `Int64` (microseconds since then) or `String`.
- Times without a zone become `DateTime64(n, 'UTC')`, which shows the same wall clock on every server.
- Floats need `arrow` before 26.7: older releases misread their last bits in every text format.

**Files.** See [what Parquet's types become](files.md#what-parquets-types-become) and [what texts
become](files.md#what-texts-become). Parquet targets take DuckDB's types: decimals of up to 38 digits,
years from 4713 BC to 294246, and six decimals of a second. Instants need an offset of +00:00. Arrays may not be of times, uuids,
bytes or arrays.

## Types that can be read, but not filled

| system | types |
|---|---|
| ClickHouse | `DateTime`; `DateTime64` with more than seven decimals or a zone other than UTC; `Enum8`, `Enum16`; `Int128` and wider integers; addresses, tuples and maps |
| SQL Server | `datetime`, `smalldatetime`, `money` |

A target with such a column is refused, and the error names the planned type: `ALTER` the column, or recreate the
table with `--recreate`.

## How to read the tables

*By* is followed by how the text of the column `x` is made; *an expression* is SQL that `ferry run T --dry-run` shows.
The wire `text` does not carry columns marked \\*. A type with the target *none* is refused until you declare one. Letters
say [which values](#reasons) are refused.
"""  # noqa: E501


def render() -> str:
    """The page."""
    reasons: dict[str, str] = {}
    parts = [INTRODUCTION]
    for title, source, target, types in (
        ("PostgreSQL to SQL Server", "postgres", "sqlserver", POSTGRES),
        ("PostgreSQL to ClickHouse", "postgres", "clickhouse", POSTGRES),
        ("SQL Server to ClickHouse", "sqlserver", "clickhouse", SQLSERVER),
        ("SQL Server to PostgreSQL", "sqlserver", "postgres", SQLSERVER),
        ("ClickHouse to PostgreSQL", "clickhouse", "postgres", FROM_CLICKHOUSE),
    ):
        parts.append(_table(title, source, target, types, reasons))
    return "\n".join([*parts, _reasons(reasons)])


def _table(title: str, source: str, target: str, types: list[str], reasons: dict[str, str]) -> str:
    head = ["source type", "target type", "refused values"]
    lines = [f"## {title}", "", _row(head), "|---" * len(head) + "|"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for type_ in types:
        alike.setdefault(tuple(_cells(source, target, type_, reasons)), []).append(type_)
    for told, names in alike.items():
        lines.append(_row([", ".join(f"`{name}`" for name in names), *told]))
    return "\n".join([*lines, ""])


def _reasons(letters: dict[str, str]) -> str:
    lines = ["## Reasons", "", _row(["", "the value"]), "|---|---|"]
    return "\n".join([*lines, *(_row([letter, reason]) for reason, letter in letters.items()), ""])


def _cells(source: str, target: str, type_: str, reasons: dict[str, str]) -> list[str]:
    """What the table says of a type: its other cells."""
    key = Column("id", "Int32" if source == "clickhouse" else "integer", False)
    table, into = TableRef(source, "s", "t"), TableRef(target, "s", "t")
    try:
        plan = plan_copy(
            table, [key, Column("x", type_)], into, key="id", target_version=CLICKHOUSE
        )
    except (TypeRefused, InputError):
        return [f"none; {_offer(source, type_)}", ""]
    column = plan.columns[1]
    conversion = conversion_of(column, plan)
    mark = "" if column.text_sql or (source, target) in ARROW_ALONE else "\\*"
    is_text = column.target.type.startswith(("nvarchar", "String", "text"))
    selected = _selected(conversion) if is_text else ""
    target_type = f"`{column.target.type}`{mark}{selected}"
    return [target_type, _refused(conversion, reasons)]


def _offer(source: str, type_: str) -> str:
    export = system(source).types.export(type_)
    if export.as_text is None:
        return "leave it out"
    note = f" ({export.note})" if isinstance(export, Refusal) and export.note else ""
    other = "" if isinstance(export, Refusal) else ", or a decimal type of your choice"
    return f"as text: {_sql(export.as_text)}{note}{other}"


def _selected(conversion: Conversion) -> str:
    """How a value is selected, unless the column alone is."""
    template = conversion.source.as_text if conversion.as_text else conversion.source.arrow
    return f" by {_sql(template)}" if template and template != "{}" else ""


def _sql(template: str) -> str:
    sql = template.replace("{}", "x").replace("|", "\\|")
    return f"`{sql}`" if len(sql) <= SHORT else "an expression"


def _refused(conversion: Conversion, letters: dict[str, str]) -> str:
    reasons = [step.reason for step in conversion.steps if not step.reason.endswith(NEVER)]
    refuse = conversion.source.refuse_text if conversion.as_text else conversion.source.refuse
    if refuse:
        reasons.append(conversion.source.refuse_reason)
    for reason in reasons:
        letters.setdefault(reason, chr(ord("A") + len(letters)))
    return ", ".join(letters[reason] for reason in reasons)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(render())
