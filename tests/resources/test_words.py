"""Texts that messages share."""

from __future__ import annotations

from tableferry.resources.words import duration, size, those_there

MANY = [f"table_{number:04}" for number in range(1000)] + ["orders", "order_lines", "customers"]


def test_an_unknown_name_is_answered_with_the_nearest_few() -> None:
    assert those_there("x", ["a", "b"], "transfer") == "there are a, b"
    assert those_there("x", [], "transfer") == "there are none"
    assert those_there("order", ["a", "orders"], "transfer", "`x`") == (
        "did you mean orders? `x` lists all 2"
    )
    assert those_there("Ordres", MANY, "transfer") == "did you mean orders or order_lines?"
    assert "order_lines" in those_there("lines", MANY, "transfer"), "which is a part of its name"
    assert those_there("table_42", MANY, "transfer").count(" or ") == 4, "never all of them"
    assert those_there("qqq", MANY, "tag") == "there are 1,003 tags, and none has a similar name"


def test_seconds_and_bytes_are_written_for_people() -> None:
    assert [duration(each) for each in (0.04, 9.94, 45, 600, 12_600)] == [
        *("0.0 s", "9.9 s", "45 s", "10 min", "3.5 h")
    ]
    assert [size(each) for each in (0, 1, 999, 1200, 410_000_000, 5e15)] == [
        *("0 bytes", "1 byte", "999 bytes", "1.2 kB", "410 MB", "5,000 TB")
    ]
