"""What a run does to the columns of a target before it writes rows to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableferry.assets.declaring.manifest import DriftPolicy, Transfer
from tableferry.assets.log.ledger import committed_records, newest_ids
from tableferry.assets.log.queries import Log
from tableferry.assets.log.written_columns import created_table
from tableferry.assets.planning.changes.drift import (
    ADDING,
    Unplanned,
    add_columns,
    misfits,
    removals,
)
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.columns.renaming import rename
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import Target
from tableferry.resources.contract.target_columns import unfilled
from tableferry.resources.crash_points import reached
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import SchemaDrift, StatementFailed
from tableferry.resources.types.column import Column

ANEW = "`ferry run --recreate` makes the table anew"


@dataclass(frozen=True)
class Alteration:
    """A column of a target that can be widened in place, without changing a value."""

    before: Column
    after: Column
    statements: tuple[str, ...]
    """Statements that widen it, of which servers take the first that they know."""
    refused: str = ""
    """Why the server will refuse them; empty if that is not known."""

    def __str__(self) -> str:
        return f"{self.before.name!r} from {_declared(self.before)} to {_declared(self.after)}"


def alterations(
    plan: CopyPlan, actual: Mapping[str, Column] | None, target: Target
) -> list[Alteration]:
    """Return the alterations by which a target comes to hold what is planned for it.

    Columns that cannot be widened in place are left out: `drift.misfits` still names them.
    """
    system, needed = plan.target.system, []
    for planned in plan.target_columns:
        before = actual.get(planned.name) if actual else None
        after = _widened(system, planned, before) if before is not None else None
        if before is None or after is None:
            continue
        statements, refused = target.altering(plan.target, before, after)
        if statements:
            needed.append(Alteration(before, after, statements, refused))
    return needed


def unmended(
    plan: CopyPlan, actual: Mapping[str, Column] | None, target: Target, policy: DriftPolicy
) -> list[str]:
    """Say which columns of a target cannot hold what is planned, and what would help.

    Args:
        plan: the hop.
        actual: the target's columns, by name; None if it does not exist.
        target: its loader.
        policy: the transfer's; `evolve` mends what can be altered in place.
    """
    needed = alterations(plan, actual, target)
    refused = {alteration.before.name: alteration.refused for alteration in needed}
    alterable = {name for name, why in refused.items() if not why}
    problems = []
    for planned in plan.target_columns:
        before = actual.get(planned.name) if actual else None
        why = incompatibility(plan.target.system, planned, before) if before else None
        if not why or (policy == "evolve" and planned.name in alterable):
            continue
        remedy = (
            f"set on_schema_drift to evolve (it is {policy}), which alters the column in place"
            if planned.name in alterable
            else f"{ANEW}, and replaces it when it is proven"
        )
        known = refused.get(planned.name)
        why = f"{why}, and it cannot be altered in place: {known}" if known else why
        problems.append(f"{plan.target}: column {planned.name!r}: {why}; {remedy}")
    return problems


def made_anew(hop: Hop, servers: Servers, log: Log) -> str | None:
    """Return the identity of a target that is dropped and created again; None if it is not.

    It does not fit, a run of this event log has created it, nobody has given it anything since, no
    range with rows was ever committed to it, and it is empty. Whether it still is, is asked again
    under a lock.

    Args:
        hop: the hop into the target.
        servers: the servers of the transfer.
        log: the event log.
    """
    table = hop.plan.target
    fits = not (misfits(hop.plan, hop.existing) or new_columns(hop.plan, hop.existing))
    if fits or not hop.existing or table.system.by_path:
        return None
    created = created_table(log, hop.spec.to)
    if created is None or created != servers.target(table).identity(table):
        return None
    done = committed_records(log, hop.spec.to, newest_ids(log, hop.spec.to))
    if any(record.rows for record in done.values()):
        return None
    if unfilled(hop.plan, hop.existing.values(), hop.options.mark):
        return None
    if not servers.target(table).as_made(hop.plan, hop.options):
        return None
    return created if servers.side(hop.plan, "target").total()[ROWS] == 0 else None


def made_first(hops: Sequence[Hop], anew: Mapping[int, str | None]) -> list[Hop]:
    """Return hops in the order in which a run prepares their targets: new tables first, as a server
    may refuse to make one, and those that are altered stay as they are then.

    Args:
        hops: the hops.
        anew: what `made_anew` says of each, by its number.
    """
    return sorted(hops, key=lambda hop: hop.existing is not None and anew.get(hop.number) is None)


def altered(transfer: Transfer, hop: Hop, target: Target, gone: Unplanned) -> list[Column]:
    """Return the columns that a hop's target has once `alter` is done with it."""
    columns = dict(hop.existing or {})
    if transfer.on_schema_drift == "evolve":
        widened = alterations(hop.plan, hop.existing, target)
        columns |= {each.after.name: each.after for each in widened}
    if transfer.dropped_columns == "drop":
        for name in gone.removed("drop"):
            del columns[name]
    if transfer.on_schema_drift in ADDING:
        new = new_columns(hop.plan, hop.existing)
        columns |= {column.name: replace(column, nullable=True) for column in new}
    return [*columns.values()]


