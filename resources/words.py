"""Words of messages that go by a number."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """E.g. `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
