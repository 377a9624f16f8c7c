"""The states of a range in a target, and the reasons for which it runs."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The progress of a range."""

    MISSING = "missing"
    """No run has touched it."""
    LOADED = "loaded"
    FINALISED = "finalised"
    SHADOWED = "shadowed"
    """Audited, and gathered in the shadow table of a swap."""
    COMMITTED = "committed"
    ADOPTED = "adopted"
    """Found equal in the target, where no run of this event log has put it."""
    FAILED = "failed"
    SKIPPED_UNCHANGED = "skipped_unchanged"

    @property
    def tells_origin(self) -> bool:
        """Whether the record says how the range's rows came into the target."""
        return self in (State.COMMITTED, State.ADOPTED)

    @property
    def in_target(self) -> bool:
        """Whether the range's rows are in the target."""
        return self.tells_origin or self is State.SKIPPED_UNCHANGED


class Reason(StrEnum):
    """Why a range is moved or skipped."""

    MISSING = "missing"
    SOURCE_CHANGED = "source_changed"
    SCHEMA_CHANGED = "schema_changed"
    SETTINGS_CHANGED = "settings_changed"
    LAST_CHECK_FAILED = "last_check_failed"
    TARGET_MISSING = "target_missing"
    """The target table does not exist, or has none of the range's rows."""
    TARGET_CHANGED = "target_changed"
    """The target has lost a column."""
    ROW_COUNT_DIFFERS = "row_count_differs"
    FORCED = "forced"
    SWAP = "swap"
    """Unchanged, but other ranges changed, and a swap replaces the whole table."""
    REPAIR = "repair"
    """The user asks for the rows that differ to be put right. Compared, and only these move."""
    RECREATED = "recreated"
    """The user asks for a target that is recreated."""
    SHADOWED = "shadowed"
    """Gathered in the shadow table by an earlier run."""
    PROMOTED = "promoted"
    """Put in place by a swap whose run died before it recorded the range."""
    UNCHECKED = "unchecked"
    """Unchanged, but a declared check has no verdict: the run that committed the range died early,
    the check was declared later, or asks something else now; or another declaration has proven
    it."""
    FULL_CHECK = "full_check"
    """`incremental`: unchanged, but a comparison of the whole range is due. Moved if it differs."""
    TARGET_MOVED = "target_moved"
    """The target's marker names another data version, or none: another home published the range,
    or this event log was restored from a backup. Compared, and moved if it differs."""
    DIGEST_CHANGED = "digest_changed"
    """Committed under another definition of the row digest. Compared, and moved if it differs."""
    SOURCE_REPLACED = "source_replaced"
    """The source's server has another history of writes: a standby was promoted, or a backup was
    restored; or another source is declared. An equal fingerprint may then stand for other rows.
    Compared, and moved if it differs."""
    FEWER_COLUMNS = "fewer_columns"
    """Committed with columns that are no longer copied, and else as now. Compared, and moved if it
    differs: what is not copied is no reason to replace rows."""
    SOURCE_REWRITTEN = "source_rewritten"
    """Unchanged, but the hop before has written its rows anew, e.g. to mend damage, so that what
    was taken from it may be wrong. Compared, and moved if it differs."""
    UNCHANGED = "unchanged"

    @property
    def current(self) -> bool:
        """Whether the target holds the source's current rows, so that a later hop can read it."""
        return self in (Reason.UNCHANGED, Reason.FULL_CHECK)

    @property
    def needs_no_move(self) -> bool:
        """Whether the rows are in the target already: there is only to check and to record."""
        return self in (Reason.UNCHANGED, Reason.UNCHECKED, Reason.PROMOTED)
