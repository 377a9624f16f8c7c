"""What is known of a source spares a query only if it is all that is needed."""

from __future__ import annotations

from typing import Any

from tableferry.checks.reconcile import _known_by_number
from tableferry.checks.sides import Comparison
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.types.type_map import Column

AMOUNT = Field("amount", "decimal", Column("amount", "numeric"), Column("amount", "Decimal"))
FIRST, LAST = RANGES = [KeyRange("integer", None, 10), KeyRange("integer", 10, None)]


def both(known: dict[str, KnownFigures]) -> Comparison:
    """A comparison that asks neither its plan nor a server."""
    unasked: Any = None
    return Comparison(unasked, unasked, unasked, RANGES, known=known)


def test_all_known_figures_are_taken_and_none_if_one_is_missing() -> None:
    sums = {"sum": "12.50", "min": "0.25", "max": "9.00"}
    figures: dict[str, Any] = {ROWS: 3, "amount": sums, "another": {"min": "1"}}
    known = {each.name: KnownFigures("", figures) for each in RANGES}
    needed = {ROWS: 3, "amount": sums}
    assert _known_by_number(None, [AMOUNT], both(known)) == {0: needed, 1: needed}
    assert _known_by_number(None, [], both(known)) == {0: {ROWS: 3}, 1: {ROWS: 3}}
    without_sums = {**known, LAST.name: KnownFigures("", {ROWS: 3})}
    assert _known_by_number(None, [AMOUNT], both(without_sums)) is None
    assert _known_by_number(None, [], both({FIRST.name: known[FIRST.name]})) is None
