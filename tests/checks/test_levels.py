"""What planning, audits and commands ask of each check level."""

from __future__ import annotations

from tableferry.checks.levels import BY_CHECK, CHECK_NAMES, LEVELS, ON_DEMAND, proofs

NAMES = ["count", "in_flight", "checksum", "sample_hash", "full_hash"]


def test_the_levels_are_in_order_and_known_by_their_checks() -> None:
    assert [*LEVELS] == NAMES
    assert ON_DEMAND == ("count", "checksum", "sample_hash", "full_hash")
    assert [*CHECK_NAMES.values()] == [*BY_CHECK] == ["row_count", *NAMES[1:]]


def test_each_level_has_what_follows_from_what_it_compares() -> None:
    properties = {
        name: (level.values, level.row_by_row, level.complete, level.digested_by_servers)
        for name, level in LEVELS.items()
    }
    assert properties == {
        "count": (False, False, False, False),
        "in_flight": (True, False, False, False),
        "checksum": (True, False, True, True),
        "sample_hash": (True, True, False, True),
        "full_hash": (True, True, True, True),
    }


def test_a_report_explains_every_level() -> None:
    assert proofs() == (
        "count (row counts), in_flight (digests of the rows as they were sent), checksum (digests "
        "of all rows of both tables, summed by range), sample_hash and full_hash (digests compared "
        "row by row)"
    )
