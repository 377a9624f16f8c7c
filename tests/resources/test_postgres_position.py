"""Which state of a cluster's history a server shows, and what is said of one that went back."""

from __future__ import annotations

import re

import pytest

from tableferry.assets.log.records import DataVersion
from tableferry.assets.log.states import Reason
from tableferry.resources.postgres.snapshots import Position

NOW = Position("7312345678901234567", 2, 0x1_00000060)


def test_a_position_is_read_as_it_was_written() -> None:
    assert Position.parse(str(NOW)) == NOW
    assert str(NOW) == "7312345678901234567/2/100000060"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (NOW, None),
        (Position(NOW.cluster, 2, NOW.lsn - 1), None),
        (
            Position(NOW.cluster, 2, NOW.lsn + 1000),
            "1/60, .*1/448: a standby .* 1,000 bytes behind",
        ),
        (Position(NOW.cluster, 1, 1), "timeline 2, .*timeline 1"),
        (Position("1", 2, 1), "the cluster 7312345678901234567, .*read from 1"),
    ],
)
def test_what_is_said_of_a_source_that_went_back(before: Position, said: str | None) -> None:
    found = NOW.compared_with(before)
    assert (found and re.search(said, found)) if said else found is None


def test_another_history_is_compared_before_it_is_moved() -> None:
    histories = {Position(cluster, timeline, 1).history for cluster in "ab" for timeline in (1, 2)}
    assert len(histories) == 4
    before, same, other = (
        DataVersion.parse(f"{definition}-1234.s.t")
        for definition in ("md5-2_abcdef", "md5-2_abcdef", "md5-2_ABCDEF")
    )
    assert same.change_since(before) is None
    assert other.change_since(before) is Reason.SOURCE_REPLACED
    changed = DataVersion.parse("md5-2_abcdef-9999.s.t")
    assert changed.change_since(before) is Reason.SOURCE_CHANGED
    assert DataVersion.parse("md5-3_abcdef-1234.s.t").change_since(before) is Reason.DIGEST_CHANGED
    assert other.change_since(DataVersion.parse("md5-2-1234.s.t")) is Reason.DIGEST_CHANGED
