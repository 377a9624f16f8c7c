"""Each reason for which a range runs asks for an action, and each action is taken."""

from __future__ import annotations

import pytest

from tableferry.assets.log.states import Reason
from tableferry.assets.planning.rows.actions import COMPARED, DIFFERS_IN_FEW_ROWS, WITHOUT_A_MOVE
from tableferry.assets.planning.rows.decision import MAY_BE_EQUAL, Action
from tableferry.assets.running.actions import ACTIONS

MOVED_AS_A_WHOLE = {
    Reason.MISSING,
    Reason.SETTINGS_CHANGED,
    Reason.TARGET_MISSING,
    Reason.TARGET_CHANGED,
    Reason.FORCED,
    Reason.SWAP,
    Reason.RECREATED,
}


def test_each_reason_asks_for_an_action() -> None:
    known = {*WITHOUT_A_MOVE, *COMPARED, *DIFFERS_IN_FEW_ROWS, *MOVED_AS_A_WHOLE}
    assert known == {*Reason}
    assert not MOVED_AS_A_WHOLE & {*WITHOUT_A_MOVE, *COMPARED, *DIFFERS_IN_FEW_ROWS}
    assert {*MAY_BE_EQUAL} <= {*COMPARED}, "what may be equal is compared"


def test_each_action_is_taken() -> None:
    assert ACTIONS.keys() == {*Action}


@pytest.mark.parametrize("reason", [Reason.UNCHANGED, Reason.UNCHECKED, Reason.PROMOTED])
def test_what_needs_no_move_has_an_action_without_one(reason: Reason) -> None:
    assert reason.needs_no_move and not WITHOUT_A_MOVE[reason].moves
