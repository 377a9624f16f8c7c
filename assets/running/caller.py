"""What a command passes to a run in its own process, and gets back from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.planning.intent import AS_DECLARED, Intent
from tableferry.assets.planning.planner import make_plan, with_fingerprints
from tableferry.assets.planning.rows.decisions import with_decisions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import shared_snapshot
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.running.progress import OnProgress, ignore_progress
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    from tableferry.assets.running.work import RangeOutcome
    from tableferry.assets.verifying.checked import Checked


@dataclass
class Caller:
    """The command that started a run in its own process; other runs have a default one."""

    on_progress: OnProgress = ignore_progress
    plan: TransferPlan | None = None
    """The plan, if the command has made one."""
    snapshot: HeldSnapshot | None = None
    """The snapshot to read under, which another connection holds."""
    intent: Intent = AS_DECLARED
    """What the runs of the command are asked to do."""
    checked: list[Checked] = field(default_factory=list)
    """Receives the verdicts about whole tables, and those of a check without a move."""
    last: bool = True
    """No other run of the command follows, so that this run leaves the tables complete."""
    error: TableferryError | None = None
    """Receives the error of a check without a move that could not compare anything."""
    notes: list[str] = field(default_factory=list)
    """Receives notes for the user about the source and the targets, a line each."""
    compared: list[RangeOutcome] = field(default_factory=list)
    """Receives the ranges that a run has compared to adopt them."""
    ready: dict[TableRef, Target] = field(default_factory=dict)
    """The targets that a run of the command has created or verified."""


@contextmanager
def plan_of_run(
    transfer: Transfer,
    servers: Servers,
    log: Log,
    intent: Intent,
    names: Sequence[str],
    caller: Caller,
) -> Iterator[TransferPlan]:
    """Return the plan of some ranges: the command's if it holds, else a new one.

    The arguments are those of `make_plan`.
    """
    plan = caller.plan
    if plan is not None and plan.holds(log, names):
        plan = replace(plan.only(names), intent=intent)
        yield with_decisions(with_fingerprints(plan, servers, log, names), servers, log)
        return
    with shared_snapshot(transfer, servers, caller.snapshot) as shared:
        yield make_plan(transfer, servers, log, intent, shared=shared, names=names)
