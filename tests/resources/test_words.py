"""Texts that messages share."""

from __future__ import annotations

from tableferry.resources.words import those_there

MANY = [f"table_{number:04}" for number in range(1000)] + ["orders", "order_lines", "customers"]


def test_an_unknown_name_is_answered_with_the_nearest_few() -> None:
    assert those_there("x", ["a", "b"], "transfer") == "there are a, b"
    assert those_there("x", [], "transfer") == "there are none"
    assert those_there("Ordres", MANY, "transfer") == "did you mean orders or order_lines?"
    assert "order_lines" in those_there("lines", MANY, "transfer"), "which is a part of its name"
    assert those_there("table_42", MANY, "transfer").count(" or ") == 4, "never all of them"
    assert those_there("qqq", MANY, "tag") == "there are 1,003 tags, and none has a similar name"
