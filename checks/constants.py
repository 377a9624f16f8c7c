"""Numbers that the checks' SQL of all systems must share."""

from __future__ import annotations

from collections.abc import Sequence

WHOLE_DIGITS = 18
"""A decimal with at most this many digits is one 64-bit integer; a longer one is taken apart."""

PRIME = 999_999_999_999_999_989
"""The largest prime below 10**18. The whole part of a long decimal is compared modulo this: every
change of one digit is seen, because no power of ten is a multiple of it."""

NOT_FINITE = 1_000_000_000_000_000_003
"""Stands for NaN and infinity of a decimal and for an infinite date; no finite value gives it."""

NAN_BITS = 0x7FF8000000000000
"""All NaNs are one value here: PostgreSQL's and ClickHouse's differ in the sign bit."""

TWO_53 = "9007199254740992"
"""2**53: every whole number up to it is a double, and its 16 digits parse exactly everywhere."""

SHORT_TEXT = 8
"""A text declared with at most this many characters is compared at every position."""

FIRST_POSITIONS = 4
"""A longer text is compared at this many first positions, in the middle, at the end, and at one
position that depends on the row's key."""

MULTIPLIERS = (1, 3, 7, 13, 29, 53, 101, 199, 401, 797, 1601, 3203)
"""Of the characters of a text, so that exchanging two of them shows."""


def text_positions(length: int | None) -> list[int]:
    """The fixed 1-based positions at which a text of this declared length is compared."""
    short = length is not None and length <= SHORT_TEXT
    return list(range(1, (length if short and length else FIRST_POSITIONS) + 1))


def fraction_chunks(scale: int) -> list[int]:
    """Sizes of the chunks of 18 digits that a long decimal's fraction is cut into."""
    return [min(WHOLE_DIGITS, scale - start) for start in range(0, scale, WHOLE_DIGITS)]


RESIDUE = 2**31 - 1
"""Atoms are taken modulo this before they are multiplied, so that 64 bits hold the product."""

ITEM_MODULUS = RESIDUE
PLACE_MODULUS = 1009
"""The items of an array count by their places modulo this; 64 bits hold four million items."""

NULL_ITEM = 77
"""What a NULL in an array counts."""


def mixed(atoms: Sequence[str]) -> str:
    """SQL of one 64-bit integer made of all atoms of a value."""
    return " + ".join(
        f"({atom}) % {RESIDUE} * {multiplier}"
        for atom, multiplier in zip(atoms, MULTIPLIERS, strict=False)
    )
