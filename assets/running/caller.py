"""Who runs a transfer in the same process: what a run is handed by it, and hands back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import newest_ids
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import Reason
from tableferry.assets.planning.decisions import Decision, decisions
from tableferry.assets.planning.resolve import Hop, Servers
from tableferry.assets.planning.source_state import (
    read_under,
    shared_snapshot,
)
from tableferry.assets.planning.transfer_plan import TransferPlan, plan_transfer
from tableferry.assets.running.progress import OnProgress, unwatched
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    from tableferry.assets.verifying.on_demand import Checked


@dataclass(frozen=True)
class Prepared:
    """A plan, the snapshot that it was made under, and what was decided by it so far."""

    plan: TransferPlan
    shared: SharedSnapshot | None
    """Hands out the snapshot; None where the source has none."""
    snapshot: Snapshot | None
    """The one that the fingerprints were taken under."""
    decided: Mapping[int, Mapping[str, Decision]] = field(default_factory=dict)
    """By number of the hop, of the ranges whose fingerprints were needed to decide."""
    newest: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """What was recorded of each range when it was decided, by number of the hop."""

    def holds(self, log: Log, names: list[str]) -> bool:
        """Whether it still says what to do with these ranges.

        It does not if another run has recorded one of them meanwhile, if the ranges were cut anew,
        or if the snapshot was lost with its server.
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
        """The same of some ranges, fingerprinted."""
        plan = self.plan.only(names).fingerprinted(servers, names, snapshot=self.snapshot)
        # a swap decides about all ranges of a run together
        apart = plan.transfer.write.whole_table and len(plan.ranges) < len(self.plan.ranges)
        decided = {
            number: {name: found[name] for name in names if name in found}
            for number, found in self.decided.items()
            if not apart
        }
        return Prepared(plan, self.shared, self.snapshot, decided)

    def decisions(
        self, hop: Hop, servers: Servers, log: Log, *, force: bool
    ) -> dict[str, Decision]:
        """Why each range of the plan is run, or that it is unchanged; asks only what is open."""
        plan, decided = self.plan, {} if force else self.decided.get(hop.number, {})
        rest = plan.only(set(plan.ranges) - set(decided))
        found = decisions(rest, hop, servers, log, force=force) if rest.ranges else {}
        return {name: decided.get(name) or found[name] for name in plan.ranges}


@dataclass
class Caller:
    """Whoever started a run in this very process; of other runs, nobody."""

    on_progress: OnProgress = unwatched
    prepared: Prepared | None = None
    """What it has planned already."""
    snapshot: str | None = None
    """The one to read under, which another process holds."""
    checked: list[Checked] = field(default_factory=list)
    """Gets the verdicts about whole tables, and those of a check without a move."""
    last: bool = True
    """No other run of the same command follows, so that the run sees the tables complete."""
    hops: tuple[Hop, ...] | None = None
    """The hops of a check without a move, if it has resolved them already."""
    error: TableferryError | None = None
    """Gets what a check without a move failed with, before anything was compared."""
    notes: list[str] = field(default_factory=list)
    """Gets what the user should know of the source and the targets, a line each."""
    ready: dict[TableRef, Target] = field(default_factory=dict)
    """The targets that one of its runs has created or verified, and what did."""


@contextmanager
def prepared(
    transfer: Transfer,
    servers: Servers,
    log: Log,
    names: list[str],
    caller: Caller,
) -> Iterator[Prepared]:
    """The fingerprinted plan of some ranges: what was handed over if it holds, else a new one."""
    handed = caller.prepared
    if handed is not None and handed.holds(log, names):
        yield handed.only(servers, names)
        return
    with shared_snapshot(transfer, servers, caller.snapshot) as shared:

        def plan(snapshot: Snapshot | None) -> Prepared:
            planned = plan_transfer(transfer, servers, log, names=names)
            return Prepared(planned, shared, snapshot).only(servers, names)

        yield read_under(shared, plan)


def moved_along(
    ready: Prepared,
    servers: Servers,
    log: Log,
    hops: Sequence[Hop],
    names: Collection[str],
) -> set[str]:
    """The ranges that have to move with others, where they are cut by the places of rows.

    A row that was updated may be stored in another range. So what else changed moves along, under
    the same snapshot: else rows would be lost, or there twice. Ranges that were never committed
    have none to lose.

    Args:
        ready: a plan of all ranges.
        servers: where the tables are.
        log: whose event log says what is committed.
        hops: those that run.
        names: the ranges that are asked for.
    """
    if ready.plan.transfer.write.whole_table:
        return set(ready.plan.ranges) - set(names)
    return {
        name
        for hop in hops
        for name, one in ready.decisions(hop, servers, log, force=False).items()
        if not one.reason.needs_no_move and one.reason is not Reason.MISSING and name not in names
    }
