"""T-SQL's type rules: parsing, precedence, and the type of an operation's result."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import ALIASES, MAX, SYSTEM_TYPES, SqlType

INT = SqlType("int")
BIGINT = SqlType("bigint")
SMALLINT = SqlType("smallint")
FLOAT = SqlType("float")
REAL = SqlType("real")
DATE = SqlType("date")
DATETIME = SqlType("datetime")
DATETIME2 = SqlType("datetime2", scale=7)
GUID = SqlType("uniqueidentifier")
NVARCHAR_MAX = SqlType("nvarchar", MAX)
SYSNAME = SqlType("nvarchar", 128)

# learn.microsoft.com/sql/t-sql/data-types/data-type-precedence-transact-sql, highest first
_PRECEDENCE = [
    "xml", "datetimeoffset", "datetime2", "datetime", "smalldatetime", "date",
    "time", "float", "real", "decimal", "numeric", "money", "smallmoney", "bigint", "int",
    "smallint", "tinyint", "bit", "ntext", "text", "image", "timestamp", "uniqueidentifier",
    "nvarchar", "nchar", "varchar", "char", "varbinary", "binary",
]  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(_PRECEDENCE)}

INTEGERS = {"bigint": 19, "int": 10, "smallint": 5, "tinyint": 3, "bit": 1}
DECIMALS = {"decimal", "numeric", "money", "smallmoney"}
FLOATS = {"float", "real"}
DATES = {"date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset"}
TEXTS = {"char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml"}
BINARIES = {"binary", "varbinary", "image", "timestamp"}


def family(sql_type: SqlType) -> str:
    """Which conversions apply: int, dec, float, date, text, binary or guid."""
    name = sql_type.name
    if name in INTEGERS:
        return "int"
    if name in DECIMALS:
        return "dec"
    if name in FLOATS:
        return "float"
    if name in DATES:
        return "date"
    if name in TEXTS:
        return "text"
    return "guid" if name == "uniqueidentifier" else "binary"


@functools.lru_cache(maxsize=1024)
def parse_type(text: str, *, in_cast: bool = False) -> SqlType:
    """Parse a declared type such as `nvarchar(max)`, with T-SQL's defaults filled in.

    Args:
        text: the type, without collation or nullability.
        in_cast: the default length of characters and bytes is 30, not 1.

    Raises:
        SqlError: 243 or 2715, there is no such type; 1001 or 2750, its size is impossible.
    """
    found = re.fullmatch(r"\s*\[?(\w+)\]?\s*(?:\(\s*([\w-]+)\s*(?:,\s*([\d-]+)\s*)?\))?\s*", text)
    name = found[1].lower() if found else text
    name = ALIASES.get(name, name)
    if not found or name not in SYSTEM_TYPES:
        raise SqlError(2715, 16, f"Column, parameter, or variable: Cannot find data type {text}.")
    first, second = found[2], found[3]
    if name == "sysname":
        return SYSNAME
    if name in ("char", "nchar", "varchar", "nvarchar", "binary", "varbinary"):
        if first and first.lower() == "max" and name.startswith(("var", "nvar")):
            return SqlType(name, MAX)
        length = int(first) if first else 30 if in_cast else 1
        if not 1 <= length <= max_length(name):
            raise SqlError(
                131, 15, f"The size ({length}) given to the type '{name}' exceeds the maximum "
                f"allowed for any data type ({max_length(name)})."
            )  # fmt: skip
        return SqlType(name, length)
    if name in ("decimal", "numeric"):
        precision, scale = int(first or 18), int(second or 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise SqlError(
                2750, 16, f"Column or parameter: Specified column precision {precision} is greater "
                "than the maximum precision of 38."
            )  # fmt: skip
        return SqlType(name, precision=precision, scale=scale)
    if name in ("time", "datetime2", "datetimeoffset"):
        scale = int(first) if first else 7
        if not 0 <= scale <= 7:
            raise SqlError(1002, 15, f"Line 1: Specified scale {scale} is invalid.")
        return SqlType(name, scale=scale)
    if name == "float":
        return REAL if first and int(first) <= 24 else FLOAT
    return SqlType(name)


def max_length(name: str) -> int:
    """The largest length in characters or bytes that is not `max`."""
    return 4000 if name.startswith("n") else 8000


def text_type(unicode: bool, length: int) -> SqlType:
    """A variable text type of at most `length` characters (MAX or any number)."""
    name = "nvarchar" if unicode else "varchar"
    if length == MAX:
        return SqlType(name, MAX)
    return SqlType(name, max(1, min(length, max_length(name))))


def text_length(sql_type: SqlType) -> int:
    """How many characters a value takes at most when it is converted to text."""
    name = sql_type.name
    if name in TEXTS or name in BINARIES:
        return MAX if sql_type.length is None else sql_type.length
    if name in ("decimal", "numeric"):
        return (sql_type.precision or 18) + 3
    return _SHOWN.get(name, 34)


_SHOWN = {
    "tinyint": 3, "smallint": 6, "int": 12, "bigint": 20, "bit": 1, "real": 24, "float": 24,
    "money": 22, "smallmoney": 13, "uniqueidentifier": 36, "date": 10, "time": 16,
}  # fmt: skip


def as_decimal(sql_type: SqlType) -> tuple[int, int]:
    """Precision and scale that an exact number has among decimals."""
    if sql_type.name in INTEGERS:
        return INTEGERS[sql_type.name], 0
    if sql_type.name in ("money", "smallmoney"):
        return (19, 4) if sql_type.name == "money" else (10, 4)
    return sql_type.precision or 18, sql_type.scale or 0


def common_type(first: SqlType, second: SqlType) -> SqlType:
    """The type that CASE, COALESCE, UNION and comparisons give two types."""
    if first == second:
        return first
    higher, lower = sorted((first, second), key=lambda item: _RANK.get(item.name, 99))
    if higher.name in ("decimal", "numeric") and family(lower) in ("dec", "int"):
        p1, s1 = as_decimal(higher)
        p2, s2 = as_decimal(lower)
        scale = max(s1, s2)
        return SqlType(higher.name, precision=min(38, max(p1 - s1, p2 - s2) + scale), scale=scale)
    if family(higher) == "text" and family(lower) == "text":
        # ISNULL('abc', N'x') and the like: Unicode wins, varying wins, the longer wins
        if higher.name in ("xml", "text", "ntext"):
            return higher
        longest = _longer(higher, lower)
        unicode = higher.is_unicode or lower.is_unicode
        if {higher.name, lower.name} <= {"char", "nchar"} and higher.length == lower.length:
            return SqlType("nchar" if unicode else "char", longest)
        return text_type(unicode, longest)
    if family(higher) == "binary" and family(lower) == "binary":
        return SqlType("varbinary", _longer(higher, lower))
    if family(higher) == "text" and family(lower) == "binary":
        return higher
    if higher.name == lower.name and higher.scale is not None:
        return replace(higher, scale=max(higher.scale, lower.scale or 0))
    return higher


def _longer(first: SqlType, second: SqlType) -> int:
    lengths = (text_length(first), text_length(second))
    return MAX if MAX in lengths else max(lengths)


def arithmetic(
    operator: str,
    left: SqlType,
    right: SqlType,
    left_digits: int | None = None,
    right_digits: int | None = None,
) -> SqlType:
    """The type of `left operator right` for numbers, by SQL Server's rules.

    Args:
        left_digits: the digits of a whole literal, which has no others.
        right_digits: likewise.

    See learn.microsoft.com/sql/t-sql/data-types/precision-scale-and-length-transact-sql.
    """
    result = left if _RANK[left.name] < _RANK[right.name] else right
    if result.name not in ("decimal", "numeric"):
        return result
    p1, s1 = (left_digits, 0) if left_digits else as_decimal(left)
    p2, s2 = (right_digits, 0) if right_digits else as_decimal(right)
    if operator in "+-":
        scale = max(s1, s2)
        precision = scale + max(p1 - s1, p2 - s2) + 1
        if precision > 38:
            scale = min(scale, 38 - max(p1 - s1, p2 - s2)) if precision - scale < 38 else 0
            precision, scale = 38, max(scale, 0)
        return SqlType("numeric", precision=precision, scale=scale)
    if operator == "%":
        scale = max(s1, s2)
        return SqlType("numeric", precision=min(38, min(p1 - s1, p2 - s2) + scale), scale=scale)
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    if precision > 38:
        integral = precision - scale
        scale = min(scale, 38 - integral) if integral < 32 else min(scale, 6)
        precision = 38
    return SqlType("numeric", precision=precision, scale=max(scale, 0))
