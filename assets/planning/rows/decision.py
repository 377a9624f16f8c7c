"""Why a range runs, or that it does not: the rule for a range that is replaced alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tableferry.assets.log.ledger import Committed
from tableferry.assets.log.records import DataVersion, Proven
from tableferry.assets.log.states import Reason
from tableferry.resources.contract.markers import Marker, Published
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted

MAY_BE_EQUAL = (Reason.DIGEST_CHANGED, Reason.SOURCE_REPLACED, Reason.FEWER_COLUMNS)
"""Changes of a data version after which the rows may be as committed nevertheless."""

EXPLAINED_BY = {
    Reason.FEWER_COLUMNS: (Reason.SCHEMA_CHANGED, Reason.SOURCE_CHANGED),
    Reason.SOURCE_REPLACED: (None, Reason.SOURCE_CHANGED, Reason.DIGEST_CHANGED),
}
"""The changes of a data version that may be no more than that some columns are not copied any more,
or that another source was declared."""


class Action(Enum):
    """What a run does with a range of a hop; `running.actions` does it."""

    SKIP = "skip"
    """Count its rows, and record that it is unchanged."""
    RECHECK = "recheck"
    """Check it as declared, and record that it is unchanged; move it if it differs."""
    COMPARE = "compare"
    """Record it anew if both sides are equal; move it if they differ."""
    RECORD = "record"
    """Check what a swap has gathered, or put in place, and record it."""
    MOVE_ALL = "move_all"
    MOVE_DIFFERING = "move_differing"
    """Move the rows that differ, if they are few."""
    MOVE_NEWER = "move_newer"
    """`incremental`: move the rows from a watermark on, and remove those that are gone."""
    REPAIR = "repair"
    """Put right the rows that differ, and never move the range as a whole."""

    @property
    def moves(self) -> bool:
        """Whether it moves rows, whatever the source holds by then."""
        return self in (Action.MOVE_ALL, Action.MOVE_DIFFERING, Action.MOVE_NEWER, Action.REPAIR)


@dataclass(frozen=True)
class Decision:
    """Why a range runs, or that it does not."""

    reason: Reason
    detail: str = ""
    """The reason in detail, if there is more to say."""
    since: str | None = None
    """`incremental`: move only the rows with this watermark or a later one."""
    proven: Proven | None = None
    """`incremental`: the range's last proof, if nothing has called it into question since."""
    changed: tuple[KeyRange, ...] = ()
    """The parts of the range whose source has changed, if they are known and few."""
    written_by: str | None = None
    taken_from: str | None = None
    """As in the range's newest `RangeRecord`."""
    failed: tuple[str, ...] = ()
    """The checks of the range that have failed since its commit, whatever it runs for."""
    action: Action = Action.MOVE_ALL
    """What is done for that reason."""

    @property
    def runs(self) -> bool:
        """Whether there is more to do than to record again that the range is unchanged."""
        return self.reason is not Reason.UNCHANGED

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else str(self.reason)


def decide(
    current: Mapping[str, DataVersion],
    previous: Mapping[str, Committed],
    *,
    target_rows: Mapping[str, int] | Decision,
    expected_rows: Mapping[str, int] | None = None,
    published: Published | None = None,
    explained: Mapping[str, Reason] = MappingProxyType({}),
    force: bool = False,
) -> dict[str, Decision]:
    """Decide why each range runs, or that it is `UNCHANGED`.

    Args:
        current: the data version with which each range would be committed now.
        previous: what is committed.
        target_rows: rows in the target by range, or why they are not counted.
        expected_rows: rows in the source by range; None if the target may have others.
        published: the target's markers; None if it has none.
        explained: what may be all that has changed of ranges, see `EXPLAINED_BY`.
        force: run all ranges.
    """
    decisions: dict[str, Decision] = {}
    markers = published.of_target if published else None
    for name, version in current.items():
        before = previous.get(name)
        change = version.change_since(before.data_version) if before else None
        if name in explained and change in EXPLAINED_BY[explained[name]]:
            change = explained[name]
        if before is None:
            decisions[name] = Decision(Reason.MISSING)
        elif force:
            decisions[name] = Decision(Reason.FORCED)
        elif change and change not in MAY_BE_EQUAL:
            decisions[name] = Decision(change)
        elif before.failed:
            decisions[name] = Decision(Reason.LAST_CHECK_FAILED, ", ".join(before.failed))
        elif isinstance(target_rows, Decision):
            decisions[name] = target_rows
        elif expected_rows is not None and target_rows.get(name, 0) != expected_rows[name]:
            decisions[name] = _row_count_differs(target_rows.get(name, 0), expected_rows[name])
        elif moved := moved_by_others(markers, name, before.data_version):
            decisions[name] = Decision(Reason.TARGET_MOVED, moved)
        elif change:
            decisions[name] = Decision(change)
        elif before.unchecked:
            decisions[name] = Decision(Reason.UNCHECKED)
        else:
            decisions[name] = Decision(Reason.UNCHANGED)
    return decisions


def moved_by_others(markers: Mapping[str, Marker] | None, name: str, committed: DataVersion) -> str:
    """How the target's marker of a committed range contradicts the log; empty if it does not."""
    if markers is None:
        return ""
    marker = markers.get(name)
    if marker is None:
        return "the target does not say what was published last"
    if DataVersion.parse(marker.version) == committed:
        return ""
    return f"{'was about to publish' if marker.announced else 'published by'} {marker}"


def _row_count_differs(rows: int, expected: int) -> Decision:
    if not rows:
        return Decision(Reason.TARGET_MISSING, f"all {counted(expected, 'row')} missing")
    if rows < expected:
        detail = f"{expected - rows:,} of {counted(expected, 'row')} missing"
    else:
        detail = f"{counted(rows - expected, 'row')} more than the source's {expected:,}"
    return Decision(Reason.ROW_COUNT_DIFFERS, detail)
