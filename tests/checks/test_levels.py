"""What planning, audits and commands ask of each check level."""

from __future__ import annotations

import pytest

from tableferry.checks.levels import BY_CHECK, CHECK_NAMES, LEVELS, proofs, require_level
from tableferry.resources.errors import InputError

NAMES = ["count", "checksum", "sample_hash", "full_hash"]


def test_the_levels_are_in_order_and_known_by_their_checks() -> None:
    assert [*LEVELS] == NAMES
    assert [*CHECK_NAMES.values()] == [*BY_CHECK] == ["row_count", *NAMES[1:]]


def test_each_level_has_what_follows_from_what_it_compares() -> None:
    properties = {
        name: (level.values, level.row_by_row, level.complete) for name, level in LEVELS.items()
    }
    assert properties == {
        "count": (False, False, False),
        "checksum": (True, False, True),
        "sample_hash": (True, True, False),
        "full_hash": (True, True, True),
    }


def test_a_report_explains_every_level() -> None:
    assert proofs() == (
        "count (row counts), checksum (digests of all rows of both tables, summed by range), "
        "sample_hash and full_hash (digests compared row by row)"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [("in_flight", "take checksum; or count"), ("md5", "should be one of count, checksum")],
)
def test_a_level_that_is_not_there_is_refused_by_what_is(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        require_level(name)