def alter(
    endpoint: Endpoint, transfer: Transfer, hop: Hop, target: Target, gone: Unplanned
) -> list[str]:
    """Rename, widen, drop, empty and add the columns of an existing target, as it is declared.

    Each statement is sent by itself: a process that dies in between leaves the rest to the next.

    Args:
        endpoint: the target's server, or a recording of it.
        transfer: the transfer.
        hop: the hop into the target, which `refusals` has nothing against.
        target: its loader.
        gone: the columns of the target that the hop lacks.

    Returns:
        Notes for the user.

    Raises:
        SchemaDrift: the server refuses to rename or widen a column, and why.
    """
    table, policy = hop.plan.target, transfer.on_schema_drift
    notes = []
    for was, name in hop.renames:
        _altered_in_place(
            endpoint,
            (rename(table, was, name),),
            f"{table}: column {was!r} cannot be renamed {name!r}",
        )
        notes.append(f"{table}: renamed column {was!r} to {name!r}")
    for alteration in alterations(hop.plan, hop.existing, target) if policy == "evolve" else ():
        why = f"{table}: column {alteration} cannot be altered in place"
        _altered_in_place(endpoint, alteration.statements, why)
        notes.append(f"{table}: altered column {alteration}")
    handled = transfer.dropped_columns
    if removed := removals(hop.plan, gone, handled):
        for statement in removed:
            endpoint.execute(statement)
        names = ", ".join(map(repr, gone.removed(handled)))
        done = "dropped" if handled == "drop" else "NULL in all rows"
        notes.append(f"{hop.plan.source} no longer has {names}: {done} in {table}")
    if policy in ADDING:
        notes += add_columns(endpoint, table, new_columns(hop.plan, hop.existing))
    return notes


def _altered_in_place(endpoint: Endpoint, statements: Sequence[str], why: str) -> None:
    """Send the first of the statements that the server knows."""
    for statement in statements:
        try:
            endpoint.execute(statement)
        except StatementFailed as error:
            # a failure that may pass says nothing about what the server knows
            if error.transient or statement == statements[-1]:
                raise SchemaDrift(f"{why}: {error}; {ANEW}") from None
        else:
            reached("during_evolution")
            return


def _widened(system: System, planned: Column, before: Column) -> Column | None:
    """Return a column that holds all values of both; None if it is as it was, or cannot be."""
    if before.generated or incompatibility(system, planned, before) is None:
        return None
    if incompatibility(system, replace(planned, nullable=False), before) is None:
        return replace(before, nullable=True)
    if incompatibility(system, replace(before, nullable=False), planned) is not None:
        return None
    return replace(
        before,
        type=planned.type,
        own_type=planned.own_type,
        nullable=planned.nullable or before.nullable,
    )


def _declared(column: Column) -> str:
    return f"{column.own_type or column.type}{'' if column.nullable else ' NOT NULL'}"
