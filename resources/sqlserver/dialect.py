"""T-SQL that SQL Server 2019+ and Babelfish 4.x read alike."""

from __future__ import annotations

import datetime as dt
import re

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.sqlserver.types import MAX_UNITS, read
from tableferry.resources.types.kinds import Text
from tableferry.resources.types.type_map import Column

BINARY = "Latin1_General_BIN2"
"""Compares text by code points, so that case and accents tell rows apart."""

KEY_ORDER = "Latin1_General_100_BIN2"
"""Orders nvarchar by UTF-16 code units. Text keys of tables that we create have this collation."""

UTF8_ORDER = "Latin1_General_100_BIN2_UTF8"
"""Orders varchar by UTF-8 bytes."""

ESCAPE = "~"
"""Escapes in LIKE, where Babelfish knows no brackets."""


def orders_text(column: Column) -> bool:
    """Whether a column's collation orders it by UTF-16 code units or UTF-8 bytes."""
    return (column.collation or "").upper().endswith("_BIN2_UTF8" if _narrow(column) else "_BIN2")


def _narrow(column: Column) -> bool:
    return read(column.type).name in ("char", "varchar")


class SqlServerDialect(Dialect):
    """See `Dialect`.

    Identifiers are in quotation marks, which need QUOTED_IDENTIFIER ON, the default of ODBC and OLE
    DB clients; bcp is told to set it. Babelfish has no escape for `]` in brackets.
    https://learn.microsoft.com/sql/t-sql/statements/set-quoted-identifier-transact-sql
    """

    count = "COUNT_BIG(*)"

    moment, now = "datetime2(6)", "SYSUTCDATETIME()"

    # SQL Server's limit is 128, but sp_rename of Babelfish finds no table with a longer name
    longest_name = 63

    longest_identifier = 128
    """In UTF-16 code units: the type of names is nvarchar(128).
    https://learn.microsoft.com/sql/relational-databases/databases/database-identifiers"""

    # nor does it read doubled quotes, where `]` rules out brackets
    not_in_shadows = '"'

    # CASE is nested ten deep. A balanced tree of these needs eight, one more if there are gaps
    # between them, and one more if the key may be NULL.
    # https://learn.microsoft.com/sql/t-sql/language-elements/case-transact-sql
    most_branches = 250

    def literal(self, text: str) -> str:
        """A Unicode constant."""
        return "N" + super().literal(text)

    def constant(self, text: str, column: Column) -> str:
        """A text that is converted to the type of the column.

        Times are written as ISO 8601, which does not depend on the session's language. datetime and
        smalldatetime refuse more digits than they have, and are converted from datetime2.
        https://learn.microsoft.com/sql/t-sql/data-types/datetime2-transact-sql
        """
        kind = column.type.partition("(")[0]
        if kind in ("datetime", "smalldatetime", "datetime2", "datetimeoffset"):
            text = text.replace(" ", "T", 1).replace("Z", "+00:00")
        if kind in ("datetime", "smalldatetime"):
            return f"CAST({self.literal(text)} AS datetime2(7))"
        return self.literal(text)

    def scripted(self, statement: str) -> str:
        """sqlcmd replaces `$(name)`, and takes a line `GO` for the end of a batch, in constants,
        too: such characters are written by their numbers. A constant of more than 4,000 characters
        is nvarchar(max) by itself, a sum of shorter ones is cut off without one.
        https://learn.microsoft.com/sql/tools/sqlcmd/sqlcmd-use-scripting-variables
        """
        written = _QUOTED.sub(lambda match: _without_sqlcmd(match[0]), statement)
        if match := _READ_BY_SQLCMD.search(written):
            raise InputError(
                f"sqlcmd would read {match[0].strip()!r} in a name or a condition as its own; "
                "`ferry repair` without --sql puts the rows right"
            )
        return written

    def binary(self, value: bytes, column: Column) -> str:
        """A binary constant, converted where the column has another type."""
        constant = f"0x{value.hex()}"
        if "binary" in column.type or column.type in ("image", "rowversion", "timestamp"):
            return constant
        return f"CAST({constant} AS {column.type})"

    ordered_texts = ("char", "varchar", "nchar", "nvarchar", "sysname")

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """uniqueidentifier is ordered by its last six bytes first, so uuids compare as text.

        Text compares by UTF-16 code units, whatever its code page, or by UTF-8 bytes: both put it
        on the same side of a bound of `keys.text`. An index serves this only with that very
        collation and without a conversion, so a column that has it is left alone.
        """
        if kind == "uuid":
            return f"LOWER(CAST({name} AS char(36))) COLLATE {BINARY}"
        if kind != "text" or orders_text(column):
            return name
        if _narrow(column):
            text = read(column.type).kind
            units = text.units if isinstance(text, Text) else None
            length = units if units and units <= MAX_UNITS else "max"
            name = f"CAST({name} AS nvarchar({length}))"
        return f"{name} COLLATE {KEY_ORDER}"

    def below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """SQL Server pads the shorter of two texts with blanks, which puts a text that continues a
        bound with a control character below the bound. Babelfish cuts off blanks instead."""
        condition = super().below(name, column, kind, bound)
        if kind != "text":
            return condition
        return f"{condition} AND {self._begins(name, column, bound, 'NOT LIKE')}"

    def not_below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """See `below`."""
        condition = super().not_below(name, column, kind, bound)
        if kind != "text":
            return condition
        return f"({condition} OR {self._begins(name, column, bound, 'LIKE')})"

    def _begins(self, name: str, column: Column, bound: Bound, like: str) -> str:
        pattern = re.sub(f"[%_{ESCAPE}[]", rf"{ESCAPE}\g<0>", str(bound)) + "%"
        subject = self.in_key_order(name, column, "text")
        return f"{subject} {like} {self._constant(pattern, column)} ESCAPE '{ESCAPE}'"

    def _constant(self, text: str, column: Column) -> str:
        """A text to compare a key with. A Unicode constant would convert every varchar and bypass
        the index."""
        if orders_text(column) and _narrow(column):
            return f"CAST({self.literal(text)} COLLATE {column.collation} AS varchar(8000))"
        return self.literal(text)

    def key_value(self, name: str, column: Column, kind: KeyKind) -> str:
        """A key as statistics read it."""
        if read(column.type).name == "datetimeoffset":
            return f"CAST(SWITCHOFFSET({name}, '+00:00') AS datetime2(6))"
        if kind == "timestamp":
            digits = 3 if read(column.type).name == "datetime" else 6
            return f"CAST({name} AS datetime2({digits}))"
        return self.in_key_order(name, column, kind)

    def key_extent(self, name: str, column: Column, kind: KeyKind) -> str:
        """datetime and smalldatetime print no seconds."""
        if read(column.type).name in ("datetime", "smalldatetime"):
            return f"CAST({name} AS datetime2(3))"
        return super().key_extent(name, column, kind)

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with."""
        if isinstance(bound, dt.datetime):
            text = bound.isoformat(sep="T", timespec="microseconds")
            name = read(column.type).name
            if name == "datetimeoffset":
                return f"CAST('{text}+00:00' AS datetimeoffset(6))"
            if name == "datetime" and (shown := _first_shown(bound)) is not None:
                # an index serves a comparison with the column's own type
                return f"CAST('{shown.isoformat('T', 'milliseconds')}' AS datetime)"
            return f"CAST('{text}' AS datetime2(6))"
        if isinstance(bound, dt.date):
            return f"CAST('{bound.isoformat()}' AS date)"
        if isinstance(bound, str):
            return self._constant(bound, column)
        return super().bound(bound, column)

    def limited(self, rows: int) -> tuple[str, str]:
        """TOP."""
        return f"TOP {rows} ", ""

    def exact_sum(self, number: str) -> str:
        """SUM of bigint would overflow."""
        return f"CAST(SUM(CAST({number} AS decimal(38,0))) AS varchar(40))"

    def text(self, value: str) -> str:
        """A value as the server prints it."""
        return f"CAST({value} AS nvarchar(max))"

    def exact_decimal(self, double: str, column: Column) -> str:
        """The text of a float has six digits; CAST raises an error for one that is too large."""
        return f"TRY_{self.cast(double, column)}"

    def trimmed(self, text: str) -> str:
        """TRIM takes no BOTH before SQL Server 2022."""
        return f"LTRIM(RTRIM({text}))"

    def empty_as_null(self, text: str) -> str:
        """'' equals blanks."""
        return f"CASE WHEN DATALENGTH({text}) > 0 THEN {text} END"

    def of_file(self, name: str, file: str, column: Column) -> str:
        """An index serves the plain comparison; see `grouping_key`."""
        value = self.literal(file)
        exactly = f"{self.grouping_key(name, column)} = {self.grouping_key(value, column)}"
        return f"{name} = {value} AND {exactly}"

    def grouping_key(self, name: str, column: Column) -> str:
        """Texts that differ only in case or trailing blanks compare equal."""
        kind = read(column.type).kind
        if not isinstance(kind, Text):
            return name
        if (kind.units or 0) >= MAX_UNITS:
            # a sum of shorter texts is cut off at 8,000 bytes
            name = f"CAST({name} AS nvarchar(max))"
        return f"({name} + N'.') COLLATE {KEY_ORDER}"

    def length(self, name: str) -> int:
        """See `Dialect.length`."""
        return len(name.encode("utf-16-le", "surrogatepass")) // 2

    def folded(self, name: str) -> str:
        """The usual collations ignore the case of names."""
        return name.casefold()

    def alter_column(self, table: str, name: str, before: Column, after: Column) -> tuple[str, ...]:
        """What is not restated, SQL Server takes from the database's defaults, so that a column
        would lose its collation or NOT NULL. Babelfish keeps both and lets neither be stated."""
        statement = f"ALTER TABLE {table} ALTER COLUMN {name} {after.own_type or after.type}"
        text = isinstance(read(after.type).kind, Text) and before.collation
        collation = f" COLLATE {before.collation}" if text else ""
        null = "NULL" if after.nullable else "NOT NULL"
        return (f"{statement}{collation} {null}", statement)

    def rename_column(self, schema: str, table: str, name: str, new: str) -> str:
        """Babelfish requires the object type, and its sp_rename reads no doubled quotes."""
        path = ".".join(map(without_doubled, (schema, table, name)))
        return f"EXEC sp_rename {self.literal(path)}, {self.literal(new)}, 'COLUMN'"

    def exported(self, query: str) -> str:
        """freebcp has the query described under SET FMTONLY ON, which Babelfish respects only for
        SELECT *; freebcp never ends if it gets rows instead of a description."""
        return f"SELECT * FROM ({query}) AS ferry__rows"


_QUOTED = re.compile(r"""\"(?:[^"]|\"\")*\"|\[(?:[^\]]|\]\])*\]|N?'(?:[^']|'')*'""")
"""A name or a constant."""
_READ_BY_SQLCMD = re.compile(
    r"\$\(|^[ \t]*(?:GO[ \t]*\d*[ \t]*$|:|!!|(?:ED|EXIT|QUIT|RESET)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBERED = re.compile(r"[\r\n]|\$(?=\()")


_COMMENT = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)
_NO_QUERY = re.compile(r"[\s;(]*+(?!SELECT\b|WITH\b|DECLARE\b)\w", re.IGNORECASE)
_ENDS_TRANSACTION = re.compile(r"\b(?:COMMIT|ROLLBACK|EXEC|EXECUTE)\b", re.IGNORECASE)


def is_taken_back(batch: str) -> bool:
    """Whether a rollback takes back all that a batch may write: nothing in it ends its transaction,
    or calls a procedure, which could. These words are reserved: no name is one without quotes."""
    parts = re.compile(f"({_QUOTED.pattern})|{_COMMENT.pattern}", re.DOTALL)
    code = parts.sub(lambda match: " x " if match[1] else " ", batch)
    return not (_NO_QUERY.match(code) or _ENDS_TRANSACTION.search(code))


def _without_sqlcmd(quoted: str) -> str:
    """Write the characters of a constant that sqlcmd reads by their numbers; a name as it is."""
    if not quoted.endswith("'") or not _NUMBERED.search(quoted):
        return quoted
    text = quoted[quoted.index("'") + 1 : -1]
    parts = _NUMBERED.sub(lambda match: f"' + NCHAR({ord(match[0])}) + N'", text)
    return f"(CAST(N'' AS nvarchar(max)) + N'{parts}')"


FIRST_DATETIME = dt.datetime(1753, 1, 1)
_UP_TO_SHOWN = (0, 2, 1, 0, 3, 2, 1, 0, 2, 1)
"""By its last digit, how many milliseconds follow to the next number that a datetime shows."""


def _first_shown(bound: dt.datetime) -> dt.datetime | None:
    """Return the first datetime that shows no earlier moment than a bound; None if none does.

    A datetime counts in 1/300 s, and shows .000, .003, .007: what is copied. Compared with a
    datetime2 it is not what it shows.
    https://learn.microsoft.com/sql/t-sql/data-types/datetime-transact-sql
    """
    milliseconds = -(-bound.microsecond // 1000)
    milliseconds += _UP_TO_SHOWN[milliseconds % 10]
    try:
        shown = bound.replace(microsecond=0) + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return max(shown, FIRST_DATETIME)


DIALECT = SqlServerDialect()
literal = DIALECT.literal


def without_doubled(name: str) -> str:
    """A name in brackets if it contains quotes and no bracket, else in quotes."""
    return f"[{name}]" if '"' in name and "]" not in name else DIALECT.quote(name)
