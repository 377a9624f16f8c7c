"""A damaged middle goes no further in the model, and it does where a rule is left out."""

from __future__ import annotations

import pytest

from tests.model.chain import Rules, explore


@pytest.mark.invariant("I13")
@pytest.mark.parametrize("digests", [True, False])
def test_the_invariants_hold_in_every_state(digests: bool) -> None:
    found = explore(Rules(digests=digests))
    assert not found.broken, f"\n{found}"
    assert found.states > 1_000


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        (Rules(prove=False), "has reached the last target"),
        (Rules(digests=False, rewritten=False), "both are skipped"),
    ],
    ids=["what is read is not held against its proof", "a middle that is mended is not told"],
)
def test_a_fault_is_found(rules: Rules, what: str) -> None:
    found = explore(rules)
    print(found)
    assert what in found.broken, f"\n{found}"
