"""T-SQL that SQL Server 2019+ and Babelfish 4.x read alike."""

from __future__ import annotations

import datetime as dt

from resources.keys.range import Bound, KeyKind
from resources.keys.sql import MOST_RANGES
from resources.sqlserver.types import read
from resources.system import Dialect
from resources.tables import Column
from resources.types.kinds import Text

BINARY = "Latin1_General_BIN2"
"""Compares text by code points."""


class SqlServerDialect(Dialect):
    """See `Dialect`.

    Identifiers stand in quotation marks, which need QUOTED_IDENTIFIER to be ON, as it is for ODBC
    and OLE DB clients, and as bcp is told to set it. Babelfish has no escape for `]` in brackets.
    https://learn.microsoft.com/sql/t-sql/statements/set-quoted-identifier-transact-sql
    """

    count = "COUNT_BIG(*)"

    most_branches = MOST_RANGES

    def literal(self, text: str) -> str:
        """A Unicode constant."""
        return "N" + super().literal(text)

    def in_key_order(self, name: str, kind: KeyKind) -> str:
        """uniqueidentifier is ordered by its last six bytes first, so uuids compare as text."""
        return f"LOWER(CAST({name} AS char(36))) COLLATE {BINARY}" if kind == "uuid" else name

    def key_value(self, name: str, column: Column, kind: KeyKind) -> str:
        """A key as statistics read it."""
        if read(column.type).name == "datetimeoffset":
            return f"CAST(SWITCHOFFSET({name}, '+00:00') AS datetime2(6))"
        return (
            f"CAST({name} AS datetime2(6))"
            if kind == "timestamp"
            else self.in_key_order(name, kind)
        )

    def key_extent(self, name: str, column: Column, kind: KeyKind) -> str:
        """The text of the older types has no seconds."""
        if read(column.type).name in ("datetime", "smalldatetime"):
            return f"CAST({name} AS datetime2(7))"
        return super().key_extent(name, column, kind)

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with."""
        if isinstance(bound, dt.datetime):
            text = bound.isoformat(sep="T", timespec="microseconds")
            if read(column.type).name == "datetimeoffset":
                return f"CAST('{text}+00:00' AS datetimeoffset(6))"
            return f"CAST('{text}' AS datetime2(6))"
        if isinstance(bound, dt.date):
            return f"CAST('{bound.isoformat()}' AS date)"
        return super().bound(bound, column)

    def limited(self, rows: int) -> tuple[str, str]:
        """TOP."""
        return f"TOP {rows} ", ""

    def exact_sum(self, number: str) -> str:
        """SUM of bigint overflows."""
        return f"CAST(SUM(CAST({number} AS decimal(38,0))) AS varchar(40))"

    def text(self, value: str) -> str:
        """A value as the server prints it."""
        return f"CAST({value} AS nvarchar(max))"

    def of_file(self, name: str, file: str, column: Column) -> str:
        """The plain comparison is what an index serves; see `told_apart`."""
        value = self.literal(file)
        told, other = self.told_apart(name, column), self.told_apart(value, column)
        return f"{name} = {value} AND {told} = {other}"

    def told_apart(self, name: str, column: Column) -> str:
        """Texts compare equal also where they differ in case or in trailing blanks."""
        if isinstance(read(column.type).kind, Text):
            return f"({name} + N'.') COLLATE Latin1_General_100_BIN2"
        return name

    def folded(self, name: str) -> str:
        """The usual collations do not tell names apart by case."""
        return name.casefold()

    def exported(self, query: str) -> str:
        """freebcp has the query described by SET FMTONLY ON, which Babelfish heeds only where it
        reads SELECT *; rows in the place of a description keep freebcp busy for ever."""
        return f"SELECT * FROM ({query}) AS ferry__rows"
