"""Which rows of a range are moved: what the newest records of it allow, and nothing more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tableferry.assets.log.records import Proven, RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.planning.rows.deltas import increment

COLUMN, FULL_CHECK, NOW = "updated_at", 100.0, 1000.0
MARK = "2024-01-01T00:00:00"

proofs = st.builds(
    Proven,
    column=st.sampled_from([COLUMN, "other"]),
    watermark=st.sampled_from([None, MARK]),
    at=st.floats(0, NOW),
)
recorded = st.none() | st.builds(
    RangeRecord,
    range=st.just("..0000000101"),
    state=st.sampled_from(State),
    proven=st.none() | proofs,
)
chains = st.lists(recorded, min_size=1, max_size=3)


def decided(reason: Reason, chain: list[RangeRecord | None], *, failed: bool = False) -> Decision:
    return increment(reason, chain, failed=failed, column=COLUMN, full_check=FULL_CHECK, at=NOW)


def commit(at: float = NOW - 10, state: State = State.COMMITTED) -> RangeRecord:
    return RangeRecord("..0000000101", state, proven=Proven(COLUMN, MARK, at))


@given(reason=st.sampled_from(Reason), chain=chains, failed=st.booleans())
def test_only_a_changed_range_of_an_intact_commit_is_moved_in_part(
    reason: Reason, chain: list[RangeRecord | None], failed: bool
) -> None:
    found = decided(reason, chain, failed=failed)
    own = chain[-1]
    if found.since is not None:
        assert reason is Reason.SOURCE_CHANGED and found.reason is reason and not failed
        assert own is not None and own.state.in_target and own.proven is not None
        assert own.proven.column == COLUMN and own.proven.watermark == found.since
        ages = [NOW - one.proven.at for one in chain if one is not None and one.proven is not None]
        assert len(ages) == len(chain), "each hop before is proven"
        assert max(ages) < FULL_CHECK
        assert ages == sorted(ages, reverse=True), "no hop before was proven after this one"


@given(reason=st.sampled_from(Reason), chain=chains, failed=st.booleans())
def test_nothing_that_has_to_run_is_skipped(
    reason: Reason, chain: list[RangeRecord | None], failed: bool
) -> None:
    found = decided(reason, chain, failed=failed)
    assert found.reason in ({reason} if reason is not Reason.UNCHANGED else {reason, "full_check"})
    if found.reason is Reason.UNCHANGED:
        assert decided(Reason.SOURCE_CHANGED, chain, failed=failed).since is not None or (
            chain[-1] is not None
            and chain[-1].proven is not None
            and chain[-1].proven.watermark is None
        )


def test_a_commit_that_nothing_calls_into_question_is_gone_on_from() -> None:
    assert decided(Reason.SOURCE_CHANGED, [commit()]).since == MARK
    assert decided(Reason.SOURCE_CHANGED, [commit(state=State.SKIPPED_UNCHANGED)]).since == MARK
    assert decided(Reason.UNCHANGED, [commit()]) == Decision(Reason.UNCHANGED)
    assert decided(Reason.SOURCE_CHANGED, [commit(NOW - 20), commit(NOW - 10)]).since == MARK


def test_a_range_is_proven_whole_again_when_it_is_due() -> None:
    for chain in (
        [commit(NOW - FULL_CHECK)],
        [commit(NOW - FULL_CHECK), commit(NOW - 10)],
        [commit(NOW - 10), commit(NOW - 20)],
        [None],
    ):
        assert decided(Reason.UNCHANGED, chain) == Decision(Reason.FULL_CHECK)
        assert decided(Reason.SOURCE_CHANGED, chain) == Decision(Reason.SOURCE_CHANGED)
