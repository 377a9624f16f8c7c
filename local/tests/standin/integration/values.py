"""Every type of the SQL Server stand-in: what goes in as T-SQL, what each client makes of it."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_SAME = object()


@dataclass(frozen=True)
class Case:
    """A column of the table that all clients read."""

    type: str
    literals: tuple[str, ...]
    """T-SQL expressions, one per row."""
    values: tuple[Any, ...]
    """What ODBC gives for them."""
    bcp: tuple[str, ...]
    """What freebcp prints for them in character mode: times always as datetime, to the ms."""
    arrow_values: Any = _SAME
    pymssql_values: Any = _SAME

    @property
    def column(self) -> str:
        return "c_" + "".join(char if char.isalnum() else "_" for char in self.type).rstrip("_")

    @property
    def arrow(self) -> tuple[Any, ...]:
        """What the Arrow reader gives."""
        return self.values if self.arrow_values is _SAME else tuple(self.arrow_values)

    @property
    def pymssql(self) -> tuple[Any, ...]:
        """What pymssql gives."""
        return self.values if self.pymssql_values is _SAME else tuple(self.pymssql_values)


def _offset(minutes: int) -> dt.timezone:
    return dt.timezone(dt.timedelta(minutes=minutes))


_GUID = uuid.UUID("00112233-4455-6677-8899-AABBCCDDEEFF")
_LONG = "Ωé😀" * 5000

CASES = [
    Case("tinyint", ("0", "255"), (0, 255), ("0", "255")),
    Case("smallint", ("-32768", "32767"), (-32768, 32767), ("-32768", "32767")),
    Case("int", ("-2147483648", "2147483647"), (-(2**31), 2**31 - 1),
         ("-2147483648", "2147483647")),
    Case(
        "bigint",
        ("-9223372036854775808", "9223372036854775807"),
        (-(2**63), 2**63 - 1),
        ("-9223372036854775808", "9223372036854775807"),
    ),
    Case("bit", ("0", "1"), (False, True), ("0", "1")),
    Case("decimal(5,0)", ("-99999", "7"), (Decimal(-99999), Decimal(7)), ("-99999", "7")),
    Case(
        "numeric(18,6)",
        ("-999999999999.999999", "0.000001"),
        (Decimal("-999999999999.999999"), Decimal("0.000001")),
        ("-999999999999.999999", "0.000001"),
    ),
    Case(
        "decimal(38,10)",
        ("9999999999999999999999999999.9999999999", "-0.0000000001"),
        (Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001")),
        ("9999999999999999999999999999.9999999999", "-0.0000000001"),
    ),
    Case(
        "money",
        ("-922337203685477.5808", "922337203685477.5807"),
        (Decimal("-922337203685477.5808"), Decimal("922337203685477.5807")),
        ("-922337203685477.5808", "922337203685477.5807"),
    ),
    Case(
        "smallmoney",
        ("-214748.3648", "1.5"),
        (Decimal("-214748.3648"), Decimal("1.5000")),
        ("-214748.3648", "1.5000"),
    ),
    Case("float", ("5e-324", "-1.7976931348623157e308"), (5e-324, -1.7976931348623157e308),
         ("4.9406564584124654e-324", "-1.7976931348623157e+308")),
    Case("real", ("1.5", "-3.4028235e38"), (1.5, -3.4028234663852886e38),
         ("1.5", "-3.40282347e+38")),
    Case("char(5)", ("'ab'", "''"), ("ab   ", "     "), ("ab   ", "     ")),
    Case("varchar(20)", ("'é€ x '", "''"), ("é€ x ", ""), ("é€ x ", "\0")),
    Case("varchar(max)", ("REPLICATE(CAST('ab' AS varchar(max)), 10000)", "' '"),
         ("ab" * 10000, " "), ("ab" * 10000, " ")),
    Case("nchar(5)", ("N'Ω'", "N'😀b'"), ("Ω    ", "😀b  "), ("Ω    ", "😀b  ")),
    Case("nvarchar(20)", ("N'Ωé😀 '", "N''"), ("Ωé😀 ", ""), ("Ωé😀 ", "\0")),
    Case("nvarchar(max)", ("REPLICATE(CAST(N'Ωé😀' AS nvarchar(max)), 5000)", "N''"),
         (_LONG, ""), (_LONG, "\0")),
    Case("binary(4)", ("0x0102", "0xFF"), (b"\1\2\0\0", b"\xff\0\0\0"), ("01020000", "ff000000")),
    Case("varbinary(20)", ("0x00FF10", "0x"), (b"\0\xff\x10", b""), ("00ff10", "\0")),
    Case("varbinary(max)", ("CAST(REPLICATE(CAST('z' AS varchar(max)), 9000) AS varbinary(max))",
         "0x01"), (b"z" * 9000, b"\1"), ("7a" * 9000, "01")),
    Case("date", ("'0001-01-01'", "'9999-12-31'"), (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
         ("1-01-01 00:00:00.000", "9999-12-31 00:00:00.000")),
    Case("time(0)", ("'23:59:59'", "'00:00:00'"), (dt.time(23, 59, 59), dt.time()),
         ("1900-01-01 23:59:59.000", "1900-01-01 00:00:00.000")),
    Case("time(6)", ("'23:59:59.999999'", "'00:00:00.000001'"),
         (dt.time(23, 59, 59, 999999), dt.time(microsecond=1)),
         ("1900-01-01 23:59:59.999", "1900-01-01 00:00:00.000")),
    Case("time(7)", ("'23:59:59.9999999'", "'12:00:00.0000010'"),
         (dt.time(23, 59, 59, 999999), dt.time(12, microsecond=1)),
         ("1900-01-01 23:59:59.999", "1900-01-01 12:00:00.000")),
    Case("smalldatetime", ("'1900-01-01'", "'2079-06-06 23:59'"),
         (dt.datetime(1900, 1, 1), dt.datetime(2079, 6, 6, 23, 59)),
         ("1900-01-01 00:00:00.000", "2079-06-06 23:59:00.000")),
    Case("datetime", ("'1753-01-01'", "'9999-12-31T23:59:59.997'"),
         (dt.datetime(1753, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 997000)),
         ("1753-01-01 00:00:00.000", "9999-12-31 23:59:59.997")),
    Case("datetime2(0)", ("'0001-01-01'", "'2024-02-29 12:34:56'"),
         (dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 12, 34, 56)),
         ("1-01-01 00:00:00.000", "2024-02-29 12:34:56.000")),
    Case("datetime2(6)", ("'0001-01-01'", "'9999-12-31 23:59:59.999999'"),
         (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
         ("1-01-01 00:00:00.000", "9999-12-31 23:59:59.999")),
    Case("datetime2(7)", ("'0001-01-01'", "'9999-12-31 23:59:59.9999999'"),
         (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
         ("1-01-01 00:00:00.000", "9999-12-31 23:59:59.999")),
    Case("datetimeoffset(7)",
         ("'2024-02-29 12:34:56.1234560 +05:30'", "'0001-01-01 00:00:00 +00:00'"),
         (dt.datetime(2024, 2, 29, 12, 34, 56, 123456, _offset(330)),
          dt.datetime(1, 1, 1, tzinfo=_offset(0))),
         ("2024-02-29 12:34:56.123", "1-01-01 00:00:00.000")),
    Case("uniqueidentifier", ("'00112233-4455-6677-8899-AABBCCDDEEFF'", f"'{uuid.UUID(int=1)}'"),
         (_GUID, uuid.UUID(int=1)), (str(_GUID).upper(), str(uuid.UUID(int=1))),
         arrow_values=(str(_GUID).upper(), str(uuid.UUID(int=1)))),
    Case("xml", ("N'<a>é</a>'", "N'<b/>'"), ("<a>é</a>", "<b/>"), ("<a>é</a>", "<b/>")),
]  # fmt: skip

# What freebcp can load in character mode: type, text in the file, value. It takes year 1 for 2001,
# knows no datetimeoffset, cuts trailing blanks, and tells the server about xml columns what no
# server understands.
LOADABLE = [
    ("tinyint", "255", 255),
    ("smallint", "-32768", -32768),
    ("int", "2147483647", 2**31 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bit", "1", True),
    ("decimal(38,10)", "-9999999999999999999999999999.9999999999",
     Decimal("-9999999999999999999999999999.9999999999")),
    ("numeric(5,2)", "0.07", Decimal("0.07")),
    ("money", "-922337203685477.5808", Decimal("-922337203685477.5808")),
    ("smallmoney", "214748.3647", Decimal("214748.3647")),
    ("float", "-1.7976931348623157e+308", -1.7976931348623157e308),
    ("real", "1.5", 1.5),
    ("char(5)", "é ", "é    "),
    ("varchar(20)", "é€ß ~ ", "é€ß ~"),
    ("varchar(max)", "ab" * 10000, "ab" * 10000),
    ("nchar(5)", "😀b", "😀b  "),
    ("nvarchar(20)", "Ωé😀\t\n ", "Ωé😀\t\n"),
    ("nvarchar(max)", _LONG, _LONG),
    ("nvarchar(9)", "\0", ""),
    ("binary(4)", "0102", b"\1\2\0\0"),
    ("varbinary(20)", "00ff", b"\0\xff"),
    ("varbinary(max)", "7a" * 9000, b"z" * 9000),
    ("text", "abc", "abc"),
    ("ntext", "Ω😀", "Ω😀"),
    ("image", "00ff", b"\0\xff"),
    ("date", "9999-12-31", dt.date(9999, 12, 31)),
    ("time(6)", "23:59:59.999999", dt.time(23, 59, 59, 999999)),
    ("datetime", "1753-01-01 00:00:00.003", dt.datetime(1753, 1, 1, 0, 0, 0, 3000)),
    ("smalldatetime", "2079-06-06 23:59", dt.datetime(2079, 6, 6, 23, 59)),
    ("datetime2(3)", "2020-02-29 01:02:03.123", dt.datetime(2020, 2, 29, 1, 2, 3, 123000)),
    ("datetime2(6)", "9999-12-31 23:59:59.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("uniqueidentifier", "00112233-4455-6677-8899-AABBCCDDEEFF", _GUID),
]  # fmt: skip
