"""Pieces of text that messages have in common."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """E.g. `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """Return a text with its unprintable characters escaped, line breaks among them."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
