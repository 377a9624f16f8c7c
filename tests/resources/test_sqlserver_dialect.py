"""Bounds in T-SQL: a datetime is compared as what it shows, which is what is copied."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.types.type_map import Column

COLUMN = Column("at", "datetime")
SECOND = dt.datetime(2020, 2, 29, 23, 59, 59)
SHOWN = [SECOND + dt.timedelta(milliseconds=round(tick * 10 / 3)) for tick in range(600)]
"""What the datetimes of two seconds show."""


@given(st.integers(0, 1_999_999))
def test_a_bound_is_the_first_datetime_that_shows_no_earlier_moment(microseconds: int) -> None:
    bound = SECOND + dt.timedelta(microseconds=microseconds)
    constant = re.fullmatch(r"CAST\('(.*)' AS datetime\)", DIALECT.bound(bound, COLUMN))
    assert constant
    first = dt.datetime.fromisoformat(constant[1])
    assert [shown >= bound for shown in SHOWN] == [shown >= first for shown in SHOWN]
    assert first in SHOWN or first > SHOWN[-1]


@pytest.mark.parametrize(
    ("bound", "sql"),
    [
        (dt.datetime(1700, 1, 1), "CAST('1753-01-01T00:00:00.000' AS datetime)"),
        (
            dt.datetime(9999, 12, 31, 23, 59, 59, 997000),
            "CAST('9999-12-31T23:59:59.997' AS datetime)",
        ),
        (dt.datetime.max, "CAST('9999-12-31T23:59:59.999999' AS datetime2(6))"),
        (dt.date(2020, 1, 1), "CAST('2020-01-01' AS date)"),
    ],
)
def test_bounds_beyond_its_calendar(bound: dt.date, sql: str) -> None:
    assert DIALECT.bound(bound, COLUMN) == sql


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("SELECT N'a $b (c)', '$'", "SELECT N'a $b (c)', '$'"),
        (
            "VALUES (N'it''s $(X)')",
            "VALUES ((CAST(N'' AS nvarchar(max)) + N'it''s ' + NCHAR(36) + N'(X)'))",
        ),
        (
            "VALUES (N'\r\nGO')",
            "VALUES ((CAST(N'' AS nvarchar(max)) + N'' + NCHAR(13) + N'' + NCHAR(10) + N'GO'))",
        ),
        ("\"it's\" = 'a' AND [b''] = N'c'", "\"it's\" = 'a' AND [b''] = N'c'"),
    ],
)
def test_sqlcmd_finds_nothing_of_its_own_in_a_script(statement: str, written: str) -> None:
    assert DIALECT.scripted(statement) == written


@pytest.mark.parametrize("statement", ['"a$(b)" = 1', "(a = 1\nGO 5\n)", "a = 1\n :r x"])
def test_what_sqlcmd_would_read_as_its_own_is_refused(statement: str) -> None:
    with pytest.raises(InputError, match="sqlcmd would read"):
        DIALECT.scripted(statement)
