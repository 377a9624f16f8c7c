"""What a command passes to a run in its own process, and gets back from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import newest_ids
from tableferry.assets.log.queries import Log
from tableferry.assets.log.states import Reason
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decisions import Decision, decisions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.source_state import (
    read_under,
    shared_snapshot,
)
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.assets.running.progress import OnProgress, ignore_progress
from tableferry.resources.contract.snapshots import HeldSnapshot, SharedSnapshot, Snapshot
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    from tableferry.assets.running.work import Candidate
    from tableferry.assets.verifying.on_demand import Checked


@dataclass(frozen=True)
class Prepared:
    """A plan, the snapshot that it was made under, and the decisions made so far."""

    plan: TransferPlan
    shared: SharedSnapshot | None
    """None if the source has no snapshots."""
    snapshot: Snapshot | None
    """The snapshot of the fingerprints."""
    decided: Mapping[int, Mapping[str, Decision]] = field(default_factory=dict)
    """Decisions by hop number and range, as far as they needed fingerprints."""
    newest: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Each range's newest storage id at the time of the decision, by hop number."""

    def holds(self, log: Log, names: list[str]) -> bool:
        """Whether the plan of these ranges is still valid.

        It is not if another run has recorded one of them since, if the ranges were cut anew, or if
        the snapshot was lost with its server.
        """
        if not set(names) <= set(self.plan.ranges):
            return False
        if self.shared is not None and self.shared.name() is not self.snapshot:
            return False
        for hop in self.plan.hops:
            now, then = newest_ids(log, hop.spec.to), self.newest.get(hop.number, {})
            if any(now.get(name) != then.get(name) for name in names):
                return False
        return True

    def only(self, servers: Servers, names: list[str]) -> Prepared:
        """Restrict the plan to some ranges, with their fingerprints."""
        plan = self.plan.only(names).fingerprinted(servers, names, snapshot=self.snapshot)
        # a swap decides for all ranges of a run together
        if plan.transfer.write.whole_table and len(plan.ranges) < len(self.plan.ranges):
            return Prepared(plan, self.shared, self.snapshot)
        decided = {
            number: {name: by_range[name] for name in names if name in by_range}
            for number, by_range in self.decided.items()
        }
        return Prepared(plan, self.shared, self.snapshot, decided)

    def unrepaired(self) -> Prepared:
        """Return it without the decisions of a repair, for the hops that it does not write."""
        plan = replace(self.plan, transfer=self.plan.transfer.unrepaired())
        return replace(self, plan=plan, decided={})

    def decisions(
        self,
        hop: Hop,
        servers: Servers,
        log: Log,
        *,
        force: bool,
        before: Mapping[str, Decision] | None = None,
    ) -> dict[str, Decision]:
        """Return why each range of the plan is moved or skipped; decides only what is open.

        The arguments are those of `planning.decisions`.
        """
        plan, decided = self.plan, {} if force else self.decided.get(hop.number, {})
        rest = plan.only(set(plan.ranges) - set(decided))
        new = decisions(rest, hop, servers, log, force=force, before=before) if rest.ranges else {}
        return {name: decided.get(name) or new[name] for name in plan.ranges}


@dataclass
class Caller:
    """The command that started a run in its own process; other runs have a default one."""

    on_progress: OnProgress = ignore_progress
    prepared: Prepared | None = None
    """The plan, if the command has made one."""
    snapshot: HeldSnapshot | None = None
    """The snapshot to read under, which another connection holds."""
    checked: list[Checked] = field(default_factory=list)
    """Receives the verdicts about whole tables, and those of a check without a move."""
    last: bool = True
    """No other run of the command follows, so that this run leaves the tables complete."""
    hops: tuple[Hop, ...] | None = None
    """The hops of a check without a move, if they are resolved already."""
    error: TableferryError | None = None
    """Receives the error of a check without a move that could not compare anything."""
    notes: list[str] = field(default_factory=list)
    """Receives notes for the user about the source and the targets, a line each."""
    candidates: list[Candidate] = field(default_factory=list)
    """Receives the ranges that a run has compared to adopt them."""
    ready: dict[TableRef, Target] = field(default_factory=dict)
    """The targets that a run of the command has created or verified."""


@contextmanager
def prepared(
    transfer: Transfer, servers: Servers, log: Log, names: list[str], caller: Caller
) -> Iterator[Prepared]:
    """Return the fingerprinted plan of some ranges: the command's if it holds, else a new one."""
    plan_of_command = caller.prepared
    if plan_of_command is not None and plan_of_command.holds(log, names):
        yield plan_of_command.only(servers, names)
        return
    with shared_snapshot(transfer, servers, caller.snapshot) as shared:

        def plan(snapshot: Snapshot | None) -> Prepared:
            planned = plan_transfer(transfer, servers, log, names=names)
            return Prepared(planned, shared, snapshot).only(servers, names)

        yield read_under(shared, plan)


def ranges_moving_with(
    ready: Prepared, servers: Servers, log: Log, hops: Sequence[Hop], names: Collection[str]
) -> set[str]:
    """Return the ranges that have to move with the named ones, if ranges are cut by storage blocks.

    An updated row may be stored in another range. So all changed ranges move under one snapshot:
    otherwise rows would be lost or duplicated. Ranges that were never committed have none to lose.
    """
    if ready.plan.transfer.write.whole_table:
        return set(ready.plan.ranges) - set(names)
    return {
        name
        for hop in hops
        for name, decision in ready.decisions(hop, servers, log, force=False).items()
        if not decision.reason.needs_no_move
        and decision.reason is not Reason.MISSING
        and name not in names
    }
