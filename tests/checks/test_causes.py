"""What is said of values that differ: what a person who sees both would guess."""

from __future__ import annotations

from typing import Any

import pytest

from tableferry.checks.comparing.causes import cause_of, likely_causes
from tableferry.checks.verdict import Difference
from tableferry.resources.contract.fields import Field
from tableferry.resources.types.type_map import Column

DAY = "2024-03-01"
REST = "-8899-aabbccddeeff"


def field(kind: Any) -> Field:
    return Field("c", kind, Column("c", "x"), Column("c", "x"))


@pytest.mark.parametrize(
    ("kind", "first", "second", "says"),
    [
        ("text", None, "", "'' instead of NULL"),
        ("text", "", None, "NULL instead of ''"),
        ("integer", "1", None, "NULL instead of a value"),
        ("text", "x", "", "'' instead of a value"),
        ("text", "Abc", "aBC", "upper and lower case"),
        ("text", "ab", "ab   ", "trailing blanks"),
        ("text", " ab", "ab", "blanks around it"),
        ("text", "a\r\nb", "a\nb", "line ends"),
        ("text", "Zoë", "Zoe\u0308", "Unicode normalization"),
        ("text", "Größe", "GrÃ¶ÃŸe", "encoding: UTF-8 read as another code page"),
        ("text", "Größe", "Gr??e", "encoding: characters replaced"),
        ("text", "smile 😀", "smile \ufffd", "encoding: characters replaced"),
        ("text", "abcdef", "abc", "cut to 3 characters"),
        ("text", '{"a": 1, "b": 2}', '{"b":2,"a":1}', "JSON written otherwise"),
        ("text", "abc", "xyz", "another value"),
        ("decimal", "2.345", "2.35", "rounded to 2 decimals"),
        ("decimal", "2.349", "2.34", "cut to 2 decimals"),
        ("decimal", "-5", "5", "the sign"),
        ("decimal", "5.00", "500", "multiplied by 100"),
        ("decimal", "12345678901234567.89", "12345678901234568", "rounded to whole numbers"),
        ("integer", "9007199254740993", "9007199254740992", "passed through a double"),
        ("float", "0.1", "0.10000000149011612", "passed through a 32-bit float"),
        ("float", "0.10000000149011612", "0.1", "passed through a 32-bit float"),
        ("decimal", "1" * 40 + ".25", "1" * 40 + ".3", "rounded to 1 decimal"),
        ("float", "1e+300", "2e+300", "another value"),
        ("integer", "1", "7", "another value"),
        ("float", "nan", "1.0", "another value"),
        ("timestamp", f"{DAY} 10:00:00.123456", f"{DAY} 10:00:00.123", "cut to milliseconds"),
        ("timestamp", f"{DAY} 10:00:00.1236", f"{DAY} 10:00:00.124", "rounded to milliseconds"),
        ("timestamp", f"{DAY} 10:00:00", f"{DAY} 12:00:00", "shifted by +2 hours (time zone)"),
        ("timestamp", f"{DAY} 10:00:00", f"{DAY} 04:30:00", "shifted by -5.5 hours (time zone)"),
        ("timestamp", f"{DAY} 10:20:30", f"{DAY} 00:00:00", "cut to days"),
        ("timestamp", f"{DAY} 10:00:00.001", f"{DAY} 10:00:00.003", "rounded to 1/300 of a second"),
        ("timestamp", f"{DAY} 10:00:31", f"{DAY} 10:01:00", "rounded to minutes"),
        ("timestamp", "infinity", f"{DAY} 10:00:00", "another value"),
        ("time", "10:20:30.5", "10:20:30", "cut to seconds"),
        ("time", "10:20:30", "1970-01-01 10:20:30", "a date added"),
        ("date", "2024-03-02", "2024-03-01", "shifted by -1 day (time zone)"),
        ("date", "2024-03-02", "2024-02-03", "day and month exchanged"),
        ("uuid", f"00112233-4455-6677{REST}", f"33221100-5544-7766{REST}",
         "byte order of the first three parts"),
        ("bytes", "00ff00", "00ff", "trailing zero bytes"),
    ],
)  # fmt: skip
def test_one_value(kind: str, first: str | None, second: str | None, says: str) -> None:
    assert cause_of(field(kind), first, second) == says


def test_all_values_of_a_column_share_a_number_of_digits() -> None:
    pairs = [("1.2345", "1.23"), ("1.4999", "1.5"), ("7.0001", "7")]
    found = [Difference("1", "different", "c", *pair) for pair in pairs]
    (cause,) = likely_causes(found, {"c": field("decimal")})["c"]
    assert (cause.says, cause.values) == ("rounded to 2 decimals", 3)
    moments = [(f"{DAY} 10:00:00.120456", f"{DAY} 10:00:00.12"),
               (f"{DAY} 10:00:00.123456", f"{DAY} 10:00:00.123"),
               (f"{DAY} 10:00:00.000456", f"{DAY} 10:00:00")]  # fmt: skip
    found = [Difference("1", "different", "c", *pair) for pair in moments]
    (cause,) = likely_causes(found, {"c": field("timestamp")})["c"]
    assert (cause.says, cause.values) == ("cut to milliseconds", 3)
    minutes = [(f"{DAY} 10:00:31", f"{DAY} 10:01:00"), (f"{DAY} 10:00:20", f"{DAY} 10:00:00")]
    found = [Difference("1", "different", "c", *pair) for pair in minutes]
    (cause,) = likely_causes(found, {"c": field("timestamp")})["c"]
    assert (cause.says, cause.values) == ("rounded to minutes", 2)
