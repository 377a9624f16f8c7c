"""A translated expression, and dates as ticks of 100 ns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tableferry_local.sqlserver.types.sqltype import SqlType, storage
from tableferry_local.sqlserver.types.typerules import family

# Ticks of 1900-01-01, the day of a time without a date.
DAY_ZERO = 693_595 * 864_000_000_000


Constant = str | int | None

_QUOTED = re.compile(
    r"""
    "(?:[^"]|"")*"
    | E'(?:[^'\\]|\\.|'')*'
    | '(?P<text>(?:[^']|'')*)'(?P<cast>::text(?![\[\w]))?
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Value:
    """A T-SQL expression, as PostgreSQL SQL whose type is `storage(type)`."""

    sql: str
    type: SqlType
    nullable: bool = True
    collation: str | None = None
    """'bin' or 'cs' where case counts; None is the case-insensitive default."""
    supplementary: bool = False
    """Under a collation with _SC, which takes a surrogate pair for the one character that it is."""
    utf8: bool = False
    """Under a collation with _UTF8: as varchar it is UTF-8, not the code page."""
    is_null: bool = False
    """The constant NULL, which takes any type."""
    constant: Constant = None
    """The value of a literal text or whole number."""
    identity: bool = False
    computed: bool = False
    name: str = ""
    """The name as a result column."""


def literal(text: str) -> str:
    """A PostgreSQL text literal."""
    if "\\" in text:
        return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"


def texts_apart(sql: str, taken: int) -> tuple[str, list[str]]:
    """A statement with its constant texts as parameters: one statement for all names.

    Args:
        sql: the statement.
        taken: how many parameters it has already.

    Returns:
        The statement, and the values of the parameters behind those.
    """
    # the same text stays the same expression, which GROUP BY asks for
    numbers: dict[str, int] = {}

    def parameter(found: re.Match[str]) -> str:
        if found["cast"] is None:
            return found[0]
        text = found["text"].replace("''", "'")
        return f"${numbers.setdefault(text, taken + len(numbers) + 1)}::text"

    return _QUOTED.sub(parameter, sql), list(numbers)


def pg_type(sql_type: SqlType) -> str:
    """The storage type as it is written in a cast."""
    return storage(sql_type)


def ticks(value: Value) -> str | None:
    """The value as ticks of 100 ns since 0001-01-01, a time being on 1900-01-01."""
    name, sql = value.type.name, value.sql
    if family(value.type) == "text":
        return f"sys.text_ticks({sql})"
    if name == "datetime2" and value.type.scale == 7:
        return sql
    if name == "datetime":
        return f"sys.datetime_ticks({sql})"
    if name in ("datetime2", "smalldatetime"):
        return f"sys.ts_ticks({sql})"
    if name == "date":
        return f"sys.ts_ticks({sql}::timestamp)"
    if name == "time":
        return f"({DAY_ZERO} + {time_ticks(value)})"
    if name == "datetimeoffset":
        return f"sys.dto_local({sql})"
    return None


def time_ticks(value: Value) -> str:
    """A time value as ticks since midnight."""
    return value.sql if value.type.scale == 7 else f"sys.time_ticks({value.sql})"


def from_ticks(sql: str, to: SqlType) -> str:
    """The inverse of `ticks`, rounded as the type asks."""
    name, scale = to.name, 7 if to.scale is None else to.scale
    if name == "datetime2":
        return sql if scale == 7 else f"sys.ticks_ts({sql}, {scale})"
    if name == "datetime":
        return f"sys.to_datetime(sys.ticks_ts({sql}))"
    if name == "smalldatetime":
        return f"sys.to_smalldatetime(sys.ticks_ts({sql}))"
    if name == "date":
        return f"sys.ticks_ts({sql} / 864000000000 * 864000000000)::date"
    if name == "time":
        part = f"({sql} % 864000000000)"
        return part if scale == 7 else f"sys.ticks_time({part}, {scale})"
    return f"sys.make_dto({sql}, 0)"
