"""Doubles taken apart into integers by arithmetic that every server does alike.

IEEE 754 makes comparisons, FLOOR and products with powers of two exact, and neither SQL Server nor
Babelfish offers a way to a double's bits.
"""

from __future__ import annotations

from collections.abc import Callable


def float_parts(
    x: str, *, two: str, whole: Callable[[str], str], unusual: str = ""
) -> dict[str, str]:
    """The digits of a double in base 2**53, as atoms (see `checks.atoms`).

    Every bit counts for magnitudes from 2**-159 to 2**159 (about 1e-48 to 7e47); beyond, only the
    class does. The classes are 0 zero (of either sign), 1 tiny, 2 small, 3 usual, 4 large, 5 huge
    and 9 for what SQL Server cannot hold; those of negative values are negative.

    Args:
        x: SQL of the double.
        two: SQL of 2**53 as a double: every system parses its 16 digits exactly.
        whole: makes the SQL of a 64-bit integer out of that of a whole double.
        unusual: SQL of `WHEN ... THEN 9`, where the system has NaN and the infinities.
    """
    size = f"abs({x})"
    huge, large, usual = f"{two} * {two} * {two}", two, f"1 / {two}"
    small = f"1 / {two} / {two} / {two}"
    group = (
        f"CASE WHEN {x} IS NULL THEN NULL {unusual} WHEN {x} = 0 THEN 0 "
        f"WHEN {size} >= {huge} THEN 5 WHEN {size} >= {large} THEN 4 WHEN {size} >= {usual} THEN 3 "
        f"WHEN {size} >= {small} THEN 2 ELSE 1 END"
    )
    # into [2**-53, 2**63): so many bits before and behind the point hold all of it
    scaled = (
        f"CASE WHEN {size} >= {huge} THEN {two} - {two} WHEN {size} >= {large} "
        f"THEN {size} / {two} / {two} WHEN {size} >= {usual} THEN {size} "
        f"WHEN {size} >= {small} THEN {size} * {two} * {two} ELSE {two} - {two} END"
    )
    sign = f"CASE WHEN {x} < 0 THEN -1 ELSE 1 END"
    moved = f"({scaled}) * {two}"
    return {
        "class": f"{whole(group)} * ({sign})",
        "units": f"{whole(f'floor({scaled})')} * ({sign})",
        "fraction1": f"{whole(f'floor((({scaled}) - floor({scaled})) * {two})')} * ({sign})",
        "fraction2": f"{whole(f'floor(({moved} - floor({moved})) * {two})')} * ({sign})",
    }
