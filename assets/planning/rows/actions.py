"""Which action a range needs, by the reason for which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tableferry.assets.log.states import Reason
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Action, Decision
from tableferry.assets.planning.rows.deltas import compares_first
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan

WITHOUT_A_MOVE = {
    Reason.UNCHANGED: Action.SKIP,
    Reason.UNCHECKED: Action.RECHECK,
    Reason.PROMOTED: Action.RECORD,
    Reason.SHADOWED: Action.RECORD,
}
"""The actions on ranges whose rows are where they should be."""

COMPARED = (
    Reason.DIGEST_CHANGED,
    Reason.SOURCE_REPLACED,
    Reason.FULL_CHECK,
    Reason.TARGET_MOVED,
    Reason.FEWER_COLUMNS,
    Reason.SOURCE_REWRITTEN,
    Reason.REPAIR,
)
"""Reasons for which a range is compared, and moved only if both sides differ."""

DIFFERS_IN_FEW_ROWS = (
    Reason.SOURCE_CHANGED,
    Reason.ROW_COUNT_DIFFERS,
    Reason.LAST_CHECK_FAILED,
    Reason.TARGET_MOVED,
    Reason.SOURCE_REWRITTEN,
    Reason.FULL_CHECK,
    Reason.SCHEMA_CHANGED,
)
"""Reasons for which a range that the target has may differ in few rows."""


def with_actions(
    plan: TransferPlan, hop: Hop, servers: Servers, decided: Mapping[str, Decision]
) -> dict[str, Decision]:
    """Return decisions about the ranges of a hop with the actions that they ask for."""
    return {
        name: replace(decision, action=_action(plan, hop, servers, name, decision))
        for name, decision in decided.items()
    }


def _action(
    plan: TransferPlan, hop: Hop, servers: Servers, name: str, decision: Decision
) -> Action:
    reason = decision.reason
    if plan.intent.adopt:
        return Action.COMPARE
    if reason in WITHOUT_A_MOVE:
        return WITHOUT_A_MOVE[reason]
    if reason in COMPARED and not hop.only_moved:
        return Action.COMPARE
    if decision.since is not None:
        return Action.MOVE_NEWER
    return action_of_move(plan, hop, servers, reason, plan.fingerprints[name].rows)


def action_of_move(
    plan: TransferPlan, hop: Hop, servers: Servers, reason: Reason, rows: int
) -> Action:
    """Return how a range of so many rows moves, if it has to.

    An action that finds a range to differ asks for it, too: which rows differ is not known before.
    """
    if plan.intent.repair:
        return Action.REPAIR
    if reason in DIFFERS_IN_FEW_ROWS and compares_first(plan.transfer, hop, servers, rows):
        return Action.MOVE_DIFFERING
    return Action.MOVE_ALL
