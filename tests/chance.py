"""Where all chance in the tests comes from: one number, which repeats a run."""

from __future__ import annotations

import os
import random

SEED = "TABLEFERRY_SEED"
"""Variable: another seed than the usual one. `make test-soak` chooses it anew, unless it is set."""

USUAL = 20240229


def seed() -> int:
    """The seed of this run, the same in all its workers."""
    return int(os.environ.get(SEED, USUAL))


def chance(*place: object) -> random.Random:
    """Random numbers for one place of the tests, whatever others have drawn.

    Args:
        place: what tells the place from others.
    """
    return random.Random(" ".join(map(str, (seed(), *place))))
