"""What T-SQL expressions are worth, and of which type: the engine on a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from local.tests.standin.integration.tsql_session import Session

from tableferry_local.stack import Stack

D = Decimal
TICK = "CAST('2020-01-01T00:00:00.267' AS datetime)"


def ticks(text: str) -> int:
    """datetime2(7) as the engine keeps it: 100 ns since 0001-01-01."""
    day, _, time = text.partition(" ")
    clock, _, fraction = (time or "00:00:00").partition(".")
    whole = dt.datetime.fromisoformat(f"{day} {clock}") - dt.datetime(1, 1, 1)
    return (whole.days * 86400 + whole.seconds) * 10_000_000 + int(fraction.ljust(7, "0"))


@pytest.fixture(scope="module")
def session(local_stack: Stack) -> Iterator[Session]:
    with psycopg.connect(local_stack.postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE tsql_expressions")
    found = Session(local_stack.postgres_url.rpartition("/")[0] + "/tsql_expressions")
    yield found
    found.engine.close()


VALUES: list[tuple[str, Any, str]] = [
    # literals
    ("1", 1, "int"),
    ("-2147483648", -(2**31), "int"),
    ("2147483648", D(2147483648), "numeric(10,0)"),
    ("1.50", D("1.50"), "numeric(3,2)"),
    ("1e3", 1000.0, "float"),
    ("'abc'", "abc", "varchar(3)"),
    ("N'abc'", "abc", "nvarchar(3)"),
    ("''", "", "varchar(1)"),
    ("'it''s'", "it's", "varchar(4)"),
    ("'a\\b'", "a\\b", "varchar(3)"),
    ("'€'", "€", "varchar(1)"),
    ("'日'", "?", "varchar(1)"),
    ("'😀'", "??", "varchar(2)"),
    ("N'😀'", "😀", "nvarchar(2)"),
    ("0x00FF", b"\x00\xff", "varbinary(2)"),
    ("0x", b"", "varbinary(1)"),
    ("NULL", None, "int"),
    # arithmetic
    ("7 / 2", 3, "int"),
    ("-7 / 2", -3, "int"),
    ("-7 % 3", -1, "int"),
    ("7 / 2.0", D("3.500000"), "numeric(8,6)"),
    ("2.0 / 3", D("0.666666"), "numeric(7,6)"),
    ("1.5 + 1", D("2.5"), "numeric(3,1)"),
    ("1.10 * 1.10", D("1.2100"), "numeric(7,4)"),
    ("1 + 1e0", 2.0, "float"),
    ("CONVERT(varchar(40), 0e0, 3)", "0.0000000000000000e+000", "varchar(40)"),
    ("CONVERT(varchar(40), -0e0, 3)", "-0.0000000000000000e+000", "varchar(40)"),
    ("CONVERT(varchar(40), 0.1e0, 3)", "1.0000000000000001e-001", "varchar(40)"),
    ("CAST(200 AS tinyint) + CAST(50 AS tinyint)", 250, "tinyint"),
    ("CAST(1 AS bigint) + 1", 2, "bigint"),
    ("'5' + 1", 6, "int"),
    ("'a' + 'b'", "ab", "varchar(2)"),
    ("N'a' + 'b'", "ab", "nvarchar(2)"),
    ("'a' + NULL", None, "varchar(2)"),
    # conversions
    ("CAST(1.9 AS int)", 1, "int"),
    ("CAST(-1.9e0 AS int)", -1, "int"),
    ("CAST(1.005 AS decimal(10,2))", D("1.01"), "decimal(10,2)"),
    ("TRY_CAST(999.994e0 AS decimal(5,2))", D("999.99"), "decimal(5,2)"),
    ("TRY_CAST(999.995e0 AS decimal(5,2))", None, "decimal(5,2)"),
    ("CAST('' AS int)", 0, "int"),
    ("CAST(' 12 ' AS int)", 12, "int"),
    ("CAST(2 AS bit)", 1, "bit"),
    ("CAST('true' AS bit)", 1, "bit"),
    ("CAST('abcdef' AS varchar(3))", "abc", "varchar(3)"),
    ("CAST('ab' AS char(4))", "ab  ", "char(4)"),
    ("CAST(N'日a' AS varchar(5))", "?a", "varchar(5)"),
    ("CAST('abc' AS nvarchar(max))", "abc", "nvarchar(max)"),
    ("CAST(1234567.0e0 AS varchar(30))", "1.23457e+006", "varchar(30)"),
    ("CAST(0.1e0 AS varchar(30))", "0.1", "varchar(30)"),
    ("CAST(1.50 AS varchar(10))", "1.50", "varchar(10)"),
    ("CAST(0x4142 AS varchar(10))", "AB", "varchar(10)"),
    ("CAST('AB' AS varbinary(10))", b"AB", "varbinary(10)"),
    ("CAST(N'AB' AS varbinary(10))", b"A\0B\0", "varbinary(10)"),
    ("CAST(0x01 AS binary(3))", b"\1\0\0", "binary(3)"),
    ("CAST(0x0100 AS int)", 256, "int"),
    ("CAST(1.5e0 AS binary(8))", b"\x3f\xf8" + bytes(6), "binary(8)"),
    ("CAST('2020-02-29' AS date)", dt.date(2020, 2, 29), "date"),
    ("CAST('20200229' AS date)", dt.date(2020, 2, 29), "date"),
    ("CAST('0001-01-01' AS datetime2)", 0, "datetime2(7)"),
    (
        "CAST('9999-12-31 23:59:59.9999999' AS datetime2)",
        ticks("9999-12-31 23:59:59.9999999"),
        "datetime2(7)",
    ),
    (
        "CAST('2020-01-01T10:11:12.1234567' AS datetime2(3))",
        dt.datetime(2020, 1, 1, 10, 11, 12, 123000),
        "datetime2(3)",
    ),
    (
        "CAST('9999-12-31 23:59:59.9999999' AS datetime2(0))",
        dt.datetime(9999, 12, 31, 23, 59, 59),
        "datetime2(0)",
    ),
    (
        "CAST(CAST('9999-12-31 23:59:59.999999' AS datetime2(6)) AS datetime2(3))",
        dt.datetime(9999, 12, 31, 23, 59, 59, 999000),
        "datetime2(3)",
    ),
    # 1/300 s, since 2016 to the microsecond in datetime2
    (
        "CAST(CAST('2020-01-01 00:00:00.008' AS datetime) AS datetime2(6))",
        dt.datetime(2020, 1, 1, 0, 0, 0, 6667),
        "datetime2(6)",
    ),
    (
        "CAST('2020-01-01 10:11:31' AS smalldatetime)",
        dt.datetime(2020, 1, 1, 10, 12),
        "smalldatetime",
    ),
    ("CAST('10:11:12.1234567' AS time)", 366721234567, "time(7)"),
    ("CAST('10:11:12.5' AS time(0))", dt.time(10, 11, 13), "time(0)"),
    (
        "CAST(CAST('2020-01-01 10:00:00 +02:00' AS datetimeoffset) AS varchar(40))",
        "2020-01-01 10:00:00.0000000 +02:00",
        "varchar(40)",
    ),
    (
        "CAST(CAST('2020-01-01 10:00:00 +02:00' AS datetimeoffset) AS datetime2(0))",
        dt.datetime(2020, 1, 1, 10),
        "datetime2(0)",
    ),
    ("CAST(CAST('2020-01-01' AS datetime) AS varchar(20))", "Jan  1 2020 12:00AM", "varchar(20)"),
    (
        "CAST(CAST('2020-01-01 1:02:03' AS datetime2(3)) AS varchar(30))",
        "2020-01-01 01:02:03.000",
        "varchar(30)",
    ),
    (
        "CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier)",
        uuid.UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF"),
        "uniqueidentifier",
    ),
    (
        "CAST(CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier) AS binary(16))",
        bytes.fromhex("FF19966F868B11D0B42D00C04FC964FF"),
        "binary(16)",
    ),
    (
        "CAST(CAST('6f9619ff-8b86-d011-b42d-00c04fc964ff' AS uniqueidentifier) AS char(36))",
        "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "char(36)",
    ),
    ("CAST(NULL AS datetime2(3))", None, "datetime2(3)"),
    # text
    ("LEN('ab  ')", 2, "int"),
    ("LEN(N'😀')", 2, "int"),
    ("DATALENGTH('ab  ')", 4, "int"),
    ("DATALENGTH(N'ab')", 4, "int"),
    ("DATALENGTH(N'😀')", 4, "int"),
    ("DATALENGTH(0x0102)", 2, "int"),
    ("UPPER('é')", "É", "varchar(1)"),
    ("SUBSTRING('abcdef', 2, 3)", "bcd", "varchar(3)"),
    ("SUBSTRING('abc', 0, 2)", "a", "varchar(2)"),
    ("LEFT('abc', 2)", "ab", "varchar(2)"),
    ("RIGHT('abc', 2)", "bc", "varchar(2)"),
    ("NCHAR(8364)", "€", "nchar(1)"),
    ("CHARINDEX(NCHAR(0), N'abc')", None, "int"),
    ("LEFT(N'😀b' COLLATE Latin1_General_100_CI_AS_SC, 1)", "😀", "nvarchar(1)"),
    ("CHARINDEX('B', 'abc')", 2, "int"),
    ("REPLACE('aXbx', 'x', '-')", "a-b-", "varchar(8000)"),
    ("REPLICATE('ab', 2)", "abab", "varchar(8000)"),
    ("CONCAT('a', NULL, 1)", "a1", "varchar(14)"),
    ("QUOTENAME('a]b')", "[a]]b]", "nvarchar(258)"),
    ("LTRIM('  a')", "a", "varchar(3)"),
    # choices
    ("ISNULL(NULL, 'x')", "x", "varchar(1)"),
    ("ISNULL(CAST(NULL AS varchar(2)), 'abc')", "ab", "varchar(2)"),
    ("COALESCE(NULL, 1, 2.5)", D("1.0"), "numeric(11,1)"),
    ("NULLIF(1, 1)", None, "int"),
    ("CASE WHEN 1 = 2 THEN 1 ELSE CAST(2 AS bigint) END", 2, "bigint"),
    ("CASE 'A' WHEN 'a' THEN 1 END", 1, "int"),
    # numbers
    ("ABS(-5)", 5, "int"),
    ("ROUND(1.256, 2)", D("1.260"), "numeric(4,3)"),
    # dates
    ("DATEPART(nanosecond, CAST('10:00:00.1234567' AS time))", 123456700, "int"),
    # a datetime counts in 1/300 s, and shows the nearest thousandth, as does datetime2(3)
    (f"DATEPART(millisecond, {TICK})", 266, "int"),
    (f"DATEPART(millisecond, CAST({TICK} AS datetime2(3)))", 267, "int"),
    (f"DATEPART(nanosecond, CAST({TICK} AS datetime2(7)))", 266666700, "int"),
    (f"CASE WHEN {TICK} < CAST('2020-01-01T00:00:00.267' AS datetime2(3)) THEN 1 END", 1, "int"),
    (
        f"CASE WHEN {TICK} = CAST('2020-01-01T00:00:00.266667' AS datetime2(6)) THEN 1 END",
        None,
        "int",
    ),
    (f"CASE WHEN {TICK} = CAST('2020-01-01T00:00:00.266' AS datetime) THEN 1 END", 1, "int"),
    ("DATEDIFF(hour, '2020-01-01 10:59', '2020-01-01 11:00')", 1, "int"),
    (
        "DATEDIFF_BIG(microsecond, CAST('1970-01-01' AS datetime2(6)), '2020-01-01')",
        1577836800000000,
        "bigint",
    ),
    ("DATEADD(day, 30, CAST('2020-01-31' AS date))", dt.date(2020, 3, 1), "date"),
    (
        "CONVERT(varchar(40), "
        "SWITCHOFFSET(CAST('2020-01-01 10:00 +02:00' AS datetimeoffset(0)), '+00:00'))",
        "2020-01-01 08:00:00 +00:00",
        "varchar(40)",
    ),
    # digests
    (
        "HASHBYTES('MD5', 'abc')",
        bytes.fromhex("900150983cd24fb0d6963f7d28e17f72"),
        "varbinary(8000)",
    ),
    # N'abc' is hashed as UTF-16, which Babelfish does not
    ("SUBSTRING(HASHBYTES('SHA2_256', N'abc'), 1, 3)", b"\x13\xe2\x28", "varbinary(3)"),
    # under a UTF-8 collation varchar is UTF-8
    ("DATALENGTH(CAST(N'ä€😀' COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(20)))", 9, "int"),
    (
        "HASHBYTES('MD5', CAST(N'ä' COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(20)))",
        bytes.fromhex("8419b71c87a225a2c70b50486fbee545"),
        "varbinary(8000)",
    ),
    (
        "HASHBYTES('MD5', CONCAT('1', ',', "
        "CAST(N'ä' COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(20))))",
        bytes.fromhex("3c04f913a0a380ca7ee158f49e79763c"),
        "varbinary(8000)",
    ),
    # the session and the server
    ("DB_NAME()", "tableferry", "nvarchar(128)"),
    ("@@TRANCOUNT", 0, "int"),
    ("OBJECT_ID('nothing')", None, "int"),
]


@pytest.mark.parametrize(("expression", "value", "type_"), VALUES, ids=[row[0] for row in VALUES])
def test_an_expression_has_its_value_and_type(
    session: Session, expression: str, value: Any, type_: str
) -> None:
    found, column = session.one(expression)
    assert (found, str(column.type)) == (value, type_)


CONDITIONS: list[tuple[str, bool]] = [
    ("'a' = 'A'", True),
    ("'a' = 'a  '", True),
    ("'a' = ' a'", False),
    ("'é' = 'e'", False),
    ("'a' COLLATE Latin1_General_BIN2 = 'A'", False),
    ("'a ' COLLATE Latin1_General_BIN2 = 'a'", True),
    ("'a' COLLATE Latin1_General_CS_AS = 'A'", False),
    # a binary collation has the order of UTF-16 code units, or of UTF-8 bytes
    ("N'é' COLLATE Latin1_General_100_BIN2 > N'z'", True),
    ("N'\uffff' COLLATE Latin1_General_100_BIN2 > N'😀'", True),
    (
        "CAST(N'\uffff' COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(9)) < "
        "CAST(N'😀' COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(9))",
        True,
    ),
    # the shorter text is filled up with blanks
    ("N'a' COLLATE Latin1_General_100_BIN2 > N'a' + NCHAR(9)", True),
    ("N'a' COLLATE Latin1_General_100_BIN2 > N'a ' + NCHAR(9) + N'b'", True),
    ("N'a' COLLATE Latin1_General_100_BIN2 < N'a b'", True),
    ("N'a ' COLLATE Latin1_General_100_BIN2 < N'a!'", True),
    ("N'a  b' COLLATE Latin1_General_100_BIN2 < N'a b'", True),
    ("N'a  ' COLLATE Latin1_General_100_BIN2 >= N'a'", True),
    ("'' IS NULL", False),
    ("'abc' LIKE 'A%'", True),
    ("'abc' LIKE '_b_'", True),
    ("'a5' LIKE '[a-c][0-9]'", True),
    ("'x5' LIKE '[^a-c]5'", True),
    ("'50%' LIKE '50!%' ESCAPE '!'", True),
    ("'abc' NOT LIKE 'A%'", False),
    ("'50%' NOT LIKE '50!_' ESCAPE '!'", True),
    ("'abc' COLLATE Latin1_General_BIN2 NOT LIKE 'A%'", True),
    ("'a\\b' LIKE 'a\\b'", True),
    ("'a' IN ('B', 'A')", True),
    ("2 IN (SELECT 1 UNION ALL SELECT 2)", True),
    ("5 BETWEEN 1 AND 5", True),
    ("NOT EXISTS (SELECT 1 WHERE 1 = 0)", True),
    ("1 = '1'", True),
    ("1 = 1.0", True),
    ("CAST('2020-01-01' AS date) = '20200101'", True),
    ("CAST('2020-01-01' AS datetime2) > CAST('2019-12-31' AS date)", True),
    (
        "CAST('2020-01-01 10:00 +02:00' AS datetimeoffset) = "
        "CAST('2020-01-01 08:00 +00:00' AS datetimeoffset)",
        True,
    ),
    # uniqueidentifier compares its last six bytes first
    (
        "CAST('FFFFFFFF-0000-0000-0000-000000000000' AS uniqueidentifier)"
        " < CAST('00000000-0000-0000-0000-000000000001' AS uniqueidentifier)",
        True,
    ),
]


@pytest.mark.parametrize(("condition", "holds"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_a_condition_holds_or_not(session: Session, condition: str, holds: bool) -> None:
    assert session.one(f"CASE WHEN {condition} THEN 1 ELSE 0 END")[0] == holds


ERRORS: list[tuple[str, int]] = [
    ("1 / 0", 8134),
    ("2147483647 + 1", 8115),
    ("CAST(300 AS tinyint)", 220),
    ("CAST(1000 AS decimal(3,1))", 8115),
    ("CAST('x' AS int)", 245),
    ("CAST('99999999999' AS int)", 248),
    ("CAST('x' AS decimal(5,2))", 8114),
    ("CAST('x' AS float)", 8114),
    ("CAST('x' AS uniqueidentifier)", 8169),
    ("CAST('2020-13-01' AS date)", 241),
    ("CAST('1500-01-01' AS datetime)", 242),
    ("nothing", 207),
    ("a.b", 4104),
    ("nothing()", 195),
    ("@nothing", 137),
    ("(SELECT 1 UNION ALL SELECT 2)", 512),
    ("CAST(1 AS nothing)", 102),
    ("DATEPART(nothing, '2020-01-01')", 155),
    ("1 +", 102),
    ("'open", 105),
]


@pytest.mark.parametrize(("expression", "number"), ERRORS, ids=[row[0] for row in ERRORS])
def test_an_error_has_the_number_of_sql_server(
    session: Session, expression: str, number: int
) -> None:
    assert session.run(f"SELECT {expression}").numbers == [number]
